"""Validations: starting and ending them by hand, and everything that is on their record."""

from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import NotFound, Refused
from fleet.core.model import Trigger
from fleet.engine.claim import request_abort
from fleet.service.access import Actor, Permit
from fleet.service.body import Body, MachineName, PlanName, Sentence
from fleet.service.listing import Json, Window, listing, portion
from fleet.service.services import Services
from fleet.service.times import stamp, stamp_or_none
from fleet.service.writing import Answer
from fleet.store import audit, machines, validations
from fleet.store.page import page
from fleet.store.site import at
from fleet.store.tables import CheckRow, MeasurementRow, RunRow, ValidationRow
from fleet.workflows import begin
from fleet.workflows.playbook import Playbook

Standing = Literal["open", "passed", "failed", "aborted"]
"""What a list of validations can be narrowed to: the verdict, or that there is none yet."""


class NewValidation(Body):
    machine: MachineName
    plan: PlanName | None = None


class Abort(Body):
    reason: Sentence


def start(session: Session, permit: Permit, services: Services, order: NewValidation) -> Answer:
    """Raises Refused on a held, allocated, validating or retired machine: who has it, since when and why."""
    machine = machines.get(session, order.machine)
    begin.refuse_unless_free(session, machine, automatic=False)
    playbook = Playbook.load(services.library, order.plan or services.default_plan, machine.sku)
    by, image = permit.actor.by, services.image
    id_ = begin.start_validation(session, machine, playbook, Trigger.MANUAL, by, image=image)
    return Answer.accepted(show(session, id_))


def abort(session: Session, permit: Permit, id_: str, order: Abort) -> Answer:
    row = validations.get(session, id_)
    request_end(session, row, order.reason, permit.actor)
    return Answer.accepted(show(session, id_))


def request_end(session: Session, row: ValidationRow, reason: str, actor: Actor) -> None:
    """Ask for the end of an open validation. Raises Refused where it is over, past the point, or was asked already."""
    if row.verdict is not None:
        raise Refused(f"validation {row.id} has ended ({row.verdict}): {row.reason}")
    run = validations.run_of(session, row)
    if not request_abort(session, run.id, reason, actor.name, list(begin.ABORTABLE)):
        if run.abort_reason is not None:
            raise Refused(f"validation {row.id} is being aborted already, by {run.abort_by}: {run.abort_reason}")
        raise Refused(f"validation {row.id} is past the point of an abort: {run.phase} since {at(run.phase_since)}")
    audit.write(session, actor.by, "validation.abort", machine=row.machine, object_=row.id, detail={"reason": reason})


def listed(session: Session, window: Window, machine: str | None = None, state: Standing | None = None) -> Json:
    """Newest first."""
    wanted = sa.select(ValidationRow)
    if machine is not None:
        wanted = wanted.where(ValidationRow.machine == machine)
    if state == "open":
        wanted = wanted.where(ValidationRow.verdict.is_(None))
    elif state is not None:
        wanted = wanted.where(ValidationRow.verdict == state)
    after = window.after("validation", float, str)
    keys = (ValidationRow.created_at, ValidationRow.id)
    found = page(session, wanted, keys, after, window.limit, newest_first=True)
    runs = {run.id: run for run in session.scalars(sa.select(RunRow).where(RunRow.id.in_(r.run for r in found.rows)))}
    return listing("validation", found, lambda row: _summary(row, runs[row.run]))


def show(session: Session, id_: str) -> Json:
    row = validations.get(session, id_)
    run = validations.run_of(session, row)
    session.refresh(run)
    checks = [_check(check) for check in validations.checks(session, id_)]
    return {
        **_summary(row, run),
        "attempts": run.attempts,
        "last_error": run.last_error,
        "abort": None if run.abort_reason is None else {"reason": run.abort_reason, "by": run.abort_by},
        "phases": [
            {**phase, "since": stamp(phase["since"]), "until": stamp_or_none(phase["until"])} for phase in row.phases
        ],
        "checks": checks,
        "limits": {check["check"]: check["limits"] for check in checks},
        "playbook": row.playbook,
        "image": row.image,
        "inventory": row.inventory,
        "evidence": {"bytes": row.evidence_bytes, "dropped_at": stamp_or_none(row.evidence_dropped_at)},
        "receipts": {hook: {**kept, "at": stamp(kept["at"])} for hook, kept in row.receipts.items()},
    }


def logs(session: Session, window: Window, id_: str) -> Json:
    validations.get(session, id_)
    rows = validations.measurements(session, id_)
    return portion("log", [log for row in rows for log in _logs(row)], window)


def log(
    session: Session, services: Services, id_: str, measurement: str, stream: str, tail: int | None = None
) -> bytes:
    """One raw output, byte for byte as stored, or its last lines. Raises NotFound, StoreError."""
    row = validations.get(session, id_)
    files = {(row.name, of): file for row in validations.measurements(session, id_) for of, file in row.files.items()}
    if (measurement, stream) not in files:
        there = ", ".join(sorted(f"{name}/{of}" for name, of in files)) or "none"
        raise NotFound(f"validation {id_} has no log {measurement}/{stream}; there is: {there}")
    if row.evidence_dropped_at is not None:
        raise NotFound(
            f"the raw outputs of validation {id_} were dropped at {at(row.evidence_dropped_at)} by the site's retention; "
            f"its verdict and findings are kept"
        )
    raw = services.evidence.get(files[measurement, stream])
    return raw if tail is None else b"".join(raw.splitlines(keepends=True)[-tail:])


def _logs(row: MeasurementRow) -> list[Json]:
    return [
        {
            "id": f"{row.name}/{stream}",
            "name": row.name,
            "check": row.check,
            "stream": stream,
            "bytes": file["bytes"],
            "sha256": file["sha256"],
            "ended": row.ended,
            "exit_status": row.exit_status,
            "duration_s": row.duration_s,
            "truncated": row.truncated,
        }
        for stream, file in sorted(row.files.items(), reverse=True)
    ]


def _summary(row: ValidationRow, run: RunRow) -> Json:
    return {
        "id": row.id,
        "machine": row.machine,
        "plan": row.plan,
        "trigger": row.trigger,
        "requested_by": row.requested_by,
        "phase": run.phase if row.verdict is None else "settled",
        "why": run.why,
        "verdict": row.verdict,
        "reason": row.reason,
        "prior_state": row.prior_state,
        "site_mode": row.site_mode,
        "created_at": stamp(row.created_at),
        "ended_at": stamp_or_none(row.ended_at),
        "progress": row.progress,
    }


def _check(row: CheckRow) -> dict[str, Any]:
    return {
        "check": row.check,
        "mode": row.mode,
        "outcome": row.outcome,
        "reason": row.reason,
        "findings": row.findings,
        "facts": row.facts,
        "limits": row.limits,
    }
