"""What is asked of every connection to a PostgreSQL server."""

import threading

import psycopg
import pytest
import sqlalchemy as sa

from fleet.core.errors import StoreBusy
from fleet.store.database import Database
from fleet.store.postgresql import take_time
from fleet.store.tables import SiteRow

pytestmark = pytest.mark.real


@pytest.fixture
def database(postgresql_url: str) -> Database:
    return Database(postgresql_url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lock_timeout", "6s"),
        ("idle_in_transaction_session_timeout", "15s"),
        ("client_connection_check_interval", "2s"),
        ("statement_timeout", "0"),  # it would end the wait of a commit for its standby as if the standby had answered
    ],
)
def test_a_session_is_bounded_by_the_server_too(database: Database, name: str, value: str) -> None:
    with database.read() as session:
        assert session.scalar(sa.text(f"SHOW {name}")) == value


def test_options_of_the_url_come_on_top_of_ours(postgresql_url: str) -> None:
    database = Database(f"{postgresql_url}&options=-c%20search_path%3Dpg_catalog%20-c%20lock_timeout%3D3s")
    with database.read() as session:
        shown = [session.scalar(sa.text(f"SHOW {name}")) for name in ("search_path", "lock_timeout")]
        idle = session.scalar(sa.text("SHOW idle_in_transaction_session_timeout"))
    assert (shown, idle) == (["pg_catalog", "3s"], "15s")


def test_a_row_that_a_frozen_client_holds_is_busy_and_not_waited_for_without_end(
    database: Database, postgresql_url: str
) -> None:
    quick = Database(f"{postgresql_url}&options=-c%20lock_timeout%3D200ms")
    with database.begin() as session:
        session.add(SiteRow(id=1, mode="enforce", data={}))
    with psycopg.connect(postgresql_url) as frozen:
        frozen.execute("UPDATE site SET mode = 'observe'")
        with pytest.raises(StoreBusy, match="locked by another process"), quick.begin() as session:
            session.execute(sa.update(SiteRow).values(mode="enforce"))


def test_a_server_that_has_become_a_standby_is_busy_and_its_connections_are_not_used_again(
    database: Database, postgresql_url: str
) -> None:
    name = database.url.database
    with database.read() as session:
        session.execute(sa.text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
        session.commit()
    database.close()
    for _ in range(2):  # a connection that stayed would answer the reads between
        with pytest.raises(StoreBusy, match="become a standby"), database.begin() as session:
            session.add(SiteRow(id=1, mode="enforce", data={}))
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
    with database.begin() as session:
        session.add(SiteRow(id=1, mode="enforce", data={}))


def test_two_upgrades_wait_for_each_other_however_long_one_takes(postgresql_url: str) -> None:
    database = Database(f"{postgresql_url}&options=-c%20lock_timeout%3D100ms")
    got: list[int] = []

    def second() -> None:
        with database.engine.connect() as connection:
            take_time(connection)
            with connection.begin():
                got.append(connection.scalar(sa.text("SELECT count(*) FROM (SELECT pg_advisory_xact_lock(7)) AS x")))

    with psycopg.connect(postgresql_url) as first:
        first.execute("SELECT pg_advisory_xact_lock(7)")
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.4)
        assert thread.is_alive()
    thread.join()
    assert got == [1]
