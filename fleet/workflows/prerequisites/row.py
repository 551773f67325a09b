"""One prerequisite, as a person reads it."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    MET = "met"
    MISSING = "missing"
    NOT_TRIED = "not tried"  # something else was in the way: `seen` says what


@dataclass(frozen=True)
class Row:
    name: str
    status: Status
    seen: str
    mend: str = ""  # a command or a line of a file; empty where the row is met

    def dump(self) -> dict[str, Any]:
        return {**asdict(self), "status": str(self.status)}


def met(name: str, seen: str) -> Row:
    return Row(name, Status.MET, seen)


def missing(name: str, seen: str, mend: str) -> Row:
    return Row(name, Status.MISSING, seen, mend)


def not_tried(name: str, why: str) -> Row:
    return Row(name, Status.NOT_TRIED, why)
