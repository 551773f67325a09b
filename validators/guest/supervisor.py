"""Runs the stages of a plan to their end, whatever the tools, the disk and the clock do."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any, BinaryIO, List, Tuple, cast

from .state import BROKEN, DONE, FULL, RUNNING, STOPPED, StateFile
from .step import Step

TICK_S = 0.2
CLOSED_TICK_S = 0.02  # a step has closed its output: its end is near
BEAT_S = 0.5
LAST_WRITE_S = 60.0  # how long the final state waits for room on a full disk


class Terminated(Exception):
    """The guest shuts down, or somebody ended the runner politely."""


class Supervisor:
    def __init__(self, directory: str, stages: List[List[Step]], file: StateFile) -> None:
        self._stages = stages
        self._file = file
        self._stop = os.path.join(directory, "stop")
        self._written_at = 0.0

    def run(self) -> None:
        """Ends with the final state written, if the disk takes it at all."""
        signal.signal(signal.SIGTERM, _terminated)
        try:
            state, reason = self._run_stages()
        except Exception as exc:
            state, reason = BROKEN, "runner: {}: {}".format(type(exc).__name__, exc)
            self._end_all("lost")
        give_up_at = time.monotonic() + LAST_WRITE_S
        while not self._write(state, reason) and time.monotonic() < give_up_at:
            time.sleep(BEAT_S)

    def _run_stages(self) -> Tuple[str, str]:
        for stage in self._stages:
            if self._stop_asked():
                break
            self._run_stage(stage)
        self._end_all("stopped")
        if any(step.record.ended == "stopped" for stage in self._stages for step in stage):
            return STOPPED, "stopped by the orchestrator"
        return DONE, ""

    def _run_stage(self, stage: List[Step]) -> None:
        for step in stage:
            step.start()
        self._write(RUNNING)
        while running := [step for step in stage if step.running]:
            self._pump(running)
            if self._stop_asked():
                for step in running:
                    step.kill("stopped")
            for step in running:
                step.tick()
            ended = not all(step.running for step in running)
            if ended or time.monotonic() - self._written_at >= BEAT_S:
                for step in running:
                    if step.running:
                        step.note_progress()
                self._write(RUNNING)

    def _pump(self, running: List[Step]) -> None:
        """Wait for output, at most a tick, and store it."""
        sources = {cast(BinaryIO, output.pipe): (step, output) for step in running for output in step.open_outputs}
        tick = TICK_S if all(step.open_outputs for step in running) else CLOSED_TICK_S
        for pipe in select.select(list(sources), [], [], tick)[0]:
            step, output = sources[pipe]
            if output.pipe is not None:  # closed meanwhile with its sister stream, when the step is being killed
                step.pump(output)

    def _stop_asked(self) -> bool:
        return os.path.exists(self._stop)

    def _end_all(self, how: str) -> None:
        for stage in self._stages:
            for step in stage:
                step.cut(how)

    def _write(self, state: str, reason: str = "") -> bool:
        """False when the disk is so full that not even the state could be replaced: the next beat tries again."""
        self._written_at = time.monotonic()
        try:
            self._file.write(state, reason)
        except OSError as exc:
            if exc.errno not in FULL:
                raise
            return False
        return True


def _terminated(number: int, frame: Any) -> None:
    raise Terminated("ended by signal {}".format(number))
