"""Deadlines and a clock that tests can turn. Monotonic time measures; wall time is for display."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM = SystemClock()


@dataclass(frozen=True)
class Deadline:
    """One end that every step below shares. `at` is on the clock's monotonic scale, in seconds."""

    clock: Clock
    at: float

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM) -> "Deadline":
        return cls(clock, clock.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - self.clock.monotonic())

    @property
    def passed(self) -> bool:
        return self.left_s == 0.0

    def poll(self, every_s: float) -> Iterator[float]:
        """Yield the seconds left, `every_s` apart, with a last look at the deadline itself."""
        while (left := self.left_s) > 0:
            yield left
            self.clock.sleep(min(every_s, left))
        yield 0.0
