"""A small workflow and the strings that tests pull on its rows."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from fleet.engine.workflow import Next, Phase, Run, Work, Workflow, open_run
from fleet.store.database import Database
from fleet.store.tables import RunRow

LEASE_S = 30.0


def unused(work: Work) -> Next:
    raise AssertionError(f"{work.run.phase} was not to be handled")


def give_up(work: Work, error: Exception) -> Next:
    return Next.done(f"gave up: {error}")


JOB = Workflow(
    "job",
    phases={
        "wait": Phase(unused, gate=True),
        "work": Phase(unused),
        "tidy": Phase(unused, abortable=False),
    },
    abort=unused,
    give_up=give_up,
)
WORKFLOWS: Mapping[str, Workflow] = {"job": JOB}
ABORTABLE = ["wait", "work"]


def add(db: Database, subject: str, phase: str = "work", kind: str = "job", **values: Any) -> int:
    """Open a run; `values` are columns to set on its row at once, `due` seconds from now, `rack`, `power_feed`, `data`."""
    opened = {key: values.pop(key) for key in ("rack", "power_feed", "data") if key in values}
    after_s = values.pop("due", 0.0)
    with db.begin() as session:
        run = open_run(session, kind, phase, subject, after_s=after_s, why="asked for", **opened)
        if values:
            session.execute(sa.update(RunRow).where(RunRow.id == run).values(**values))
    return run


def row(db: Database, run: int | Run) -> RunRow:
    with db.read() as session:
        return session.get_one(RunRow, run.id if isinstance(run, Run) else run)


def change(db: Database, run: int | Run, **values: Any) -> None:
    """What time, a crash or another worker would do to a row."""
    with db.begin() as session:
        session.execute(
            sa.update(RunRow).where(RunRow.id == (run.id if isinstance(run, Run) else run)).values(**values)
        )
