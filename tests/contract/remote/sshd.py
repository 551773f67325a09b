"""A real sshd on a free loopback port, with keys of its own; and servers that only look like one."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.core.model import SshTarget

PROGRAM = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def make_key(path: Path, kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", path], check=True)
    return path


def public(key: Path) -> str:
    return key.with_suffix(".pub").read_text()


@dataclass
class Sshd:
    directory: Path
    port: int
    host_key: Path
    login_key: Path

    def target(self, **changed: object) -> SshTarget:
        usual = {
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "host_key": public(self.host_key),
            "key_ref": f"file:{self.login_key}",
        }
        return SshTarget(**{**usual, **changed})  # type: ignore[arg-type]

    @property
    def logins(self) -> int:
        return (self.directory / "log").read_text().count("Accepted publickey")


@contextlib.contextmanager
def running(directory: Path, *settings: str) -> Iterator[Sshd]:
    assert PROGRAM is not None
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it; packages make it at boot
    server = Sshd(directory, free_port(), make_key(directory / "host"), make_key(directory / "login"))
    lines = [
        f"ListenAddress 127.0.0.1:{server.port}",
        f"HostKey {server.host_key}",
        f"AuthorizedKeysFile {server.login_key}.pub",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "PermitRootLogin prohibit-password",
        "PidFile none",
        *settings,
    ]
    config = directory / "sshd_config"
    config.write_text("\n".join(lines) + "\n")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stderr=log)
    try:
        _wait(process, server)
        yield server
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], server: Sshd) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1):
            return
        assert process.poll() is None, (server.directory / "log").read_text()
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def pretending(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port where every connection is given to `behave`, and closed when that returns."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    def attend(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            behave(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
