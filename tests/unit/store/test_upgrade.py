"""Migrations on both databases: from nothing, from the previous schema with rows in it, beside others, and refused."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from fleet.core.errors import StoreError
from fleet.store import upgrade as upgrading
from fleet.store.database import Database
from fleet.store.tables import Base, MachineRow, MeasurementRow, ValidationRow
from fleet.store.upgrade import check, upgrade


@pytest.fixture
def empty(empty_database_url: str):
    database = Database(empty_database_url)
    yield database
    database.close()


def at_revision(db: Database, revision: str) -> None:
    config = upgrading._config()
    with db.engine.connect().execution_options(fleet_immediate=True) as connection, connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def version(db: Database) -> str | None:
    with db.read() as session:
        return session.scalar(sa.text("SELECT version_num FROM alembic_version"))


def test_head_is_what_the_tables_say(empty: Database) -> None:
    upgrade(empty)
    with empty.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_upgrade_twice_changes_nothing(empty: Database) -> None:
    upgrade(empty)
    before = version(empty)
    upgrade(empty)
    check(empty)
    assert version(empty) == before


def test_foreign_keys_hold_after_an_upgrade(empty: Database) -> None:
    upgrade(empty)
    with pytest.raises(sa.exc.IntegrityError), empty.begin() as session:
        session.execute(
            sa.text("INSERT INTO instance (machine, id, kind, since) VALUES ('nowhere', 'vm', 'tenant', 1)")
        )


OLD_ROWS = (
    "INSERT INTO site (id, mode, data) VALUES (1, 'enforce', '{}')",
    """INSERT INTO machine (name, sku, state, version, state_since, state_why, ssh, slots, guest_address, guest_port,
       capacity, vacated_because, created_at)
       VALUES ('m1', 's', 'vacated', 3, 1.5, 'why', '{}', '[]', '10.0.0.2', 22, 1, '{"cause": "migrate"}', 1.25)""",
    """INSERT INTO run (id, kind, subject, phase, phase_since, why, due_at, epoch, lease_until, attempts, data,
       holds_budget, created_at) VALUES (7, 'validation', 'm1', 'place', 1.5, '', 2.5, 4, 0, 0, '{"a": 1}', true, 1.5)""",
    """INSERT INTO validation (id, run, machine, plan, "trigger", requested_by, prior_state, created_at, playbook, image,
       phases, progress, inventory) VALUES ('val-1', 7, 'm1', 'standard', 'manual', 'me', 'vacated', 1.5, '{}', '{}',
       '[]', '{}', '{}')""",
    """INSERT INTO measurement (id, validation, check_name, name, ended, truncated, files)
       VALUES (1, 'val-1', 'nccl', 'nccl.1', 'exited', false, '{}')""",
)


@pytest.mark.parametrize("mode", ["enforce", None])
def test_rows_of_the_previous_schema_are_kept_and_filled_in(empty: Database, mode: str | None) -> None:
    at_revision(empty, "0001")
    with empty.begin() as session:
        for statement in OLD_ROWS if mode else OLD_ROWS[1:]:
            session.execute(
                sa.text(statement.replace("true", "1").replace("false", "0") if empty.is_sqlite else statement)
            )
    upgrade(empty)
    with empty.read() as session:
        validation = session.get_one(ValidationRow, "val-1")
        assert (validation.site_mode, validation.run, validation.playbook) == (mode or "observe", 7, {})
        machine = session.get_one(MachineRow, "m1")
        assert (machine.version, machine.handed_over_at, machine.vacated_because) == (3, None, {"cause": "migrate"})
        assert session.scalar(sa.select(MeasurementRow.validation)) == "val-1"


def test_a_newer_database_is_refused_and_left_alone(empty: Database) -> None:
    upgrade(empty)
    with empty.begin() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for act in (upgrade, check):
        with pytest.raises(StoreError, match=r"newer than this version: its schema is 9999.*Install the version"):
            act(empty)
    assert version(empty) == "9999"


def test_a_foreign_database_is_refused_and_left_alone(empty: Database) -> None:
    with empty.begin() as session:
        session.execute(sa.text("CREATE TABLE invoices (id INTEGER)"))
    with pytest.raises(StoreError, match=r"tables of something else \(invoices\)"):
        upgrade(empty)
    with empty.read() as session:
        assert sa.inspect(session.connection()).get_table_names() == ["invoices"]


def test_check_says_what_an_old_or_empty_database_needs(empty: Database) -> None:
    with pytest.raises(StoreError, match="is empty, this version needs schema"):
        check(empty)
    at_revision(empty, "0001")
    with pytest.raises(StoreError, match=r"has schema 0001.*start `fleet serve`"):
        check(empty)


def test_many_processes_starting_at_once_migrate_once(empty: Database) -> None:
    crowd = 6
    together = threading.Barrier(crowd)

    def start() -> str | None:
        database = Database(str(empty.url.render_as_string(hide_password=False)))
        together.wait()
        upgrade(database)
        seen = version(database)
        database.close()
        return seen

    with ThreadPoolExecutor(crowd) as pool:
        seen = [task.result() for task in [pool.submit(start) for _ in range(crowd)]]
    assert set(seen) == {version(empty)}


def test_a_failed_upgrade_changes_nothing(empty: Database) -> None:
    at_revision(empty, "0001")
    with empty.begin() as session:
        session.execute(sa.text("CREATE TABLE proven (id INTEGER)"))  # in the way of 0002
    with pytest.raises(StoreError):
        upgrade(empty)
    assert version(empty) == "0001"
    with empty.read() as session:
        columns = {column["name"] for column in sa.inspect(session.connection()).get_columns("validation")}
    assert "site_mode" not in columns
