"""Times as people and programs read them: RFC 3339 in UTC."""

from datetime import datetime

from fleet.core.times import stamp

__all__ = ["seconds", "stamp", "stamp_or_none"]


def stamp_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else stamp(seconds)


def seconds(text: str) -> float:
    """Raises ValueError for anything but an RFC 3339 time with its offset."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time needs its offset, such as Z or +02:00")
    return at.timestamp()
