"""The run of an inspection: it ends with an answer whatever the host, the record or a worker does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.errors import CommandNotFound
from fleet.core.model import Machine
from fleet.engine.worker import Worker
from fleet.hypervisor.base import ImageView
from fleet.hypervisor.inspector import Inspector
from fleet.hypervisor.site import Flavor, ImageSpec, Site
from fleet.remote.ssh import SshPool
from fleet.store import inspections, machines
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import AuditRow, RunRow
from fleet.workflows import inspection
from fleet.workflows.inspection import Inspection
from fleet.workflows.prerequisites import files
from fleet.workflows.prerequisites.row import Status
from tests.unit.workflows.hosts import MACHINE, Hosts, world

BY = By("anna", "192.0.2.9")
SITE = Site(ImageSpec("/images/test.qcow2", "qcow2"), Flavor(8, 4096))
AWAY = replace(MACHINE, ssh=replace(MACHINE.ssh, port=1, host_key=""))


def inspected(db: Database, folder: Path, machine: Machine, kind: Inspection, site: Site = SITE) -> tuple[Any, Any]:
    pool = SshPool()
    worker = Worker(db, [inspection.workflow(world(db, Hosts(), folder), Inspector(pool, site))])
    with db.begin() as session:
        machines.add(session, machine, BY)
        id_ = inspection.open_inspection(session, machine, kind, BY)
    for _ in range(10):
        with db.begin() as session:
            session.execute(sa.update(RunRow).values(due_at=0.0))
        if not worker.step():
            break
    pool.close()
    with db.read() as session:
        row = inspections.get(session, id_)
        assert row.ended_at is not None
        return row.outcome, row.result


def test_a_host_that_is_away_is_an_answer(db: Database, tmp_path: Path) -> None:
    outcome, result = inspected(db, tmp_path, AWAY, Inspection.CHECK)
    rows = {row["name"]: row for row in result["rows"]}
    assert outcome == "unreached"
    assert "Connection refused" in rows["ssh"]["seen"]
    assert rows["image digest"]["status"] == rows["tools"]["status"] == "not tried"
    assert all(row["mend"] for row in result["rows"] if row["status"] == "missing")


def test_a_record_without_an_address_is_no_reason_to_connect(db: Database, tmp_path: Path) -> None:
    nowhere = replace(MACHINE, ssh=replace(MACHINE.ssh, address=""))
    outcome, result = inspected(db, tmp_path, nowhere, Inspection.DISCOVER)
    assert (outcome, "no SSH address is recorded for m1" in result["error"]) == ("unreached", True)


def test_discovering_a_host_that_is_away_says_what_to_do(db: Database, tmp_path: Path) -> None:
    outcome, result = inspected(db, tmp_path, AWAY, Inspection.DISCOVER)
    assert outcome == "unreached"
    assert "Connection refused. To mend it: start sshd" in result["error"]


def test_a_fault_of_ours_ends_it_too(db: Database, tmp_path: Path) -> None:
    class Broken(Inspector):
        def knock(self, machine: Machine, deadline: Any) -> Any:
            raise ZeroDivisionError("a fault")

    worker = Worker(db, [inspection.workflow(world(db, Hosts(), tmp_path), Broken(SshPool(), SITE))])
    with db.begin() as session:
        machines.add(session, MACHINE, BY)
        id_ = inspection.open_inspection(session, MACHINE, Inspection.CHECK, BY)
    for _ in range(2):
        with db.begin() as session:
            session.execute(sa.update(RunRow).values(due_at=0.0))
        worker.step()
    with db.read() as session:
        row = inspections.get(session, id_)
        assert (row.outcome, row.result) == ("broken", {"error": "ZeroDivisionError: a fault"})
        entry = session.scalars(sa.select(AuditRow).where(AuditRow.action == "machine.inspect")).one()
        assert (entry.actor, entry.source, entry.machine, entry.object) == ("anna", "192.0.2.9", "m1", id_)


def test_a_template_that_does_not_render_hides_no_row(db: Database, tmp_path: Path) -> None:
    (tmp_path / "domain.xml.j2").write_text("<domain>{{ nothing.there }}</domain>")
    _, result = inspected(db, tmp_path, AWAY, Inspection.CHECK, replace(SITE, template_dir=tmp_path))
    rows = {row["name"]: row for row in result["rows"]}
    assert "domain.xml.j2, line 1" in rows["domain template"]["seen"]
    assert rows["ssh"]["status"] == "missing"


@pytest.mark.parametrize(
    ("stated", "seen", "status"),
    [
        ("", ImageView({"image": "a" * 64}), Status.MET),
        ("a" * 64, ImageView({"image": "a" * 64}), Status.MET),
        ("b" * 64, ImageView({"image": "a" * 64}), Status.MISSING),
        ("b" * 64, ImageView(why="no such file"), Status.NOT_TRIED),
        ("b" * 64, ImageView(reading=True), Status.NOT_TRIED),
        ("b" * 64, str(CommandNotFound("sha256sum is not installed there")), Status.NOT_TRIED),
    ],
)
def test_a_digest_is_the_stated_one_only_when_it_was_read(stated: str, seen: ImageView | str, status: Status) -> None:
    assert files.digest(SITE.image, stated, seen).status is status
