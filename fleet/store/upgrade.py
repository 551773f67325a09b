"""Bringing a database to the schema of this code. Safe when several processes start at once: one migrates, all go on."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from fleet.core.errors import StoreError
from fleet.store import postgresql
from fleet.store.database import Database, translated

_UPGRADE_LOCK = 0x75706772  # PostgreSQL's advisory lock around an upgrade; any number that only this code uses


def upgrade(db: Database) -> None:
    """Migrate to head, all revisions in one transaction. An empty database is set up; one that is at head is only read.

    Raises StoreError when the database is newer than this code or belongs to something else, StoreBusy when locked."""
    with db.read() as session:
        if _revision(session.connection()) == _head():
            return
    with _alone(db) as connection:
        if _revision(connection) != _head():  # another process may have been first
            config = _config()
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except sa.exc.ProgrammingError as exc:
                raise StoreError(f"the upgrade to schema {_head()} failed, nothing was changed: {exc.orig}") from exc


def check(db: Database) -> None:
    """Raises StoreError unless the schema is the one of this code. Writes nothing."""
    with db.read() as session:
        revision = _revision(session.connection())
    if revision != _head():
        found = "is empty" if revision is None else f"has schema {revision}"
        raise StoreError(
            f"the database {found}, this version needs schema {_head()}: start `fleet serve` or `fleet up` of this "
            "version once, it upgrades the database"
        )


@contextmanager
def _alone(db: Database) -> Iterator[sa.Connection]:
    """One transaction that no second upgrade runs beside."""
    with translated(), db.engine.connect() as connection:
        if not db.is_sqlite:
            postgresql.take_time(connection)
            with connection.begin():
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
                yield connection
            return
        # Changing a table copies and drops it, which foreign keys would forbid. They can only be switched off outside a
        # transaction, and the pool must not get such a connection back.
        connection.detach()
        connection.connection.cursor().execute("PRAGMA foreign_keys=OFF")
        immediate = connection.execution_options(fleet_immediate=True)
        with immediate.begin():
            yield immediate
            if broken := immediate.exec_driver_sql("PRAGMA foreign_key_check").all():
                raise StoreError(
                    f"the upgrade would leave rows without their parents, nothing was changed: {broken[:5]}"
                )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "fleet.store:migrations")
    config.set_main_option("path_separator", "os")
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _head() -> str:
    return str(_scripts().get_current_head())


def _revision(connection: sa.Connection) -> str | None:
    """The database's revision, None for an empty database. Raises StoreError for one that we may not touch."""
    heads = MigrationContext.configure(connection).get_current_heads()
    if not heads:
        if tables := sa.inspect(connection).get_table_names():
            raise StoreError(
                f"the database holds tables of something else ({', '.join(sorted(tables)[:5])}) and no schema version of "
                "this service: give it a database of its own"
            )
        return None
    known = {script.revision for script in _scripts().walk_revisions()}
    if unknown := [head for head in heads if head not in known]:
        raise StoreError(
            f"the database is newer than this version: its schema is {unknown[0]}, this version knows up to {_head()}. "
            "Install the version that wrote it, or restore the backup made before that upgrade"
        )
    return heads[0]
