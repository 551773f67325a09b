"""Schedulers as providers have them, in memory: slow, away, deaf, saying things twice, going by what was true long ago."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from fleet.core.clock import Deadline
from fleet.core.errors import ConnectionBroken, DeadlinePassed, Unreachable
from fleet.webhook.receiver import Answer
from tests.unit.workflows.receiving import OK, acknowledging

Notice = Mapping[str, Any]
_WEATHER = ("fair", "fair", "fair", "away", "slow", "answer lost", "twice", "later", "killed before", "killed after")
"""What becomes of one message. The last two happen to whoever sends it."""


class Killed(BaseException):
    """The service's process ends here; nothing after this line happens."""


class Scheduler:
    """Of one machine. Believes what it has heard, and decides by that to place a tenant, which happens later. `asks`: it
    claims the machine first, so it may acknowledge what it has not even looked at, and its replicas decide each for itself.
    One that does not ask acknowledges a withdrawal only when no placement that it decided on an older word is still under
    way, and none of its tenants is on the machine."""

    def __init__(self, chance: random.Random, *, asks: bool, meanwhile: Callable[[], None]) -> None:
        self.chance, self.asks, self.meanwhile = chance, asks, meanwhile
        self.version, self.claimable = 0, False  # what it believes
        self.decided = 0
        self.placing: list[str] = []  # instances that will be placed in a moment
        self.tenants: list[str] = []  # those that it has placed
        self.late: list[list[Notice]] = []  # messages that are still on their way, or come once more
        self.owed: list[Notice] = []  # received, and to be acknowledged by and by

    def post(self, id_: str, message: Mapping[str, Any], deadline: Deadline) -> Answer:
        notices: list[Notice] = message["data"]["notices"]
        self.meanwhile()
        weather = self.chance.choice(_WEATHER)
        if weather == "away":
            raise Unreachable("connection refused")
        if weather == "killed before":
            raise Killed
        if weather in ("slow", "twice"):
            self.late.append(notices)
        if weather == "slow":
            raise DeadlinePassed("one call took too long")
        if self.asks and self.chance.random() < 0.3:
            self.late.append(notices)  # acknowledged by a front end, and on its way to whoever decides
        else:
            self.hear(notices)
        if weather == "answer lost":
            raise ConnectionBroken("connection reset")
        if weather == "killed after":
            raise Killed
        if weather == "later":
            self.owed += notices
            return Answer(202, b"")
        if self.asks:
            return OK
        return acknowledging(*(notice["id"] for notice in notices if self.may_acknowledge(notice)))

    def hear(self, notices: list[Notice]) -> None:
        for notice in notices:
            self.believe(notice["version"], notice["claimable"])

    def believe(self, version: int, claimable: bool) -> None:
        if version > self.version:
            self.version, self.claimable = version, claimable

    def may_acknowledge(self, notice: Notice) -> bool:
        return self.asks or (notice["version"] <= self.version and not self.placing and not self.tenants)

    def decide(self) -> None:
        room = len(self.placing) < 2 if self.asks else not self.placing and not self.tenants
        if self.claimable and room:
            self.decided += 1
            self.placing.append(f"vm-{self.decided}")

    def placed(self, instance: str) -> None:
        self.placing.remove(instance)
        self.tenants.append(instance)
        self.claimable = False  # until it hears of a newer version
