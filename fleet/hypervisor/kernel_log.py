"""The host's kernel log as its tools print it, cut to what is new enough."""

import re
from datetime import datetime

# `dmesg --time-format iso` has a comma before the microseconds, journalctl's short-iso-precise a point and no colon in the zone
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.,](\d{1,6})([+-]\d\d):?(\d\d)\s")


def since(raw: bytes, wall: float) -> bytes:
    """The lines of `raw` from `wall` (host's clock, seconds since 1970) on. A line without a stamp belongs to the one
    before it; with nothing before it, it is kept: a cut line may be the evidence."""
    kept = []
    keep = True
    for line in raw.splitlines(keepends=True):
        if match := _STAMP.match(line):
            moment, fraction, hours, minutes = (part.decode() for part in match.groups())
            try:
                keep = datetime.fromisoformat(f"{moment}.{fraction:0<6}{hours}:{minutes}").timestamp() >= wall
            except ValueError:
                keep = True
        if keep:
            kept.append(line)
    return b"".join(kept)
