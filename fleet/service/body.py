"""What requests may say: strict models, and the shapes of names that reach a shell, an XML file or a terminal."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def _printable(text: str) -> str:
    if found := _UNPRINTABLE.search(text):
        raise ValueError(f"character {found.group()!a} at position {found.start()} is not allowed: one line of text")
    if not text.strip():
        raise ValueError("is empty")
    return text


MachineName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")]
InstanceId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
RecordId = Annotated[str, Field(pattern=r"^[a-z]{2,8}-[a-z0-9-]{1,60}$")]
SkuName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
PlanName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$")]
"""Racks, feeds, ports, token names: one word without anything that a shell, XML or a terminal would take as its own."""
Sentence = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_printable)]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86400)]


class Body(BaseModel):
    """A request's body. Unknown fields and values of another type are errors, never guesses."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Nothing(Body):
    """An act that needs no words."""
