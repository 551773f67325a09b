"""What a new machine's record may say, as one body or as one row of an import."""

import ipaddress
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from fleet.core.errors import InvalidInput
from fleet.core.model import Instance, Machine, Slot, SlotKind, SshTarget
from fleet.core.states import State
from fleet.service import shapes
from fleet.service.body import Body, InstanceId, MachineName, SkuName, Word
from fleet.service.times import seconds
from fleet.service.wording import explained

_MOST_PER_ROW = 10
_NO_SSH = SshTarget(address="", port=22, user="root", host_key="", key_ref="")
"""A record without SSH: `machine add NAME --sku S` notes that the machine exists before it is wired up. A validation of it
aborts and says that no address is recorded; an import with `update` completes it."""


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("is not an IP address, such as 192.168.231.10") from None
    return text


def _disk(text: str) -> str:
    if ".." in PurePosixPath(text).parts:
        raise ValueError("must not climb out of /dev")
    return text


def _time(text: str) -> str:
    seconds(text)
    return text


class NewSsh(Body):
    address: Annotated[str, Field(pattern=shapes.ADDRESS)]
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    user: Annotated[str, Field(pattern=shapes.USER)] = "root"
    host_key: Annotated[str, Field(pattern=shapes.HOST_KEY)]
    """Pinned: type and key as in known_hosts. There is no trust on first use."""
    key_ref: Annotated[str, Field(pattern=shapes.SECRET)]


class NewSlot(Body):
    slot: Word
    kind: Literal["gpu", "nvswitch", "rail", "nvme"]
    pci: Annotated[str, Field(pattern=shapes.PCI)]
    guest_pci: Annotated[str, Field(pattern=shapes.PCI)] | None = None
    serial: Word | None = None
    guid: Annotated[str, Field(pattern=shapes.GUID)] | None = None
    switch_port: Word | None = None


class NewMachine(Body):
    """`state` is what the operator vouches for. Without it the machine is `vacated`: nobody has validated it, so it is
    not offered to anybody until it has passed."""

    name: MachineName
    sku: SkuName  # one without a file is taken too: the record is true, and a validation says what is missing
    ssh: NewSsh | None = None
    slots: Annotated[list[NewSlot], Field(max_length=128)] = []
    guest_address: Annotated[str, Field(max_length=45), AfterValidator(_address)] = "192.168.231.10"
    guest_port: Annotated[int, Field(ge=1, le=65535)] = 22
    scratch_disk: Annotated[str, Field(pattern=shapes.DISK), AfterValidator(_disk)] | None = None
    rack: Word | None = None
    power_feed: Word | None = None
    capacity: Annotated[int, Field(ge=1, le=64)] = 1
    handed_over_at: Annotated[str, Field(max_length=40), AfterValidator(_time)] | None = None
    state: Literal["available", "allocated", "vacated"] = "vacated"
    instances: Annotated[list[InstanceId], Field(max_length=64)] = []

    @model_validator(mode="after")
    def _consistent(self) -> "NewMachine":
        if self.state == "allocated" and not self.instances:
            raise ValueError("instances: an allocated machine needs the instances that are on it")
        if self.state != "allocated" and self.instances:
            raise ValueError(f"instances: a machine that is {self.state} has none; say state allocated")
        if len(self.instances) > self.capacity:
            raise ValueError(f"instances: {len(self.instances)} are more than the capacity of {self.capacity}")
        for what in ("slot", "pci", "guest_pci"):
            values = [v for slot in self.slots if (v := getattr(slot, what)) is not None]
            if twice := next((v for v in values if values.count(v) > 1), None):
                raise ValueError(f"slots: {what} {twice} appears twice")
        if len(set(self.instances)) != len(self.instances):
            raise ValueError("instances: the same id appears twice")
        return self

    def machine(self, why: str) -> Machine:
        return Machine(
            name=self.name,
            sku=self.sku,
            state=State(self.state),
            version=1,
            state_since=0.0,  # the store writes the database's time
            state_why=why,
            ssh=_NO_SSH if self.ssh is None else SshTarget(**self.ssh.model_dump()),
            slots=tuple(Slot(**{**slot.model_dump(), "kind": SlotKind(slot.kind)}) for slot in self.slots),
            guest_address=self.guest_address,
            guest_port=self.guest_port,
            scratch_disk=self.scratch_disk,
            rack=self.rack,
            power_feed=self.power_feed,
            capacity=self.capacity,
            handed_over_at=None if self.handed_over_at is None else seconds(self.handed_over_at),
            instances=tuple(Instance(id_, "tenant", 0.0) for id_ in self.instances),
        )


class InvalidRows(InvalidInput):
    """Everything that is wrong with an import: rows of {row, name, field, detail}, the first row being 1."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        bad = len({row["row"] for row in rows})
        first = rows[0]
        super().__init__(
            f"nothing was imported: {bad} bad row{'s' if bad > 1 else ''}, the first is row {first['row']}:"
            f" {first['field']}: {first['detail']}",
            "machines",
        )
        self.rows = rows


def read_rows(raw: list[dict[str, Any]]) -> tuple[dict[int, NewMachine], list[dict[str, Any]]]:
    """The good rows by number, and everything wrong with the others."""
    good: dict[int, NewMachine] = {}
    bad: list[dict[str, Any]] = []
    for number, row in enumerate(raw, start=1):
        try:
            good[number] = NewMachine.model_validate(row)
        except ValidationError as exc:
            errors = exc.errors(include_url=False, include_input=False)[:_MOST_PER_ROW]
            bad += [bad_row(number, row.get("name"), *explained(error)) for error in errors]
    return good, bad


def bad_row(number: int, name: object, field: str, reason: str) -> dict[str, Any]:
    return {"row": number, "name": name[:63] if isinstance(name, str) else None, "field": field, "detail": reason}
