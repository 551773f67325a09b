"""gpu_inventory: NVML sees every GPU that the SKU has, of the right kind, without memory errors, before and after stress."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from validators.base import Check, CheckResult, Finding, Measurement, Subject, conclude, failed, not_run, passed
from validators.record import (
    Slot,
    gpu_names,
    incomplete,
    not_applicable,
    of_check,
    options,
    same_pci,
    slots,
    unreadable,
)
from validators.sku import Strict
from validators.tools import nvml
from validators.tools.errors import ParseError
from validators.tools.lines import printable

NAME = "gpu_inventory"
_MEMORY_TOLERANCE = 0.02  # NVML counts reserved memory in or out, depending on the driver
_HARDWARE_ERRORS = {
    "NVML_ERROR_GPU_IS_LOST": "gpu_lost",
    "NVML_ERROR_RESET_REQUIRED": "reset_required",
    "NVML_ERROR_INSUFFICIENT_POWER": "no_power",  # NVML: external power cables are not attached
}
_NOT_THERE = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")  # this GPU, this driver: no such counter


class Options(Strict):
    """`settle_s`: how long the driver may take after the boot until it lists all GPUs."""

    settle_s: Annotated[int, Field(ge=0, le=100)] = 40


def argv(subject: Subject) -> tuple[str, ...]:
    settle_s = options(Options, subject).settle_s
    return ("@measure", NAME, "--expect", str(subject.sku.gpus.count), "--settle-s", str(settle_s))


def judge(measurements: Sequence[Measurement], subject: Subject) -> CheckResult:
    if skipping := not_applicable(NAME, subject):
        return skipping
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    earlier: nvml.GpuInventory | None = None
    for measurement in of_check(NAME, measurements):
        findings += incomplete(measurement, NAME)
        try:
            seen = nvml.parse(measurement.stdout)
        except ParseError as exc:
            findings.append(unreadable(measurement, NAME, exc))
            continue
        facts[measurement.name] = _facts(seen)
        findings += _inventory(seen, earlier, subject)
        earlier = seen
    expected = {
        "gpus": subject.sku.gpus.count,
        "memory_mib": subject.sku.gpus.memory_mib,
        "nvlinks": subject.sku.gpus.nvlinks,
    }
    return conclude(NAME, findings, facts, expected | {"source": f"SKU {subject.sku.sku}"})


def _inventory(seen: nvml.GpuInventory, earlier: nvml.GpuInventory | None, subject: Subject) -> Iterator[Finding]:
    after = " after the stress" if earlier else ""
    if seen.error is not None:
        said = f"NVML could not be used{after}: {seen.error.call} says {seen.error.name}"
        code = _HARDWARE_ERRORS.get(seen.error.name)
        yield failed(code, said) if code else not_run("nvml_error", said)
        return
    yield from _missing(seen, earlier, subject, after)
    wrong_kind = [gpu for gpu in seen.gpus if gpu.error is None and not _right_kind(gpu, subject)]
    all_wrong = len(wrong_kind) == len([gpu for gpu in seen.gpus if gpu.error is None])
    for gpu in seen.gpus:
        device = _device(gpu, seen, subject)
        previous = next((was for was in earlier.gpus if was.uuid == gpu.uuid), None) if earlier and gpu.uuid else None
        findings = list(_gpu(gpu, previous, device, after, subject))
        if gpu in wrong_kind:
            findings.append(_other_kind(gpu, device, all_wrong, subject))
        if not findings:
            memory = f"{gpu.memory_total_mib:.0f} MiB"
            findings = [passed("present", f"{gpu.name}, serial {gpu.serial or 'unknown'}, {memory}{after}", device)]
        yield from findings


def _missing(
    seen: nvml.GpuInventory, earlier: nvml.GpuInventory | None, subject: Subject, after: str
) -> Iterator[Finding]:
    expected, present = subject.sku.gpus.count, len(seen.gpus)
    if present > expected:
        yield not_run("gpu_count", f"NVML lists {present} GPUs{after}, the SKU has {expected}")
    if present >= expected:
        return
    lost = earlier is not None and len(earlier.gpus) > present
    code = "lost_under_load" if lost else "missing"
    before = f", {len(earlier.gpus)} before" if lost and earlier else ""
    reason = f"NVML lists {present} of {expected} GPUs{after}{before}"
    gone = list(_absent_slots(seen, subject))
    for slot in gone:
        yield failed(code, f"{reason}; none at {slot['guest_pci']}", str(slot["slot"]))
    if not gone:
        yield failed(code, reason)


def _absent_slots(seen: nvml.GpuInventory, subject: Subject) -> Iterator[Slot]:
    """Slots whose guest address no GPU has: only where the map has an address for all and the present ones fit it."""
    mapped = slots(subject, "gpu")
    if len(mapped) != subject.sku.gpus.count or not all(slot.get("guest_pci") for slot in mapped):
        return
    absent = [slot for slot in mapped if not any(same_pci(slot["guest_pci"], gpu.pci) for gpu in seen.gpus)]
    if len(absent) == len(mapped) - len(seen.gpus):
        yield from absent


def _device(gpu: nvml.Gpu, seen: nvml.GpuInventory, subject: Subject) -> str:
    """The slot at the GPU's address; for one that no longer tells it, the slot of its index: NVML counts in PCI order."""
    for slot in slots(subject, "gpu"):
        if same_pci(slot.get("guest_pci"), gpu.pci):
            return str(slot["slot"])
    names = gpu_names(subject)
    return names[gpu.index] if len(seen.gpus) == len(names) and gpu.index < len(names) else f"gpu{gpu.index}"


