"""`fleet serve` as a process of its own on the database of a large provider."""

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import structlog

from fleet.core.clock import Deadline
from fleet.store.database import Database
from fleet.store.upgrade import upgrade
from tests import postgres
from tests.bench import crowded

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


@dataclass
class Served:
    url: str  # the database's
    db: Database
    client: httpx.Client

    def post(self, path: str, body: Any) -> httpx.Response:
        return self.client.post(path, json=body)


@contextmanager
def served() -> Iterator[Served]:
    binaries = postgres.find_binaries()
    if binaries is None:
        raise SystemExit("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="served-")))
        url = stack.enter_context(postgres.server(binaries))
        db = Database(url)
        stack.callback(db.close)
        upgrade(db)
        crowded.fill(db)
        env = {name: value for name, value in os.environ.items() if not name.startswith("FLEET_")}
        env |= {"FLEET_HOME": str(folder), "FLEET_PROFILE": str(folder / "profile.toml")}
        fleet = Path(sys.executable).with_name("fleet")
        with (folder / "log").open("wb") as log:
            command = [fleet, "serve", "--database", url, "--listen", "127.0.0.1:0"]
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        said = (folder / "log").read_text
        if not any("is up at" in said() or process.poll() is not None for _ in Deadline.after(60).poll(0.1)):
            raise SystemExit(f"fleet serve did not start: {said()}")
        profile = tomllib.loads((folder / "profile.toml").read_text())
        headers = {"Authorization": f"Bearer {profile['token']}"}
        yield Served(
            url,
            db,
            stack.enter_context(httpx.Client(base_url=profile["url"], headers=headers, timeout=60, limits=_MANY)),
        )


_MANY = httpx.Limits(max_connections=64, max_keepalive_connections=64)


def together(ask: Callable[[Asked], Answer], asked: Sequence[Asked], threads: int) -> list[Answer]:
    """As fast as so many callers at once get their answers."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(ask, asked))
