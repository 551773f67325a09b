"""Worker processes, and what is done to them: kill -9, and freezes that outlast a lease."""

import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from fleet.core.clock import Deadline

_LEASH = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []  # a killed test run leaves no workers


class Crowd:
    """`size` processes of one command; a killed one is replaced at once. A freeze lasts `freeze_s` (from, to) seconds."""

    def __init__(
        self, command: Sequence[str], size: int, rng: random.Random, log: Path, freeze_s: tuple[float, float]
    ) -> None:
        self.command, self.rng, self.log, self.freeze_s = [*_LEASH, *command], rng, log, freeze_s
        self.kills = self.freezes = 0
        self._frozen: set[int] = set()
        self._processes = [self._spawn() for _ in range(size)]

    def disturb(self, kill: bool) -> None:
        """Kill or freeze one that is not frozen already."""
        place = self.rng.randrange(len(self._processes))
        if place in self._frozen:
            return
        process = self._processes[place]
        if not kill:
            self._frozen.add(place)
            process.send_signal(signal.SIGSTOP)
            self.freezes += 1
            # A thread of its own thaws it: on SQLite the caller may be waiting for the lock that the frozen one holds.
            threading.Timer(self.rng.uniform(*self.freeze_s), self._thaw, (place, process)).start()
        else:
            process.kill()
            process.wait()
            self.kills += 1
            self._processes[place] = self._spawn()

    def dead(self) -> int:
        """How many ended by themselves, which none should."""
        return sum(process.poll() is not None for process in self._processes)

    def settle(self, seconds: float) -> None:
        """Wait until nobody is frozen and then `seconds` more, so that whoever was can try its worst."""
        for _ in Deadline.after(self.freeze_s[1] + 5).poll(0.05):
            if not self._frozen:
                break
        threading.Event().wait(seconds)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _thaw(self, place: int, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGCONT)
        self._frozen.discard(place)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, stdout=log, stderr=log)
