"""The test image as it is, not as the settings have it: which files a host would make the VM from, and what the booted image
says is in it. Both go onto the validation's record; a verdict is worth what it was measured with."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.engine.workflow import Next, Work
from fleet.remote.printable import printable
from fleet.store import validations
from fleet.workflows.guest import GuestError, GuestRun
from fleet.workflows.record import Record, ended_early
from fleet.workflows.world import World

_SOON_S, _LATER_S = 0.15, 2.0  # between two looks: a lab's file is read in no time, a real one in half a minute


def image_on_host(world: World, work: Work, record: Record) -> Next | None:
    """None when the files are known, and are the stated ones: then they are on the record. Comes after a look at the host
    that found nothing wrong, so that an abort gives the machine back."""
    machine, waited_s = record.machine, work.run.in_phase_s
    work.guard()
    seen = world.hypervisor.read_image(machine, Deadline.after(world.policy.call_deadline_s))
    if seen.reading and waited_s < world.policy.place_deadline_s:
        wait_s = _SOON_S if waited_s < 5.0 else _LATER_S
        return Next("preflight", "the host is reading the test image, which it has not seen before", wait_s)
    if seen.reading:
        return _refuse(record, f"the test image was not read on {machine.name} within {waited_s:.0f} s")
    if seen.why:
        return _refuse(record, f"the test image is not there: {seen.why}")
    if (stated := world.image.get("image_digest")) and seen.digests["image"] != stated:
        return _refuse(
            record,
            f"the test image on {machine.name} is another one: its SHA-256 is {seen.digests['image']}, "
            f"hypervisor.image_digest says {stated}",
        )
    image = {**world.image, **as_seen(seen.digests)}
    if record.image != image:
        with work.transaction() as session:
            validations.get(session, record.id).image = image
    return None


def as_seen(digests: Mapping[str, str]) -> dict[str, Any]:
    """What a validation's `image` says of the files on the host. A kernel counts as the image does (`Playbook.proofs`)."""
    return {"seen_digest": digests["image"], "seen": dict(digests)}


def _refuse(record: Record, reason: str) -> Next:
    return ended_early(record, "preflight", reason, {"seen_clean": True})


_Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+~:_-]{0,79}$")]


class Versions(BaseModel):
    """/etc/fleet-image.json, written when the image is built (image/manifest.py). Read from a guest: strict and bounded."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal[1]
    profile: _Word
    version: _Word
    recipe: _Word
    packages: Mapping[_Word, _Word] = Field(max_length=200)
    tools: Mapping[_Word, _Word] = Field(max_length=50)


def noted_versions(guest: GuestRun, validation: str, deadline: Deadline) -> Callable[[Session], None]:
    """Ask the booted image; what this returns puts the answer onto the record. An image that does not say, or says what
    cannot be read, is noted as such: its checks are worth no less. Raises RemoteError."""
    versions: dict[str, Any]
    try:
        versions = Versions.model_validate_json(guest.image_manifest(deadline)).model_dump(exclude={"format"})
    except GuestError as exc:
        versions = {"unknown": str(exc)}
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        versions = {"unknown": printable(f"/etc/fleet-image.json: {where}: {first['msg']}")}

    def within(session: Session) -> None:
        row = validations.get(session, validation)
        row.image = {**row.image, "versions": versions}

    return within
