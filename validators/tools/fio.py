"""fio with `--output-format=json`. Text before the JSON is normal: fio prints its banner and errors to the same stream."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt

from validators.tools.json_document import read
from validators.tools.lines import lines, printable

_FAILURE = re.compile(r"^fio: |: (?:No space left|Input/output error|Permission denied|No such file)")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Direction(_Model):
    """`bw` is KiB/s in fio's JSON; `io_bytes` and `total_ios` are what was really done."""

    io_bytes: NonNegativeInt = 0
    bw: NonNegativeFloat = 0.0
    iops: NonNegativeFloat = 0.0
    total_ios: NonNegativeInt = 0

    @property
    def mib_s(self) -> float:
        return round(self.bw / 1024, 3)


class Job(_Model):
    """`error` is an errno, 0 for none."""

    jobname: Annotated[str, Field(max_length=200)] = ""
    error: int
    reading: Direction = Field(default=Direction(), alias="read")
    writing: Direction = Field(default=Direction(), alias="write")


class _Report(_Model):
    version: Annotated[str, Field(alias="fio version", max_length=100)]
    jobs: Annotated[tuple[Job, ...], Field(max_length=1000)]


@dataclass(frozen=True)
class FioRun:
    version: str
    jobs: tuple[Job, ...]
    errors: tuple[str, ...]


def parse(output: str) -> FioRun:
    """Raises ParseError when there is no whole fio report in the text."""
    report = read(_Report, output)
    return FioRun(printable(report.version), report.jobs, failures(output))


def failures(output: str) -> tuple[str, ...]:
    """Lines in which fio says what went wrong; there may be no report beside them."""
    found = (printable(line) for line in lines(output) if _FAILURE.search(line))
    return tuple(line for _, line in zip(range(20), found, strict=False))
