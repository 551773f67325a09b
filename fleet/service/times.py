"""Times as people and programs read them: RFC 3339 in UTC."""

from datetime import datetime

from fleet.core.times import stamp

__all__ = ["seconds", "stamp", "stamp_or_none"]


def stamp_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else stamp(seconds)


def seconds(text: str) -> float:
    """Raises ValueError for anything but an RFC 3339 time with its offset."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a time, such as 2026-11-30T08:00:00Z") from None
    if at.tzinfo is None:
        raise ValueError("has no offset from UTC: write 2026-11-30T08:00:00Z, or +02:00 in place of the Z")
    return at.timestamp()
