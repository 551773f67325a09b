"""What anybody on the machine can see of its processes, looked at again and again while a test runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.secrets.planted import Planted


class Watch:
    """Command lines of all processes; environments of all but `own`, who were given secrets in theirs on purpose."""

    def __init__(self, planted: Planted, own: set[int]) -> None:
        self._planted, self._own = planted, own
        self.leaks: set[str] = set()
        self.rounds = 0

    def look(self) -> None:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                self._process(entry)
        self.rounds += 1

    def _process(self, entry: Path) -> None:
        try:
            line, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:  # it has ended
            return
        program = line.split(b"\0")[0].decode(errors="replace")
        self.leaks |= {f"{name} in the command line of {program}" for name in self._planted.found(line)}
        if int(entry.name) not in self._own:
            self.leaks |= {f"{name} in the environment of {program}" for name in self._planted.found(environment)}


@contextmanager
def watching(watch: Watch, every_s: float = 0.05) -> Iterator[None]:
    over = threading.Event()

    def look_on() -> None:
        while not over.wait(every_s):
            watch.look()

    thread = threading.Thread(target=look_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
