"""Validations: the record of each run, its measurements and what its checks concluded."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import NotFound
from fleet.store.database import db_now
from fleet.store.tables import CheckRow, MeasurementRow, ProvenRow, RunRow, ValidationRow


def get(session: Session, id_: str) -> ValidationRow:
    """Raises NotFound."""
    row = session.get(ValidationRow, id_)
    if row is None:
        raise NotFound(f"there is no validation {id_!r}; `fleet validation list` shows all")
    return row


def run_of(session: Session, row: ValidationRow) -> RunRow:
    run = session.get(RunRow, row.run)
    assert run is not None  # the foreign key holds it
    return run


def open_on(session: Session, machine: str) -> ValidationRow | None:
    """The machine's open validation: at most one, by the run's unique index."""
    return session.scalar(
        sa.select(ValidationRow).where(ValidationRow.machine == machine, ValidationRow.ended_at.is_(None))
    )


def live_ids(session: Session) -> set[str]:
    """Validations that may have a test VM."""
    return set(session.scalars(sa.select(ValidationRow.id).where(ValidationRow.ended_at.is_(None))))


def set_phase(session: Session, id_: str, phase: str, why: str) -> None:
    """Close the last entry of the record's phases and open the next."""
    row = get(session, id_)
    at = session.scalar(sa.select(db_now())) or 0.0
    phases = [dict(p) for p in row.phases]
    if phases and phases[-1]["until"] is None:
        phases[-1]["until"] = at
    row.phases = [*phases, {"phase": phase, "since": at, "until": None, "why": why}]


def put_receipt(session: Session, id_: str, hook: str, receipt: Any) -> None:
    """What a site's hook answered, and when."""
    row = get(session, id_)
    at = session.scalar(sa.select(db_now())) or 0.0
    row.receipts = {**row.receipts, hook: {"receipt": receipt, "at": at}}


def set_progress(session: Session, id_: str, progress: Mapping[str, Any]) -> None:
    session.execute(sa.update(ValidationRow).where(ValidationRow.id == id_).values(progress=dict(progress)))


def put_measurement(session: Session, validation: str, check: str, name: str, **columns: Any) -> None:
    """Insert, or replace the one of that name: a collection that is repeated after a crash is the same measurement."""
    session.execute(
        sa.delete(MeasurementRow).where(MeasurementRow.validation == validation, MeasurementRow.name == name)
    )
    session.add(MeasurementRow(validation=validation, check=check, name=name, **columns))
    session.flush()


def measurements(session: Session, validation: str) -> Sequence[MeasurementRow]:
    return session.scalars(
        sa.select(MeasurementRow).where(MeasurementRow.validation == validation).order_by(MeasurementRow.id)
    ).all()


def evidence_bytes(session: Session, validation: str) -> int:
    """Of all raw outputs on its record."""
    return sum(int(file["bytes"]) for row in measurements(session, validation) for file in row.files.values())


def kept_bytes(session: Session) -> int:
    """Of the raw outputs of all validations that have ended, but for those that retention has dropped."""
    kept = sa.select(sa.func.coalesce(sa.func.sum(ValidationRow.evidence_bytes), 0))
    return int(session.scalar(kept.where(ValidationRow.evidence_dropped_at.is_(None))) or 0)


def put_check(session: Session, validation: str, check: str, **columns: Any) -> None:
    session.merge(CheckRow(validation=validation, check=check, **columns))


def checks(session: Session, validation: str) -> Sequence[CheckRow]:
    return session.scalars(sa.select(CheckRow).where(CheckRow.validation == validation).order_by(CheckRow.check)).all()


def is_proven(session: Session, sku: str, digest: str) -> bool:
    """Has this set of test image, checks and limits passed a machine of this SKU before?"""
    return session.get(ProvenRow, (sku, digest)) is not None


def prove(session: Session, sku: str, digest: str, validation: str | None) -> None:
    if not is_proven(session, sku, digest):
        session.add(
            ProvenRow(sku=sku, digest=digest, validation=validation, at=session.scalar(sa.select(db_now())) or 0.0)
        )
