"""A look at one host that a person asked for: `check` tries every prerequisite of a validation, `discover` proposes the
machine's record. A run of the engine, since only workers hold SSH keys. It changes nothing on the host but for the test
image's digest, which is kept there once it has been read (scripts/image.sh).

look -> image (only `check`, and only when the host could be asked)"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import FleetError
from fleet.core.ids import new_id
from fleet.core.model import Machine
from fleet.engine.workflow import Next, Phase, Work, Workflow, open_run
from fleet.hypervisor.base import ImageView
from fleet.hypervisor.inspector import Inspector
from fleet.store import audit, inspections, machines
from fleet.store.audit import By
from fleet.store.database import db_now
from fleet.store.tables import InspectionRow
from fleet.workflows import discovery
from fleet.workflows.playbook import Playbook
from fleet.workflows.prerequisites import files, survey
from fleet.workflows.prerequisites.row import Status
from fleet.workflows.world import World

KIND = "inspection"
LOOK, IMAGE = "look", "image"
_TO_READ = ("tools", "state directory")
"""Rows without which the image cannot be read on the host."""
_POLL_S = 0.3
IMAGE_S = 900.0
"""How long a host may read its test image: tens of gigabytes from a disk."""


class Inspection(StrEnum):
    CHECK = "check"
    DISCOVER = "discover"


class Outcome(StrEnum):
    MET = "met"
    GAPS = "gaps"
    PROPOSED = "proposed"
    UNREACHED = "unreached"  # no login on the host: what is said is about the way there
    BROKEN = "broken"  # a fault of ours, see `result.error`


def open_inspection(session: Session, machine: Machine, kind: Inspection, by: By) -> str:
    """Returns its id. Raises IntegrityError while one is open on the machine."""
    id_ = new_id("insp")
    run = open_run(session, KIND, LOOK, machine.name, ref=id_, why=f"{kind} asked for by {by.actor}")
    session.add(
        InspectionRow(
            id=id_,
            run=run,
            machine=machine.name,
            kind=kind,
            requested_by=by.actor,
            result={},
            created_at=session.scalar(sa.select(db_now())) or 0.0,
        )
    )
    audit.write(session, by, "machine.inspect", machine=machine.name, object_=id_, detail={"kind": kind})
    return id_


def workflow(world: World, inspector: Inspector) -> Workflow:
    def look(work: Work) -> Next:
        with world.db.read() as session:
            machine = machines.get(session, work.run.subject)
            kind = inspections.get(session, _id(work)).kind
        if kind == Inspection.DISCOVER:
            result, reached = discovery.discover(world, inspector, work, machine)
            return _ended(work, Outcome.PROPOSED if reached else Outcome.UNREACHED, result)
        return _check(world, inspector, work, machine)

    def image(work: Work) -> Next:
        return _image(world, inspector, work)

    def abort(work: Work) -> Next:
        return _ended(work, Outcome.BROKEN, {"error": work.run.abort_reason})

    def give_up(work: Work, error: Exception) -> Next:
        return _ended(work, Outcome.BROKEN, {"error": f"{type(error).__name__}: {error}"})

    phases = {LOOK: Phase(look, max_attempts=2), IMAGE: Phase(image, max_attempts=2)}
    return Workflow(KIND, phases, abort=abort, give_up=give_up)


def _check(world: World, inspector: Inspector, work: Work, machine: Machine) -> Next:
    playbook = Playbook.load(world.library, world.policy.default_plan, machine.sku)
    rows, reached = survey.survey(world, inspector, work, machine, playbook)
    told = [row.dump() for row in rows]
    in_the_way = [row.name for row in rows if row.name in _TO_READ and row.status is not Status.MET]
    if not in_the_way:
        return Next(IMAGE, "the host is asked for the digest of its test image", data={"rows": told})
    last = files.not_read(f"{' and '.join(in_the_way)} in its way" if reached else "the host is not reached")
    return _ended(work, Outcome.GAPS if reached else Outcome.UNREACHED, {"rows": [*told, last.dump()]})


def _image(world: World, inspector: Inspector, work: Work) -> Next:
    with world.db.read() as session:
        machine = machines.get(session, work.run.subject)
    seen: ImageView | str
    try:
        seen = world.hypervisor.read_image(machine, Deadline.after(world.policy.call_deadline_s))
    except FleetError as exc:
        seen = str(exc)
    if isinstance(seen, ImageView) and seen.reading and work.run.in_phase_s < IMAGE_S:
        return Next(IMAGE, "the host is reading its test image", _POLL_S)
    stated = str(world.image.get("image_digest") or "")
    rows = [*work.run.data["rows"], files.digest(inspector.site.image, stated, seen).dump()]
    all_met = all(row["status"] == Status.MET for row in rows)
    return _ended(work, Outcome.MET if all_met else Outcome.GAPS, {"rows": rows})


def _ended(work: Work, outcome: str, result: Mapping[str, Any]) -> Next:
    return Next.done(f"the answer is there: {outcome}", within=_finish(_id(work), outcome, result))


def _finish(id_: str, outcome: str, result: Mapping[str, Any]) -> Callable[[Session], None]:
    return lambda session: inspections.finish(session, id_, outcome, result)


def _id(work: Work) -> str:
    assert work.run.ref is not None
    return work.run.ref
