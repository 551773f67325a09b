"""Retention: what has had its time goes, what an open ticket names stays, and a crash between two steps loses nothing."""

from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from fleet.core.errors import EvidenceFull
from fleet.core.ids import new_id
from fleet.engine.worker import Worker
from fleet.store import attention, tickets
from fleet.store.database import Database, db_now
from fleet.store.evidence import EvidenceFolder
from fleet.store.tables import AttentionRow, RunRow, TicketRow, ValidationRow
from fleet.workflows import retention
from fleet.workflows.world import Policy, World
from tests.unit.workflows.case import Case
from tests.unit.workflows.hosts import Hosts, world
from tests.unit.workflows.test_keeping import Refusing

DAY_S = 86400.0


def turn(db: Database, outside: World) -> None:
    """One round."""
    worker = Worker(db, [retention.workflow(outside)], threads=1)
    with db.begin() as session:
        retention.ensure(session)
        session.execute(sa.update(RunRow).where(RunRow.kind == "retention").values(due_at=0.0))
    worker.step()


def ended(db: Database, folder: Path, verdict: str, days_ago: float) -> str:
    """A validation with one raw output that ended then."""
    Case(db, folder)
    with db.begin() as session:
        row = session.scalars(sa.select(ValidationRow)).one()
        row.verdict, row.evidence_bytes = verdict, 3
        row.ended_at = (session.scalar(sa.select(db_now())) or 0.0) - days_ago * DAY_S
        session.execute(sa.update(RunRow).values(ended_at=row.ended_at))
        EvidenceFolder(folder).put(row.id, "nccl.1", "stdout", b"abc")
        return row.id


def ticket(db: Database, validation: str) -> None:
    with db.begin() as session:
        fields = {"title": "t", "body": "b", "checks": ["nccl"], "by": "test"}
        tickets.file(session, machine="m1", cause="nccl", validation=validation, **fields)  # type: ignore[arg-type]


def is_dropped(db: Database) -> bool:
    with db.read() as session:
        return session.scalars(sa.select(ValidationRow.evidence_dropped_at)).one() is not None


def test_raw_outputs_go_when_their_verdict_has_had_its_days(db: Database, tmp_path: Path) -> None:
    id_, store = ended(db, tmp_path, "passed", 91.0), EvidenceFolder(tmp_path)
    turn(db, world(db, Hosts(), tmp_path))
    assert is_dropped(db)
    assert store.validations("", 10) == []
    assert not (tmp_path / id_).exists()


def test_a_failed_ones_stay_longer_and_an_open_tickets_until_it_is_closed(db: Database, tmp_path: Path) -> None:
    id_ = ended(db, tmp_path, "failed", 700.0)
    turn(db, world(db, Hosts(), tmp_path))
    assert not is_dropped(db)
    ticket(db, id_)
    brief = world(db, Hosts(), tmp_path, Policy(keep_days={"failed": 1.0}))
    turn(db, brief)
    assert not is_dropped(db)
    with db.begin() as session:
        session.execute(sa.update(TicketRow).values(closed_at=db_now()))
    turn(db, brief)
    assert is_dropped(db)


def test_files_that_a_crash_left_after_the_mark_are_collected(db: Database, tmp_path: Path) -> None:
    id_ = ended(db, tmp_path, "passed", 1.0)
    with db.begin() as session:
        session.execute(sa.update(ValidationRow).values(evidence_dropped_at=db_now()))
    turn(db, world(db, Hosts(), tmp_path))
    assert not (tmp_path / id_).exists()


def test_what_no_record_names_stays_as_long_as_the_longest_retention_and_foreign_names_for_ever(
    db: Database, tmp_path: Path
) -> None:
    store, fresh = EvidenceFolder(tmp_path), new_id("val")
    for id_ in (fresh, "val-0000000001-aaaaaa", "backup"):
        store.put(id_, "nccl.1", "stdout", b"abc")
    turn(db, world(db, Hosts(), tmp_path))
    assert store.validations("", 10) == ["backup", fresh]


def test_a_store_that_refuses_is_told_until_it_takes_evidence_again(db: Database, tmp_path: Path) -> None:
    store = Refusing(EvidenceFolder(tmp_path), EvidenceFull("no space"))
    outside = replace(world(db, Hosts(), tmp_path), evidence=store)
    turn(db, outside)
    with db.read() as session:
        assert "no space" in session.scalars(sa.select(AttentionRow.reason)).one()
    store.error = None
    turn(db, outside)
    with db.read() as session:
        assert attention.open_subjects(session, "evidence") == []


def test_many_are_dropped_a_few_at_a_time(db: Database, tmp_path: Path) -> None:
    store = EvidenceFolder(tmp_path)
    for number in range(12):
        store.put(f"val-000000000{number % 10}-aaaa{number:02}", "nccl.1", "stdout", b"abc")
    turn(db, world(db, Hosts(), tmp_path))
    assert store.validations("", 20) == []
