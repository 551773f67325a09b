"""Worker processes on the simulated rack, and what is done to them: kill -9, and freezes that outlast a lease."""

import multiprocessing
import os
import random
import signal
import time
from typing import Any

from tests.integration.rack import working

FREEZE_S = (1.3, 4.0)  # leases: until another is at work on what was in hand, or has long ended it
AWAKE = 2  # so many are left to work, whoever is frozen


class Crowd:
    """A killed one is replaced at once. They are forked from a process that has loaded everything, or most of the time would go
    into imports."""

    def __init__(self, arguments: dict[str, Any], count: int, dice: random.Random) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([working.__name__])
        self._arguments, self._dice = arguments, dice
        self._running = [self._started() for _ in range(count)]
        self._until: dict[int, float] = {}  # by place, when a frozen one is to go on
        self.kills = self.freezes = 0

    def pause_s(self) -> float:
        return self._dice.uniform(0.2, 1.5)

    def kill_one(self) -> None:
        place = self._dice.randrange(len(self._running))
        self._until.pop(place, None)
        self._end(self._running[place])
        self.kills += 1
        self._running[place] = self._started()

    def freeze_one(self) -> None:
        """One of those that are awake, unless only `AWAKE` are."""
        awake = [place for place in range(len(self._running)) if place not in self._until]
        if len(awake) <= AWAKE:
            return
        place = self._dice.choice(awake)
        self._signal(place, signal.SIGSTOP)
        self._until[place] = time.monotonic() + self._dice.uniform(*FREEZE_S) * self._arguments["lease_s"]
        self.freezes += 1

    def thaw(self) -> bool:
        """Let those go on that were frozen for long enough; is nobody frozen any more?"""
        for place, until in list(self._until.items()):
            if time.monotonic() > until:
                self._signal(place, signal.SIGCONT)
                del self._until[place]
        return not self._until

    def end(self) -> None:
        for process in self._running:
            self._end(process)

    def _signal(self, place: int, number: signal.Signals) -> None:
        pid = self._running[place].pid
        assert pid is not None
        os.kill(pid, number)

    def _started(self) -> multiprocessing.process.BaseProcess:
        process = self._context.Process(target=working.work, kwargs=self._arguments, daemon=True)
        process.start()
        return process

    @staticmethod
    def _end(process: multiprocessing.process.BaseProcess) -> None:
        process.kill()
        process.join()
