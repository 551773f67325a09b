"""One embedded service per SQLite file: two of them would take each other's leases away."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.core.errors import Refused


@contextmanager
def held(database: Path, *, alone: bool) -> Iterator[None]:
    """Keep `DATABASE.lock` until the end: the whole file for `fleet up`, a share of it for `serve` and `worker`. The
    kernel frees it with the process. Raises Refused, naming who has it."""
    path = database.with_name(database.name + ".lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip() or "another process"
            raise Refused(
                f"{database} is in use by {holder}. Stop that one first, or use another file: --database sqlite:///PATH"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"`fleet {'up' if alone else 'serve or worker'}`, process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
