"""What every judge asks of the record first: does the check apply, was the output kept whole, which slot is this device?"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from validators.base import CheckResult, Ended, Finding, Measurement, Subject, conclude, not_run, skipped
from validators.sku import Limit, Strict
from validators.tools.lines import printable

Options = TypeVar("Options", bound=Strict)
Slot = Mapping[str, Any]
_PCI = re.compile(r"(?:0x)?(?:[0-9a-f]{4})?([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")

_ENDED = {
    Ended.DEADLINE: "ran past its deadline and was ended",
    Ended.OUTPUT_LIMIT: "printed more than is allowed and was ended",
    Ended.DISK_FULL: "could not be stored: the guest's disk is full",
    Ended.NOT_FOUND: "is not installed in the test image",
    Ended.STOPPED: "was stopped before it was done",
    Ended.LOST: "was lost: the guest or its runner went away",
}


def not_applicable(check: str, subject: Subject) -> CheckResult | None:
    """The `skipped` result where the SKU file declares the check inapplicable."""
    reason = subject.sku.skip.get(check)
    return conclude(check, [skipped("sku_skips", f"SKU {subject.sku.sku}: {reason}")]) if reason else None


def of_check(check: str, measurements: Sequence[Measurement]) -> list[Measurement]:
    """This check's readings in order: `nccl`, then `nccl.2`."""
    return sorted((m for m in measurements if m.name.partition(".")[0] == check), key=lambda m: _reading(m.name))


def _reading(name: str) -> int:
    suffix = name.partition(".")[2]
    return int(suffix) if suffix.isdecimal() and len(suffix) < 6 else 1


def incomplete(measurement: Measurement, tool: str) -> list[Finding]:
    """Why the output cannot be taken as whole: empty where it can. What is in it still counts as evidence of a failure."""
    if measurement.ended is not Ended.EXITED:
        return [not_run(measurement.ended.value, f"{tool} {_ENDED[measurement.ended]}")]
    if measurement.truncated:
        return [not_run("truncated", f"{tool}: only the beginning of the output was stored")]
    return []


def unreadable(measurement: Measurement, tool: str, why: object) -> Finding:
    """`not_run` with the parser's reason and what the tool itself said last."""
    reason = f"{tool}: {why}"
    if measurement.exit_status:
        reason += f"; exit status {measurement.exit_status}"
    if last := _last_line(measurement.stderr) or _last_line(measurement.stdout):
        reason += f'; it said "{last}"'
    return not_run("unparsable", reason)


def _last_line(text: str) -> str:
    return printable(text[-2000:].strip().rpartition("\n")[2], 160)


def everything(measurement: Measurement) -> str:
    """Both streams: tools disagree on where an error goes."""
    return f"{measurement.stdout}\n{measurement.stderr}" if measurement.stderr else measurement.stdout


def options(model: type[Options], subject: Subject) -> Options:
    """The plan's `with:` for this check; what the control plane adds beside it is left out."""
    return model.model_validate({k: v for k, v in subject.options.items() if k in model.model_fields})


def applied(**limits: Limit | None) -> dict[str, Any]:
    """Limits as they are stored with a result: value and source."""
    return {name: {"value": limit.value, "source": limit.source} for name, limit in limits.items() if limit}


def no_limit(check: str, subject: Subject) -> Finding:
    return not_run("no_limit", f"SKU {subject.sku.sku} has no limit for {check}")


def pci_address(text: object) -> tuple[str, str | None] | None:
    """(`0000:1b:00`, function or None) out of any way of writing a PCI address, None for what is none."""
    found = _PCI.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    return (f"{found[1]}:{found[2]}:{found[3]}", found[4]) if found else None


def same_pci(one: object, other: object) -> bool:
    """Whether both name one device; an address without function matches any."""
    a, b = pci_address(one), pci_address(other)
    return bool(a and b and a[0] == b[0] and (a[1] is None or b[1] is None or a[1] == b[1]))


def slots(subject: Subject, kind: str) -> list[Slot]:
    """The machine's slots of one kind in the order in which a guest enumerates them: by guest PCI address."""
    found = [slot for slot in subject.slots if str(slot.get("kind")) == kind]
    return sorted(found, key=lambda slot: (str(slot.get("guest_pci") or slot.get("pci") or ""), str(slot.get("slot"))))


def gpu_names(subject: Subject) -> list[str]:
    """A name for each GPU index in PCI order: its slot where the slot map has all of them, else `gpu0`, `gpu1`..."""
    mapped = slots(subject, "gpu")
    if len(mapped) == subject.sku.gpus.count:
        return [str(slot["slot"]) for slot in mapped]
    return [f"gpu{index}" for index in range(subject.sku.gpus.count)]
