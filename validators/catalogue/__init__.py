"""What kernel lines are evidence of, as data: `gpu.yaml` (Xid, SXid) and `kernel.yaml` (everything else)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

import yaml


class Evidence(StrEnum):
    HARDWARE = "hardware"
    SUSPECT = "suspect"  # condemns nothing alone
    SOFTWARE = "software"
    HARMLESS = "harmless"
    FATAL = "fatal"  # Xid only: hardware where the line says Fatal, else suspect
    ACTION = "action"  # Xid 154 only: by the recovery it names


@dataclass(frozen=True)
class Xid:
    evidence: Evidence
    means: str


@dataclass(frozen=True)
class LinePattern:
    """A kernel line that is no Xid. `repeat` is how many of them, for one device, make a suspect line hardware evidence."""

    id: str
    evidence: Evidence
    match: re.Pattern[str]
    means: str
    repeat: int | None


@dataclass(frozen=True)
class Catalogue:
    xids: Mapping[int, Xid]
    sxids: Mapping[int, str]
    recovery: Mapping[str, Evidence]  # what Xid 154 asks for -> what that is evidence of
    lines: tuple[LinePattern, ...]


@cache
def catalogue() -> Catalogue:
    gpu, kernel = _read("gpu.yaml"), _read("kernel.yaml")
    return Catalogue(
        xids={code: Xid(Evidence(row["evidence"]), row["means"]) for code, row in gpu["xid"].items()},
        sxids={code: row["means"] for code, row in gpu["sxid"].items()},
        recovery={name: Evidence(kind) for kind, names in gpu["recovery"].items() for name in names},
        lines=tuple(
            LinePattern(row["id"], Evidence(row["evidence"]), re.compile(row["match"]), row["means"], row.get("repeat"))
            for row in kernel["lines"]
        ),
    )


def _read(name: str) -> dict[str, Any]:
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content
