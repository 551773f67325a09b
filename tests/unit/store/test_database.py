"""Opening a database, its clock, and what its errors say."""

import sqlite3
import threading
import traceback
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from fleet.core.errors import InvalidInput, StoreBusy, StoreError
from fleet.store.database import Database, db_now
from fleet.store.tables import SiteRow


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("fleet.db", "is not a URL"),
        ("mysql://localhost/fleet", "mysql is not supported"),
        ("postgresql://fleet@[::1/fleet", "is not a URL"),
        ("sqlite://", "SQLite needs a file"),
        ("sqlite:///:memory:", "SQLite needs a file"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refusal:
        Database(url)
    assert refusal.value.field == "database"


def test_a_password_is_not_shown_with_the_url_that_cannot_work() -> None:
    with pytest.raises(InvalidInput) as refusal:
        Database("postgresql//fleet:geheim@db:port/fleet")
    assert "geheim" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://fleet:geheim@db/fleet",
        "postgresql://fleet@db/fleet?password=geheim",
        "postgresql://fleet@db/fleet?sslmode=verify-full&sslpassword=geheim",
    ],
)
def test_a_url_with_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidInput, match="database_password_ref: file:PATH") as refusal:
        Database(url)
    assert "geheim" not in str(refusal.value)


def test_sqlite_has_no_password(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="database_password_ref: SQLite has no password"):
        Database(f"sqlite:///{tmp_path / 'x'}", password=lambda: "geheim")


def test_values_are_not_shown_with_the_statement_that_failed(db: Database) -> None:
    value = "-".join(["ge", "heim"])  # a trace shows this line too
    with pytest.raises(Exception, match="no_such_column") as failed, db.begin() as session:
        session.execute(sa.text("SELECT no_such_column WHERE :value = 'x'"), {"value": value})
    trace = "".join(traceback.format_exception(failed.value))
    assert "WHERE" in trace
    assert value not in trace


def test_time_is_the_databases_and_moves_within_a_transaction(db: Database) -> None:
    with db.begin() as session:
        times = [session.scalar(sa.select(db_now())) or 0.0 for _ in range(2)]
        session.execute(sa.select(sa.func.count()).select_from(SiteRow))
        reference = session.scalar(
            sa.text("SELECT strftime('%s')" if db.is_sqlite else "SELECT extract(epoch FROM now())")
        )
    assert abs(times[0] - float(reference)) < 5
    assert times[0] <= times[1]
    assert db.now() >= times[1]


def test_an_exception_rolls_back(db: Database) -> None:
    def half() -> None:
        with db.begin() as session:
            session.add(SiteRow(mode="enforce", data={}))
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    with db.read() as session:
        assert session.scalars(sa.select(SiteRow)).all() == []


def test_a_read_transaction_leaves_nothing(db: Database) -> None:
    with db.read() as session:
        session.execute(sa.insert(SiteRow).values(id=1, mode="enforce", data={}))
    with db.read() as session:
        assert session.scalars(sa.select(SiteRow)).all() == []


def test_a_broken_constraint_stays_an_integrity_error(db: Database) -> None:
    with db.begin() as session:
        session.add(SiteRow(id=1, mode="enforce", data={}))
    with pytest.raises(sa.exc.IntegrityError), db.begin() as session:
        session.add(SiteRow(id=1, mode="observe", data={}))


def test_sqlite_is_durable_and_checks_foreign_keys(sqlite_url: str) -> None:
    db = Database(sqlite_url)
    with db.read() as session:
        settings = {p: session.scalar(sa.text(f"PRAGMA {p}")) for p in ("journal_mode", "synchronous", "foreign_keys")}
    db.close()
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_two_sqlite_writers_never_read_what_the_other_overwrites(sqlite_url: str) -> None:
    db = Database(sqlite_url)
    with db.begin() as session:
        session.add(SiteRow(id=1, mode="enforce", data={"n": 0}))
    together = threading.Barrier(4)

    def add() -> None:
        together.wait()
        for _ in range(20):
            with db.begin() as session:
                row = session.get_one(SiteRow, 1)
                row.data = {"n": row.data["n"] + 1}

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with db.read() as session:
        assert session.get_one(SiteRow, 1).data == {"n": 80}
    db.close()


def test_a_locked_sqlite_file_is_busy_and_may_be_tried_again(sqlite_url: str) -> None:
    db = Database(sqlite_url, busy_timeout_s=0.1)
    other = sqlite3.connect(db.url.database or "", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="locked by another process") as busy, db.begin():
        pass
    assert busy.value.retryable
    other.close()
    with db.begin() as session:
        session.add(SiteRow(id=1, mode="enforce", data={}))
    db.close()


def test_a_full_disk_is_named_and_nothing_is_half_written(sqlite_url: str) -> None:
    db = Database(sqlite_url, pool_size=1)

    def fill() -> None:
        with db.begin() as session:
            pages = session.scalar(sa.text("PRAGMA page_count"))
            session.execute(sa.text(f"PRAGMA max_page_count = {pages}"))
            session.add(SiteRow(id=1, mode="enforce", data={"filler": "x" * 100_000}))

    with pytest.raises(StoreError, match="its disk is full"):
        fill()
    with db.read() as session:
        assert session.scalars(sa.select(SiteRow)).all() == []
    db.close()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "check path and permissions"),
        (b"these are not the pages you look for" * 100, "damaged or not one of ours"),
    ],
)
def test_a_file_that_is_no_database_is_named(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "none" / "fleet.sqlite"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    db = Database(f"sqlite:///{path}")
    with pytest.raises(StoreError, match=says):
        db.now()
    db.close()


def test_a_server_that_is_not_there_is_busy(tmp_path: Path) -> None:
    db = Database(f"postgresql://fleet@/fleet?host={tmp_path}")
    with pytest.raises(StoreBusy, match="does not answer"):
        db.now()


@pytest.mark.real
def test_a_connection_that_breaks_in_a_transaction_is_busy_and_the_next_works(
    postgres_url: str, postgresql_url: str
) -> None:
    db = Database(postgresql_url)

    def broken() -> None:
        with db.begin() as session:
            pid = session.scalar(sa.text("SELECT pg_backend_pid()"))
            with psycopg.connect(postgres_url, autocommit=True) as admin:
                admin.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            session.add(SiteRow(id=1, mode="enforce", data={}))

    with pytest.raises(StoreBusy, match="connection to the database broke"):
        broken()
    with db.read() as session:
        assert session.scalars(sa.select(SiteRow)).all() == []
    db.close()


@pytest.mark.real
def test_a_deadlock_may_be_tried_again(postgresql_url: str) -> None:
    db = Database(postgresql_url)
    with db.begin() as session:
        session.add_all([SiteRow(id=n, mode="enforce", data={}) for n in (1, 2)])
    together, outcome = threading.Barrier(2), []

    def cross(first: int, second: int) -> None:
        try:
            with db.begin() as session:
                session.execute(sa.update(SiteRow).where(SiteRow.id == first).values(mode="observe"))
                together.wait()
                session.execute(sa.update(SiteRow).where(SiteRow.id == second).values(mode="observe"))
            outcome.append("done")
        except StoreBusy:
            outcome.append("busy")

    threads = [threading.Thread(target=cross, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome) == ["busy", "done"]
    db.close()
