"""Every route of the API, addressed as if it were about something."""

import re
from collections.abc import Iterator
from typing import Any

from fastapi.routing import APIRoute

from fleet.api.app import create_app
from fleet.api.gate import Gate
from fleet.service.access import Action

_KNOWN = {"machine": "lab-01", "measurement": "nccl", "stream": "stdout"}


def routes(api: Any) -> Iterator[APIRoute]:
    def walk(items: Any) -> Iterator[APIRoute]:
        for item in items:
            if isinstance(item, APIRoute):
                yield item
            else:
                yield from walk(getattr(getattr(item, "original_router", item), "routes", ()))

    return walk(create_app(api.services).routes)


def guarded(api: Any) -> list[tuple[str, str, Action]]:
    """Method, path and action of every route behind the gate."""
    return [
        (method, re.sub(r"\{(\w+)\}", lambda found: _KNOWN.get(found[1], "abc-0"), route.path), Action(route.name))
        for route in routes(api)
        if isinstance(route, Gate)
        for method in route.methods or ()
    ]
