"""Every state, every phase of every workflow, every wait in the tables: none without a way out, none that nobody is told of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.core.states import NEXT, STABLE, State
from fleet.engine.worker import Worker
from fleet.hooks.base import Answer, Reply
from fleet.store.database import Database, db_now
from fleet.store.tables import AttentionRow, Base, RunRow, ValidationRow
from fleet.workflows import vacancy
from fleet.workflows.deadlines import GATES, PERPETUAL, PHASES, RULES, TELLS_ITSELF
from fleet.workflows.world import Policy
from tests.unit.workflows.all_workflows import all_workflows
from tests.unit.workflows.case import ALL, Case
from tests.unit.workflows.gone import Dead
from tests.unit.workflows.hosts import KEYS, Hosts, world
from tests.unit.workflows.lateness import LATE, add_machine, add_run, ago, told

UNSTABLE = [state for state in State if state not in STABLE]


@pytest.mark.parametrize("state", UNSTABLE)
def test_a_state_that_must_end_can_and_is_told_when_nothing_ends_it(db: Database, tmp_path: Path, state: State) -> None:
    assert {to for (was, _), to in NEXT.items() if was is state} & STABLE
    with db.begin() as session:
        add_machine(session, state)
    assert told(db, tmp_path) == [("stuck", "m1")]


@pytest.mark.parametrize("state", sorted(STABLE))
def test_a_stable_state_may_last(db: Database, tmp_path: Path, state: State) -> None:
    with db.begin() as session:
        add_machine(session, state)
    assert told(db, tmp_path) == []


def test_every_phase_of_every_workflow_is_in_the_table_and_nothing_else(db: Database, tmp_path: Path) -> None:
    flows = all_workflows(db, tmp_path)
    there = {(flow.kind, phase) for flow in flows for phase in flow.phases}
    perpetual = {of for of in there if of[0] in PERPETUAL}
    assert {flow.kind for flow in flows} >= PERPETUAL
    assert sorted(there - perpetual) == sorted([*PHASES, *GATES, *TELLS_ITSELF])


@pytest.mark.parametrize(("kind", "phase"), PHASES)
def test_a_run_that_stays_in_a_phase_is_told(db: Database, tmp_path: Path, kind: str, phase: str) -> None:
    limit_s = PHASES[kind, phase](world(db, Hosts(), tmp_path))
    with db.begin() as session:
        run = add_run(session, kind, phase, "m1", phase_since=ago(session, limit_s - 60.0))
    assert told(db, tmp_path) == []
    with db.begin() as session:
        session.execute(sa.update(RunRow).where(RunRow.id == run).values(phase_since=ago(session, limit_s + 1.0)))
    assert told(db, tmp_path) == [("overdue", f"{kind} m1")]


class Silent:
    """A hook that never says anything."""

    name, deadline_s = "wipe", 0.0

    def ask(self, question: Mapping[str, Any], key: str, deadline: Deadline) -> Answer:
        return Answer(Reply.NONE, "connection refused")


def phases_of_a_validation() -> list[str]:
    return [phase for kind, phase in [*GATES, *PHASES] if kind == "validation"]


@pytest.mark.parametrize("phase", phases_of_a_validation())
def test_from_every_phase_a_validation_ends_though_its_host_never_comes_back(
    db: Database, tmp_path: Path, phase: str
) -> None:
    policy = Policy(host_patience=2, teardown_deadline_s=0.0)
    case = Case(db, tmp_path, ALL, policy, (Silent(),), Dead())
    with db.begin() as session:
        placed = phase not in ("queued", "withdrawal", "preflight", "hooks")
        session.execute(sa.update(RunRow).values(phase=phase, phase_since=db_now() - 30.0, data={"placed": placed}))
        session.execute(sa.update(ValidationRow).values(secrets=KEYS if placed else sa.null()))
    case.until(None, turns=60)
    verdict, reason = case.verdict
    assert verdict == "aborted"
    assert reason
    assert case.state is State.VACATED
    assert case.told()


@pytest.mark.parametrize(("kind", "phase"), TELLS_ITSELF)
def test_a_phase_that_others_end_tells_of_itself(db: Database, tmp_path: Path, kind: str, phase: str) -> None:
    flows = {vacancy.KIND: vacancy.workflow(world(db, Dead(), tmp_path, Policy(departure_deadline_s=0.0)))}
    with db.begin() as session:
        add_machine(session, State.VACATED)
        add_run(session, kind, phase, due_at=0.0)
    assert Worker(db, [flows[kind]], threads=1).step()
    with db.read() as session:
        assert session.scalars(sa.select(AttentionRow.kind)).all() == [TELLS_ITSELF[kind, phase]]


WAITS = {
    "run.ended_at": "overdue",
    "inspection.ended_at": "overdue",
    "validation.ended_at": "stuck",  # open as long as its machine is validating
    "event.applied_at": "event waiting",
    "ticket.closed_at": "fixed",  # an open ticket is the hardware team's; a failed machine is stable
    "machine.hold": "hold",
    "site.paused": "pause",
    "notice.acknowledged_at": "notices",
}
"""Columns that are empty until something has happened, or full as long as something lasts, and the rule that tells."""

NO_WAITS = {
    "attention.resolved_at": "it is the telling itself",
    "approval.decided_at": "has a record of attention from its first moment, and expires by the watchdog's round",
    "machine.handed_over_at": "a fact of the past",
    "validation.evidence_dropped_at": "retention's note",
    "notice.delivered_at": "what was delivered and is not acknowledged waits on",
    "token.expires_at": "binds its owner",
    "token.revoked_at": "a person's act",
    "token.last_used_at": "a fact of the past",
}


def test_every_wait_in_the_tables_has_a_rule() -> None:
    ends = {
        f"{table.name}.{column.name}"
        for table in Base.metadata.sorted_tables
        for column in table.columns
        if column.nullable and (column.name.endswith("_at") or column.name in ("hold", "paused"))
    }
    measured = {"measurement.started_at"}
    assert sorted(ends - measured) == sorted({*WAITS, *NO_WAITS})
    assert set(WAITS.values()) <= {rule.kind for rule in RULES} == set(LATE)
