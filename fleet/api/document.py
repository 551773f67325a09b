"""Reading a request's body: bounded while it arrives, JSON only, and nothing in it that two readers could read differently."""

import json
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from fleet.api.problem import Unreadable

DEEPEST = 20


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Raises Unreadable: 413 as soon as more than `limit_bytes` have come in, 400 where the client went away before."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit_bytes:
                raise Unreadable(413, "too-large", f"the body is larger than {limit_bytes} bytes")
    except ClientDisconnect:  # nobody reads this answer, and it is no fault of ours to write a traceback about
        raise Unreadable(400, "cut-short", "the connection ended before the body did") from None
    return bytes(body)


def parse(body: bytes, content_type: str | None) -> Any:
    """Raises Unreadable: 415 for another type, 400 for what is not strict JSON."""
    if (content_type or "").partition(";")[0].strip().lower() != "application/json":
        raise Unreadable(415, "unsupported-media-type", "send the body as Content-Type: application/json")
    try:
        value = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Unreadable(400, "invalid-json", "the body is not UTF-8") from None
    except RecursionError:
        raise Unreadable(400, "invalid-json", f"the body is nested more than {DEEPEST} deep") from None
    except json.JSONDecodeError as exc:
        raise Unreadable(400, "invalid-json", f"the body is not JSON: {exc.msg} at character {exc.pos}") from None
    except ValueError:  # a number of thousands of digits
        raise Unreadable(400, "invalid-json", "the body has a number that is too long") from None
    _look_through(value)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise Unreadable(400, "duplicate-field", f"the field {name[:100]!a} appears twice", name[:100])
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise Unreadable(400, "invalid-json", f"{name} is not a number in JSON")


def _look_through(value: Any) -> None:
    """Depth, and text that a database cannot keep: NUL and halves of surrogate pairs."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise Unreadable(400, "invalid-json", f"the body is nested more than {DEEPEST} deep")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list):
        return value
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= c <= "\udfff" for c in value)):
        raise Unreadable(400, "invalid-json", "the body has text with NUL or half a surrogate pair")
    return []
