"""Databases for every test: the same tests run on SQLite and on a real PostgreSQL server."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from fleet.store.database import Database
from fleet.store.upgrade import upgrade
from tests import postgres
from tests.needs import need

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of the maintenance database of a server of this test run's own."""
    binaries = postgres.find_binaries()
    need("PostgreSQL (Debian: apt-get install postgresql)", binaries)
    assert binaries is not None
    with postgres.server(binaries) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str) -> str:
    """A database at head, which every test's own database is a copy of."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE template_head")
    _upgraded(postgres_url.replace("/postgres?", "/template_head?"))
    return "template_head"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "head.sqlite"
    _upgraded(f"sqlite:///{path}")
    return path


def _upgraded(url: str) -> None:
    db = Database(url)
    upgrade(db)
    db.close()


@pytest.fixture
def fresh_url(postgres_url: str) -> Iterator[Callable[[str], str]]:
    """Makes PostgreSQL databases as copies of a template (`template0`: an empty one); they are dropped afterwards."""
    made: list[str] = []

    def make(template: str) -> str:
        name = f"test_{next(_numbers)}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        made.append(name)
        return postgres_url.replace("/postgres?", f"/{name}?")

    yield make
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in made:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def database_url(request: pytest.FixtureRequest) -> str:
    """A database at head, empty of rows, of this test's own: once on SQLite, once on PostgreSQL."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    return str(request.getfixturevalue("postgresql_url"))


@pytest.fixture
def postgresql_url(fresh_url: Callable[[str], str], postgres_template: str) -> str:
    """A PostgreSQL database at head, for tests of what only a server does."""
    return fresh_url(postgres_template)


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite database at head, for tests in which the database makes no difference."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'fleet.sqlite')}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with nothing in it, on both."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.sqlite'}"
    return str(request.getfixturevalue("fresh_url")("template0"))


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """An open database at head, on both."""
    database = Database(database_url)
    yield database
    database.close()
