"""Times as programs read them: RFC 3339 in UTC."""

from datetime import UTC, datetime


def stamp(seconds: float) -> str:
    """`2026-11-30T08:11:43.250Z` from seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
