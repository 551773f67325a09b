"""What happens inside an SSH connection: logins by key, commands as real processes, tunnels to one place only."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncssh

_CHUNK = 1 << 16
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Login:
    """Who may log in where: `environment` and `home` are those of a command's process; `tunnel` is the one address that
    direct-tcpip may reach, None: none."""

    user: str
    host_key: asyncssh.SSHKey
    accepted: frozenset[bytes]  # public keys in SSH's wire form
    environment: Callable[[], Mapping[str, str]]
    home: Path
    tunnel: tuple[str, int] | None = None

    async def serve(self, connected: socket.socket) -> None:
        """One connection, from the version exchange on."""
        try:
            await asyncssh.run_server(
                connected,
                server_factory=lambda: _Server(self),
                server_host_keys=[self.host_key],
                process_factory=self._run,
                encoding=None,
                allow_scp=False,
                login_timeout=30,
            )
        except (asyncssh.Error, OSError) as exc:
            log.info("connection for %s ended: %s", self.user, exc)

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        command = process.command
        if command is None:
            process.stderr.write(b"This account runs commands only.\n")
            process.exit(1)
            return
        try:
            child = await self._start(command)
        except OSError as exc:  # a guest that was destroyed this moment
            process.stderr.write(f"{exc}\n".encode())
            process.exit(255)
            return
        assert child.stdin
        assert child.stdout
        assert child.stderr
        feeding = asyncio.create_task(_feed(process, child.stdin))
        # As sshd does: the session lasts as long as anybody holds the pipes, not just the shell.
        await asyncio.gather(_carry(child.stdout, process.stdout), _carry(child.stderr, process.stderr))
        status = await child.wait()
        feeding.cancel()
        if status < 0:
            process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
        else:
            process.exit(status)

    async def _start(self, command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(self.environment()),
            cwd=self.home,
            start_new_session=True,
        )


async def _feed(process: asyncssh.SSHServerProcess[bytes], stdin: asyncio.StreamWriter) -> None:
    try:
        while data := await process.stdin.read(_CHUNK):
            stdin.write(data)
            await stdin.drain()
    except (asyncssh.Error, OSError):
        pass  # the client went away, or the command does not read
    finally:
        stdin.close()


async def _carry(source: asyncio.StreamReader, to: asyncssh.SSHWriter[bytes]) -> None:
    """To the client; once it is gone to nowhere, so that the command goes on."""
    gone = False
    while data := await source.read(_CHUNK):
        if gone:
            continue
        try:
            to.write(data)
            await to.drain()
        except (asyncssh.Error, OSError):
            gone = True


class _Server(asyncssh.SSHServer):
    def __init__(self, login: Login) -> None:
        self._login = login

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == self._login.user and key.public_data in self._login.accepted

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        if (dest_host, dest_port) != self._login.tunnel:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "not reachable from here")
        return True
