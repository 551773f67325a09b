"""The password of PostgreSQL is named, not said: read at each connection, and in no URL, command line or error."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.app import parts
from fleet.core.errors import InvalidInput, StoreBusy
from fleet.settings import load
from fleet.store.database import Database
from tests import postgres

pytestmark = pytest.mark.real
RIGHT, WRONG = "Pw-right-4711", "Pw-wrong-4712"


@pytest.fixture
def locked_url(postgres_url: str) -> Iterator[str]:
    user = f"locked_{os.getpid()}"
    yield postgres.lock(postgres_url, user, RIGHT)
    postgres.unlock(postgres_url, user)


@pytest.fixture
def password(tmp_path: Path) -> Path:
    return tmp_path / "password"


def opened(stack: ExitStack, url: str, **more: Any) -> Database:
    settings = load(None, {"database": url, **more})
    return stack.enter_context(parts.database(settings, alone=False))


def test_it_is_read_at_each_connection(locked_url: str, password: Path) -> None:
    password.write_text(RIGHT + "\n")
    with ExitStack() as stack:
        db = opened(stack, locked_url, database_password_ref=f"file:{password}")
        assert db.now() > 0
        db.engine.dispose()  # as when the server restarts: every connection is made anew
        password.write_text(WRONG)
        with pytest.raises(
            StoreBusy, match=r"refused the login, check database_password_ref: .*authentication failed"
        ) as no:
            db.now()
        assert WRONG not in str(no.value)
        password.unlink()
        with pytest.raises(
            StoreBusy, match=r"no connection to the database: database_password_ref: file:.*no such file"
        ):
            db.now()
        password.write_text(RIGHT)
        assert db.now() > 0
        assert RIGHT not in repr(db.engine) + repr(db.url) + repr(db.engine.pool)


def test_without_it_the_setting_is_named(locked_url: str) -> None:
    with ExitStack() as stack, pytest.raises(StoreBusy, match=r"check database_password_ref: .*no password supplied"):
        opened(stack, locked_url)


def test_a_reference_that_leads_nowhere_stops_the_start(locked_url: str, password: Path) -> None:
    with (
        ExitStack() as stack,
        pytest.raises(InvalidInput, match=r"database_password_ref: file:.*: there is no such file"),
    ):
        opened(stack, locked_url, database_password_ref=f"file:{password}")


def test_a_service_that_cannot_log_in_says_so_and_not_by_what(locked_url: str, password: Path, tmp_path: Path) -> None:
    password.write_text(WRONG)
    settings = {"database": locked_url, "database_password_ref": f"file:{password}", "log": {"level": "debug"}}
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(settings))
    status, said = started(tmp_path, "--config", str(tmp_path / "fleet.yaml"))
    assert (status, "refused the login, check database_password_ref" in said, WRONG in said) == (5, True, False), said


@pytest.mark.parametrize("url", [f"postgresql://fleet:{WRONG}@db/fleet", f"postgresql://db/fleet?password={WRONG}"])
def test_a_url_with_a_password_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    status, said = started(tmp_path, "--database", url)
    assert (status, "the URL has a password in it" in said, WRONG in said) == (2, True, False), said


def started(folder: Path, *arguments: str) -> tuple[int, str]:
    """A service that does not come up: its exit status, and all it said."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")} | {"FLEET_HOME": str(folder / "home")}
    command = [sys.executable, "-c", "import sys; from fleet.cli import main; sys.exit(main())", "serve", *arguments]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout + ended.stderr
