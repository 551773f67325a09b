"""The simulated rack as the API shows it. The composition root passes in what controls it; without one there is no lab."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy.orm import Session

from fleet.core.errors import NotFound
from fleet.service.access import Permit
from fleet.service.listing import Json, Window, portion
from fleet.service.writing import Answer
from fleet.store import audit


class LabControl(Protocol):
    """Puts faults into simulated machines and takes them out. Both acts may be repeated. Raises NotFound for a machine or
    a fault that there is not."""

    def faults(self) -> Sequence[Mapping[str, Any]]:
        """Rows with `name` and, in words, what the fault does."""

    def machines(self) -> Sequence[Mapping[str, Any]]:
        """Rows with `name` and `faults`, the names of those that are in."""

    def break_(self, machine: str, fault: str) -> None: ...

    def mend(self, machine: str, fault: str) -> None: ...


def faults(lab: LabControl | None, window: Window) -> Json:
    return portion("fault", _rows(_there(lab).faults()), window)


def machines(lab: LabControl | None, window: Window) -> Json:
    return portion("lab-machine", _rows(_there(lab).machines()), window)


def break_(session: Session, permit: Permit, lab: LabControl | None, machine: str, fault: str) -> Answer:
    _there(lab).break_(machine, fault)
    return _noted(session, permit, "lab.broken", machine, fault)


def mend(session: Session, permit: Permit, lab: LabControl | None, machine: str, fault: str) -> Answer:
    _there(lab).mend(machine, fault)
    return _noted(session, permit, "lab.mended", machine, fault)


def _noted(session: Session, permit: Permit, action: str, machine: str, fault: str) -> Answer:
    audit.write(session, permit.actor.by, action, machine=machine, detail={"fault": fault})
    return Answer.done({"id": machine, "machine": machine, "fault": fault})


def _there(lab: LabControl | None) -> LabControl:
    if lab is None:
        raise NotFound("this service runs without a simulated rack; `fleet up --lab 6` starts one with it")
    return lab


def _rows(rows: Sequence[Mapping[str, Any]]) -> list[Json]:
    return [{"id": row["name"], **row} for row in rows]
