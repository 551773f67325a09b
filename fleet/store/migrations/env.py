"""Alembic's hook: runs the revisions on the connection (and in the transaction) that `fleet.store.upgrade` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
