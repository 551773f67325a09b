"""Connections to a PostgreSQL server, none of which waits for ever: what to ask of a server that restarts, fails over, hangs, or
has a client that was frozen. Why these limits and no others: ``docs/decisions/0013-many-processes.md``."""

from collections.abc import Callable
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import errors
from psycopg.abc import RV, PQGen
from sqlalchemy.engine import URL

from fleet.core.errors import InvalidInput, StoreBusy

ANSWER_S = 8.0
"""No statement takes this long, a commit neither: a server that says nothing for so long is hung or gone. Two of them are shorter
than an engine lease (20 s), so that a guard that had to connect anew is still about the present."""

_CONNECT_S = 5
_LOCK_S = 6  # whoever holds a row for longer is frozen; below ANSWER_S, so that the server says which lock it was
_IDLE_S = 15  # a client frozen in a transaction loses its row locks before its lease has expired

_SESSION = {
    "lock_timeout": f"{_LOCK_S}s",
    "idle_in_transaction_session_timeout": f"{_IDLE_S}s",
    "client_connection_check_interval": "2s",  # a statement whose client has gone is not finished; PostgreSQL 14
}
_UNBOUNDED = ("lock_timeout", "idle_in_transaction_session_timeout")

_TCP = {
    "connect_timeout": _CONNECT_S,
    "tcp_user_timeout": int(ANSWER_S * 1000),
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "application_name": "fleet",
}

_READ_ONLY = "25006"  # read_only_sql_transaction: what used to be the primary has become a standby


class _Impatient(psycopg.Connection[Any]):
    """Gives up on a server that takes the bytes and never answers, which no socket option and no server setting can see."""

    answer_s: float | None = ANSWER_S

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        try:
            return super().wait(gen, interval, self.answer_s if timeout is None else timeout)
        except errors._WaitTimeout as exc:
            self.close()  # its answer may still come, to nobody
            raise psycopg.OperationalError(f"the server has not answered for {self.answer_s} s") from exc


def engine(url: URL, pool_size: int, password: Callable[[], str] | None = None) -> sa.Engine:
    """Connections are looked at before use, so that those which a restart has ended are not noticed by anybody else.
    `password` is asked at each connection: one that was changed needs no restart."""
    made = sa.create_engine(
        url,
        pool_size=pool_size,
        max_overflow=10,
        pool_timeout=ANSWER_S,
        pool_pre_ping=True,
        hide_parameters=True,  # an error shows its statement; the values may be a test VM's keys
    )

    @sa.event.listens_for(made, "do_connect")
    def _(_dialect: Any, _record: Any, cargs: list[Any], cparams: dict[str, Any]) -> Any:
        ours = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
        options = f"{ours} {cparams.get('options', '')}".strip()  # the URL's come later and so win
        secret = {} if password is None else {"password": _told(password)}
        try:
            return _Impatient.connect(*cargs, **{**_TCP, **cparams, "options": options, **secret})
        except psycopg.ProgrammingError as exc:  # an option that libpq does not know
            raise InvalidInput(f"database: {exc}", "database") from exc

    @sa.event.listens_for(made, "handle_error")
    def _(context: sa.engine.ExceptionContext) -> None:
        if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
            context.is_disconnect = True  # it would answer reads, and refuse writes, for ever: all such connections go

    return made


def _told(password: Callable[[], str]) -> str:
    try:
        return password()
    except InvalidInput as exc:  # whoever asks something of the service has done nothing wrong
        raise StoreBusy(f"no connection to the database: {exc}") from exc


def take_time(connection: sa.Connection) -> None:
    """For an upgrade: statements of any length on this connection, which the pool does not get back."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, _Impatient)
    connection.detach()
    driver.answer_s = None
    with driver.transaction():
        for name in _UNBOUNDED:
            driver.execute(f"SET {name} = 0")