def _gpu(gpu: nvml.Gpu, previous: nvml.Gpu | None, device: str, after: str, subject: Subject) -> Iterator[Finding]:
    if gpu.error is not None:
        said = f"GPU {gpu.index}{after}: {gpu.error.call} says {gpu.error.name}"
        code = _HARDWARE_ERRORS.get(gpu.error.name)
        yield failed(code, said, device) if code else not_run("nvml_error", said, device)
        return
    if gpu.uuid is None or gpu.name is None:
        yield not_run("not_measured", f"NVML gives no name or UUID for GPU {gpu.index}{after}", device)
    for counter in ("ecc_volatile_uncorrected", "remapped_rows"):
        if (refused := gpu.unsupported.get(counter)) is not None and refused not in _NOT_THERE:
            yield not_run("not_measured", f"its {counter} cannot be read{after}: {printable(refused, 60)}", device)
    yield from _memory(gpu, device, after, subject)
    yield from _memory_errors(gpu, previous, device, after)
    wanted = subject.sku.gpus.nvlinks
    if wanted and gpu.nvlinks_active is None:
        yield not_run("not_measured", f"the state of its NVLinks cannot be read{after}", device)
    elif wanted and gpu.nvlinks_active is not None and gpu.nvlinks_active < wanted:
        yield failed("nvlinks_down", f"{gpu.nvlinks_active} of {wanted} NVLinks are active{after}", device)
    if gpu.processes:
        first = gpu.processes[0]
        yield not_run(
            "foreign_process", f"process {first.pid} ({printable(first.kind, 20)}) uses the GPU{after}", device
        )


def _memory(gpu: nvml.Gpu, device: str, after: str, subject: Subject) -> Iterator[Finding]:
    wanted = subject.sku.gpus.memory_mib
    if gpu.memory_total_mib is None:
        yield not_run("not_measured", f"its memory size cannot be read{after}", device)
    elif gpu.memory_total_mib < wanted * (1 - _MEMORY_TOLERANCE):
        yield failed("memory_size", f"{gpu.memory_total_mib:.0f} MiB of memory{after}, expected {wanted}", device)


def _memory_errors(gpu: nvml.Gpu, previous: nvml.Gpu | None, device: str, after: str) -> Iterator[Finding]:
    """Volatile errors are of this VM's life. Aggregate ones are of the GPU's: only their rise is news."""
    if gpu.ecc_volatile_uncorrected:
        yield failed("ecc_uncorrected", f"{gpu.ecc_volatile_uncorrected} uncorrectable memory errors{after}", device)
    elif previous and (rise := _rise(previous.ecc_aggregate_uncorrected, gpu.ecc_aggregate_uncorrected)):
        yield failed("ecc_uncorrected", f"{rise} new uncorrectable memory errors{after}", device)
    rows, rows_before = gpu.remapped_rows, previous.remapped_rows if previous else None
    if rows is None:
        return
    if rows.failure:
        yield failed("remap_failure", f"a bad memory row could not be remapped{after}", device)
    if rows_before and (rise := _rise(rows_before.uncorrectable, rows.uncorrectable)):
        yield failed("rows_remapped", f"{rise} memory rows were remapped for uncorrectable errors{after}", device)
    if rows.pending and rows_before and not rows_before.pending:
        yield failed("remap_pending", f"a memory row became bad{after}", device)
    elif rows.pending:
        # results stay correct until the reset that activates the spare row, and the next VM's start resets the GPU
        yield not_run("remap_pending", "a row remap waits for a reset of the GPU", device)


def _rise(before: int | None, now: int | None) -> int:
    return max(0, now - before) if before is not None and now is not None else 0


def _right_kind(gpu: nvml.Gpu, subject: Subject) -> bool:
    gpus = subject.sku.gpus
    fits_id = not gpus.pci_ids or gpu.pci_device_id is None or gpu.pci_device_id.lower() in gpus.pci_ids
    return gpu.name is None or (gpu.name in gpus.names and fits_id)


def _other_kind(gpu: nvml.Gpu, device: str, all_wrong: bool, subject: Subject) -> Finding:
    """One odd GPU is a wrong part; eight of them are a wrong record."""
    told = f"NVML calls it {gpu.name!r} ({gpu.pci_device_id}), the SKU has {' or '.join(subject.sku.gpus.names)}"
    return not_run("other_sku", told, device) if all_wrong else failed("wrong_gpu", told, device)


def _facts(seen: nvml.GpuInventory) -> dict[str, Any]:
    read = {"index", "uuid", "serial", "name", "pci_bus_id", "pci_device_id", "memory_total_mib", "ecc_enabled"}
    read |= {"ecc_volatile_uncorrected", "ecc_aggregate_uncorrected", "remapped_rows", "nvlinks_active", "pcie"}
    read |= {"temperature_c", "power_w", "throttle_reasons", "error"}
    return {
        "driver_version": seen.driver_version,
        "nvml_version": seen.nvml_version,
        "gpus_seen": len(seen.gpus),
        "gpus": [gpu.model_dump(include=read) for gpu in seen.gpus],
    }


CHECK = Check(NAME, "GPU inventory", judge, argv=argv, deadline_s=120, output_limit_bytes=1 << 20, options=Options)
