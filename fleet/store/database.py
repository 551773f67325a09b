"""Opening the database: SQLite for one machine, PostgreSQL for many processes, the same code on both."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session, sessionmaker

from fleet.core.clock import Deadline
from fleet.core.errors import InvalidInput, StoreBusy, StoreError, StoreUnconfirmed
from fleet.store import postgresql

_SECRET_OPTIONS = frozenset({"password", "sslpassword"})  # of libpq, in the URL's query


class db_now(sa.sql.functions.FunctionElement[float]):
    """The database's clock, seconds since the epoch with a fraction. Every time on a row is this one, so that two
    workers with different clocks agree about leases and deadlines."""

    type = sa.Double()
    inherit_cache = True
    name = "db_now"


@compiles(db_now, "sqlite")
def _sqlite_now(element: db_now, compiler: Any, **kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(db_now, "postgresql")
def _postgresql_now(element: db_now, compiler: Any, **kw: Any) -> str:
    # clock_timestamp() moves inside a transaction, now() would not: a lease is counted from the moment it is written
    return "extract(epoch from clock_timestamp())::double precision"


class Database:
    """An engine and its sessions. `begin()` is a write transaction, `read()` one that promises not to write."""

    def __init__(
        self,
        url: str | URL,
        pool_size: int = 20,
        busy_timeout_s: float = 30.0,
        password: Callable[[], str] | None = None,
    ) -> None:
        """`busy_timeout_s`: how long SQLite waits for another writer before it raises StoreBusy. `password` is asked at each
        connection to PostgreSQL. Raises InvalidInput."""
        self.url = _url(url)
        if password is not None and self.url.drivername == "sqlite":
            raise InvalidInput("database_password_ref: SQLite has no password", "database_password_ref")
        self.engine = _engine(self.url, pool_size, busy_timeout_s, password)
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def begin(self) -> Iterator[Session]:
        """A transaction that writes. On SQLite it takes the write lock first (BEGIN IMMEDIATE), so that what it reads
        stays true until it commits. Raises StoreBusy, StoreError; StoreUnconfirmed when the answer to the commit was lost."""
        with translated(), self._sessions() as session:
            if self.is_sqlite:
                session.connection(execution_options={"fleet_immediate": True})
            yield session
            session.flush()  # an exception leaves by the session's own exit, which rolls back
            try:
                session.commit()
            except DBAPIError as exc:
                if exc.connection_invalidated:
                    raise StoreUnconfirmed(f"the connection to the database broke at the commit: {exc.orig}") from exc
                raise

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only reads. It ends with the session, which rolls back; rows that were read stay readable."""
        with translated(), self._sessions() as session:
            yield session

    def now(self) -> float:
        with self.read() as session:
            return float(session.scalar(sa.select(db_now())) or 0.0)

    def close(self) -> None:
        self.engine.dispose()


def _url(text: str | URL) -> URL:
    try:
        url = make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: a port that is no number
        hidden = re.sub(r":[^:@]*@", ":***@", str(text))
        raise InvalidInput(
            f"database: {hidden!r} is not a URL; use sqlite:///PATH or postgresql://USER@HOST/NAME", "database"
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "postgresql+psycopg"):
        raise InvalidInput(f"database: {url.drivername} is not supported; use sqlite or postgresql", "database")
    if url.drivername == "sqlite" and url.database in (None, "", ":memory:"):
        raise InvalidInput("database: SQLite needs a file, memory would lose the fleet: sqlite:///PATH", "database")
    if url.password is not None or _SECRET_OPTIONS & url.query.keys():
        raise InvalidInput(
            "database: the URL has a password in it, which others can see; leave it out, and name where it is by "
            "database_password_ref: file:PATH",
            "database",
        )
    return url


def _engine(url: URL, pool_size: int, busy_timeout_s: float, password: Callable[[], str] | None) -> sa.Engine:
    if url.drivername != "sqlite":
        return postgresql.engine(url, pool_size, password)
    engine = sa.create_engine(
        url,
        pool_size=pool_size,
        max_overflow=10,
        connect_args={"timeout": busy_timeout_s},
        hide_parameters=True,  # an error shows its statement; the values may be a test VM's keys
    )

    @sa.event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, so that a read can start the transaction too
        _switch_to_wal(connection, Deadline.after(busy_timeout_s))
        for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):  # no copy of a key in a free page
            connection.execute("PRAGMA " + pragma)

    @sa.event.listens_for(engine, "begin")
    def _(connection: sa.Connection) -> None:
        immediate = connection.get_execution_options().get("fleet_immediate", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def _switch_to_wal(connection: sqlite3.Connection, deadline: Deadline) -> None:
    """The first to open a new file switches it; SQLite tells the others "locked" at once, without its own waiting."""
    for left_s in deadline.poll(0.02):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            if "is locked" not in str(exc) or left_s == 0.0:
                raise
        else:
            return


@contextmanager
def translated() -> Iterator[None]:
    """Turns what the drivers raise into StoreBusy and StoreError; a broken constraint stays an IntegrityError."""
    try:
        yield
    except sa.exc.TimeoutError as exc:
        raise StoreBusy("all connections to the database are in use") from exc
    except DBAPIError as exc:
        error = _store_error(exc, str(exc.orig), getattr(exc.orig, "sqlstate", None) or "")
        if error is None:
            raise
        raise error from exc


def _store_error(exc: DBAPIError, text: str, sqlstate: str) -> StoreError | None:
    if "is locked" in text or "busy" in text or sqlstate == "55P03":
        return StoreBusy(f"the database is locked by another process: {text}")
    if sqlstate.startswith("40"):  # deadlock, serialization: the same transaction may succeed now
        return StoreBusy(f"the database gave way to another transaction: {text}")
    if sqlstate == "25006":
        return StoreBusy(f"the database has become a standby, or is read-only: {text}")
    if exc.connection_invalidated or sqlstate[:2] in ("08", "57") or sqlstate == "53300":
        return StoreBusy(f"the connection to the database broke: {text}")
    if "disk is full" in text or sqlstate == "53100":
        return StoreError(f"the database cannot grow, its disk is full: {text}")
    if "unable to open" in text:
        return StoreError(f"the database file cannot be opened, check path and permissions: {text}")
    if "not a database" in text or "malformed" in text:
        return StoreError(f"the database file is damaged or not one of ours, restore a backup or name another: {text}")
    if not isinstance(exc, OperationalError):
        return None
    if "authentication failed" in text or "no password supplied" in text:
        return StoreBusy(f"the database refused the login, check database_password_ref: {text}")
    if "connect" in text or "resolve host" in text:
        return StoreBusy(f"the database does not answer: {text}")
    return StoreError(f"the database refused: {text}")
