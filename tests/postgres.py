"""A PostgreSQL server of the test run's own: no TCP port, no root, nothing kept."""

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from fleet.core.clock import Deadline

_PREFIX = "fleet-pg-"


def find_binaries() -> Path | None:
    """The newest installation's folder with initdb and postgres, None when there is none."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    places += [Path(on_path).resolve().parent] if on_path else []
    return next((p for p in places if (p / "initdb").exists() and (p / "postgres").exists()), None)


@contextmanager
def server(binaries: Path) -> Iterator[str]:
    """Run a server until the block ends; gives the URL of its first database. Speed over safety: nothing is synced."""
    with running(binaries) as started:
        yield started.url


class Server:
    """One that can be ended and started again in between. Whatever it has said to be committed is still there then."""

    def __init__(self, folder: Path, command: list[str | Path], who: dict[str, Any]) -> None:
        self.url, self.socket = f"postgresql://fleet@/postgres?host={folder}", folder / ".s.PGSQL.5432"
        self.folder, self._command, self._who = folder, command, who
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self.folder, **self._who)
        _wait(self._process, self.url, self.folder / "log")

    def end(self, by: signal.Signals = signal.SIGINT) -> None:
        """SIGINT cuts every connection and ends in order; SIGQUIT at once, so that the next start has to recover."""
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(30)


@contextmanager
def running(binaries: Path, *, keeps_commits: bool = False) -> Iterator[Server]:
    """A server until the block ends. `keeps_commits`: also over an end at once."""
    initdb = [binaries / "initdb", "-U", "fleet", "-A", "trust", "-N", "-E", "UTF8", "--locale=C", "-D"]
    with _folder() as folder, _running(binaries, folder, initdb, keeps_commits) as made:
        yield made


@contextmanager
def standby(binaries: Path, primary: Server) -> Iterator[Server]:
    """A copy that follows the primary, which from now on says that it has committed when the copy has it too. `promote` makes
    it the primary."""
    backup = [binaries / "pg_basebackup", "-h", primary.folder, "-U", "fleet", "-R", "-c", "fast", "-D"]
    with _folder() as folder, _running(binaries, folder, backup, True) as made:
        with psycopg.connect(primary.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        yield made


def promote(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
        connection.execute("SELECT pg_promote()")


@contextmanager
def _folder() -> Iterator[Path]:
    """Of the server's user, gone at the end, and after a killed test run at the next one's beginning."""
    place = _place()
    _sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))  # short: a socket's path must fit 107 bytes
    held = (folder / "held").open("w")  # as long as we live
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        shutil.chown(folder, _user())
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        held.close()


@contextmanager
def _running(binaries: Path, folder: Path, make: list[str | Path], keeps_commits: bool) -> Iterator[Server]:
    """`make` is the command that fills a data directory, but for its name."""
    user = _user()
    who: dict[str, Any] = {} if os.getuid() else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    subprocess.run([*make, folder / "data"], check=True, capture_output=True, cwd=folder, **who)
    fast = [
        "fsync=off",
        f"synchronous_commit={'on' if keeps_commits else 'off'}",
        "full_page_writes=off",
        "max_connections=200",
        "shared_buffers=64MB",
    ]
    options = [word for setting in fast for word in ("-c", setting)]
    # a killed test run leaves no server
    leash = ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []
    command = [*leash, binaries / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=", *options]
    made = Server(folder, command, who)
    try:
        made.start()
        yield made
    finally:
        made.end()


def lock(url: str, user: str, password: str) -> str:
    """A role and a database of its own, which are reached by password only; the URL, without it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{password}'")
        connection.execute(f"CREATE DATABASE {user} OWNER {user}")
        (file,) = connection.execute("SHOW hba_file").fetchone() or ()
        rules = Path(file)
        rules.write_text(f"local all {user} scram-sha-256\n{rules.read_text()}")
        connection.execute("SELECT pg_reload_conf()")
    return url.replace("//fleet@/postgres?", f"//{user}@/{user}?")


def unlock(url: str, user: str) -> None:
    """Undo `lock`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {user} WITH (FORCE)")
        connection.execute(f"DROP ROLE {user}")


def _place() -> Path:
    """Memory where there is enough: a new database is hundreds of files, 0.25 s on a disk and 0.01 s there."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2**30 else Path(tempfile.gettempdir())


def _sweep(place: Path) -> None:
    """Remove what killed test runs left, each about 70 MB."""
    for folder in place.glob(f"{_PREFIX}*"):
        try:
            with (folder / "held").open() as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use, just being made, or another user's
            continue


def _user() -> str:
    """PostgreSQL refuses to run as root: as root, an unprivileged user that exists on this system."""
    if os.getuid():
        return pwd.getpwuid(os.getuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    for _ in Deadline.after(30).poll(0.05):
        if process.poll() is not None:
            break
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            continue
        return
    raise RuntimeError(f"PostgreSQL did not start: {log.read_text()[-2000:]}")
