"""A host that does not come back."""

from dataclasses import dataclass
from typing import Any, NoReturn

from fleet.core.errors import Unreachable
from tests.unit.workflows.hosts import Hosts


@dataclass
class Dead(Hosts):
    """A host that has gone for good, and every VM on it."""

    def __getattribute__(self, name: str) -> Any:
        if name in (
            "look",
            "place",
            "placement",
            "tear_down",
            "forget",
            "console",
            "kernel_log",
            "guest",
            "read_image",
        ):
            return self._refuse
        return super().__getattribute__(name)

    def _refuse(self, *_: object) -> NoReturn:
        raise Unreachable("m1 does not answer")
