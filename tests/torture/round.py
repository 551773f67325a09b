"""One round: machines are revalidated, a fifth is aborted, workers are killed and frozen; then the harm is counted."""

import random
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.engine.claim import request_abort
from fleet.engine.workflow import open_run
from fleet.store.database import Database
from fleet.store.tables import AuditRow, RunRow
from tests.torture import harm, job
from tests.torture.crowd import Crowd
from tests.torture.world import World

FREEZE_S = (1.5 * job.LEASE_S, 2.5 * job.LEASE_S)
PAUSE_S = 0.5  # between two disturbances


@dataclass(frozen=True)
class Report:
    harm: Counter[str]
    verdicts: Counter[str]
    kills: int
    freezes: int
    died: int  # workers that ended by themselves

    def __str__(self) -> str:
        harm = ", ".join(f"{kind} ({n}x)" for kind, n in self.harm.items()) or "none"
        verdicts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(self.verdicts.items()))
        return f"{verdicts}; {self.kills} kills, {self.freezes} freezes; harm: {harm}"


def play(
    db: Database, folder: Path, *, machines: int, workers: int, seed: int, guarded: bool = True, kills: float = 0.5
) -> Report:
    """`folder` must be empty; the database may hold earlier rounds. Of the disturbances a share of `kills` are
    kills, the others freezes. Takes 60 s and a second per machine at most."""
    rng = random.Random(seed)
    world = World(folder / "world")
    world.root.mkdir()
    url = db.url.render_as_string(hide_password=False)
    command = [
        sys.executable,
        "-m",
        "tests.torture.worker",
        url,
        str(world.root),
        "guarded" if guarded else "unguarded",
    ]
    runs = _open(db, machines)
    to_abort = rng.sample(sorted(runs), machines // 5)
    aborted: dict[str, bool] = {}
    crowd = Crowd(command, workers, rng, folder / "workers.log", FREEZE_S)
    try:
        for _ in Deadline.after(60 + machines).poll(PAUSE_S):
            crowd.disturb(kill=rng.random() < kills)
            if to_abort and rng.random() < 0.5:
                machine = to_abort.pop()
                with db.begin() as session:
                    aborted[machine] = request_abort(session, runs[machine], "torture", "tests", list(job.ABORTABLE))
            if _all_ended(db, runs):
                break
        crowd.settle(2 * job.BEFORE_ACT_S[1])
        died = crowd.dead()
    finally:
        crowd.close()
    records = [
        harm.Record(machine, world.history(machine), _verdicts(db, machine), aborted.get(machine), _rack(machine))
        for machine in runs
    ]
    verdicts = Counter(verdict for record in records for verdict in record.verdicts)
    found = harm.found(records, job.BUDGETS.total, job.BUDGETS.per_rack)
    return Report(found, verdicts, crowd.kills, crowd.freezes, died)


def _open(db: Database, machines: int) -> dict[str, int]:
    with db.begin() as session:
        first = session.scalar(sa.select(sa.func.count()).select_from(RunRow)) or 0
        names = [f"m{first + n:04d}" for n in range(machines)]
        return {name: open_run(session, job.KIND, job.FIRST, name, why="torture", rack=_rack(name)) for name in names}


def _rack(machine: str) -> str:
    return f"rack-{int(machine[1:]) % job.RACKS}"


def _all_ended(db: Database, runs: dict[str, int]) -> bool:
    with db.read() as session:
        left = sa.select(sa.func.count()).where(RunRow.id.in_(runs.values()), RunRow.ended_at.is_(None))
        return session.scalar(left) == 0


def _verdicts(db: Database, machine: str) -> tuple[str, ...]:
    with db.read() as session:
        return tuple(session.scalars(sa.select(AuditRow.action).where(AuditRow.machine == machine)))
