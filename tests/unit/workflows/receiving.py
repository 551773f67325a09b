"""A receiver in memory: hears messages, and answers as it was told to."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.core.clock import Deadline
from fleet.core.errors import FleetError
from fleet.webhook.receiver import Answer

OK = Answer(200, b"")


@dataclass
class Desk:
    """`answer` is what comes back: an answer, or the error of a call that brought none."""

    answer: Answer | FleetError = OK
    heard: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    while_it_is_told: Callable[[], object] = lambda: None

    def post(self, id_: str, message: Mapping[str, Any], deadline: Deadline) -> Answer:
        self.heard.append((id_, json.loads(json.dumps(message))))
        self.while_it_is_told()
        if isinstance(self.answer, FleetError):
            raise self.answer
        return self.answer

    def notices(self, number: int = -1) -> list[Mapping[str, Any]]:
        said: list[Mapping[str, Any]] = self.heard[number][1]["data"]["notices"]
        return said


def acknowledging(*ids: str) -> Answer:
    return Answer(200, json.dumps({"acknowledged": ids}).encode())
