"""What requests may say: strict models, and the types of their fields."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fleet.service import shapes

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def _printable(text: str) -> str:
    if found := _UNPRINTABLE.search(text):
        raise ValueError(f"character {found.group()!a} at position {found.start()} is not allowed: one line of text")
    if not text.strip():
        raise ValueError("is empty")
    return text


MachineName = Annotated[str, Field(pattern=shapes.MACHINE)]
InstanceId = Annotated[str, Field(pattern=shapes.INSTANCE)]
RecordId = Annotated[str, Field(pattern=shapes.RECORD)]
SkuName = Annotated[str, Field(pattern=shapes.SKU)]
PlanName = Annotated[str, Field(pattern=shapes.PLAN)]
Word = Annotated[str, Field(pattern=shapes.WORD)]
"""Racks, feeds, ports, token names: one word without anything that a shell, XML or a terminal would take as its own."""
Sentence = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_printable)]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86400)]


class Body(BaseModel):
    """A request's body. Unknown fields and values of another type are errors, never guesses."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Nothing(Body):
    """An act that needs no words."""
