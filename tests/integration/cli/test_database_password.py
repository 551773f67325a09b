"""The password of PostgreSQL is named, not said: read at each connection, and in no URL, command line or error."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

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
