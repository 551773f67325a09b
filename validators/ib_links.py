"""ib_links: every rail is up, at its rate, and its error counters stay still between two readings."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from validators import rails
from validators.base import Check, CheckResult, Finding, Measurement, Subject, conclude, failed, not_run, passed
from validators.record import incomplete, not_applicable, of_check, options, unreadable
from validators.sku import Rails, Strict
from validators.tools import infiniband_sysfs
from validators.tools.errors import ParseError
from validators.tools.infiniband_sysfs import IbPort, code
from validators.tools.lines import printable

NAME = "ib_links"
_ACTIVE, _LINK_UP = 4, 5
_WAITS_FOR_SUBNET_MANAGER = {2: "INIT", 3: "ARMED"}
# any rise is a fault (NVIDIA/NVSentinel, link counter detection)
_FATAL_COUNTERS = ("link_downed", "local_link_integrity_errors", "excessive_buffer_overrun_errors")
# the symbol error rate that NVSentinel calls fatal; the InfiniBand bit error limit of 1e-12 allows a few
_SYMBOL_ERRORS_PER_HOUR = 120


class Options(Strict):
    """`settle_s`: how long links may take after the boot until they are trained."""

    settle_s: Annotated[int, Field(ge=0, le=100)] = 40


def argv(subject: Subject) -> tuple[str, ...]:
    wanted = subject.sku.rails
    if wanted is None:
        return ("@measure", NAME)
    waits = ("--expect", str(wanted.count), "--settle-s", str(options(Options, subject).settle_s))
    return ("@measure", NAME, "--link-layer", wanted.link_layer, *waits)


def judge(measurements: Sequence[Measurement], subject: Subject) -> CheckResult:
    if skipping := not_applicable(NAME, subject):
        return skipping
    expected = subject.sku.rails
    if expected is None or not expected.count:
        return conclude(
            NAME, [not_run("no_rails", f"SKU {subject.sku.sku} declares no rails and does not skip {NAME}")]
        )
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    earlier: dict[str, IbPort | None] = {}
    started_at: float | None = None
    for measurement in of_check(NAME, measurements):
        findings += incomplete(measurement, NAME)
        try:
            seen = infiniband_sysfs.parse(measurement.stdout)
        except ParseError as exc:
            findings.append(unreadable(measurement, NAME, exc))
            continue
        facts[measurement.name] = {"ports": [_facts(port) for port in seen.ports], "ports_seen": len(seen.ports)}
        if seen.error is not None and not seen.ports:
            findings.append(not_run("not_measured", f"{NAME}: {printable(seen.error)}"))
            continue
        candidates = [p for p in seen.ports if p.link_layer in (expected.link_layer, None) and not p.is_bond]
        found = rails.match(candidates, subject)
        hours = _hours(started_at, measurement.started_at)
        strange = len(candidates) - sum(port is not None for port in found.values())
        findings += _rails(found, earlier, hours, expected, strange)
        earlier, started_at = found, measurement.started_at
    limits: dict[str, Any] = {
        "rails": expected.count,
        "rate_gbps": expected.rate_gbps,
        "link_layer": expected.link_layer,
    }
    limits |= {"symbol_errors_per_hour": _SYMBOL_ERRORS_PER_HOUR, "source": f"SKU {subject.sku.sku}"}
    return conclude(NAME, findings, facts, limits)


def _hours(before: float | None, now: float | None) -> float | None:
    """Between two readings by the guest's clock, at most a day; None where the clock cannot be right: it was set back."""
    return min(24.0, (now - before) / 3600) if before is not None and now is not None and now >= before else None


def _rails(
    found: dict[str, IbPort | None],
    earlier: dict[str, IbPort | None],
    hours: float | None,
    expected: Rails,
    strange: int,
) -> Iterator[Finding]:
    """`strange` ports are not in the slot map. As many as are missing are no missing rails but an old map: a card that was
    replaced has other GUIDs."""
    after = " after the stress" if earlier else ""
    present = sum(port is not None for port in found.values())
    for name, port in found.items():
        if port is None:
            lost = earlier.get(name) is not None
            reason = f"no {expected.link_layer} port of this rail is there{after}; {present} of {expected.count} are"
            if not lost and strange >= len(found) - present:
                reason += f", and {strange} that the slot map does not have: was a card replaced?"
                yield not_run("unknown_port", reason, name)
            else:
                yield failed("lost_under_load" if lost else "missing", reason, name)
            continue
        findings = list(_port(port, name, after, expected))
        findings += _rises(earlier.get(name), port, name, hours)
        yield from findings or [passed("link_up", f"{port.device}: ACTIVE, {port.rate}{after}", name)]
    if len(found) < expected.count:
        gone = sorted(set(earlier) - set(found))
        for name in gone:
            yield failed("lost_under_load", f"the port is gone{after}", name)
        if not gone:
            yield failed("missing", f"{len(found)} of {expected.count} {expected.link_layer} rails are there{after}")
    elif len(found) > expected.count:
        reason = f"{len(found)} {expected.link_layer} ports, the SKU has {expected.count} rails: a slot map must tell them apart"
        yield not_run("ambiguous_rails", reason)


def _port(port: IbPort, name: str, after: str, expected: Rails) -> Iterator[Finding]:
    state, phys_state, rate = code(port.state), code(port.phys_state), port.rate_gbps
    if state is None or phys_state is None or port.link_layer is None:
        what = ", ".join(f"{file} {why}" for file, why in sorted(port.errors.items())[:3]) or "no text as sysfs has it"
        yield not_run("not_measured", f"{port.device}: its state cannot be read{after} ({printable(what, 120)})", name)
        return
    shown = f"{port.device} is {printable(port.state or '', 40)}, {printable(port.phys_state or '', 40)}{after}"
    if phys_state != _LINK_UP:
        yield failed("link_down", shown, name)
    elif state in _WAITS_FOR_SUBNET_MANAGER:
        yield not_run("not_configured", f"{shown}: the link is up, the subnet manager has not configured it", name)
    elif state != _ACTIVE:
        yield failed("link_down", shown, name)
    elif rate is None:
        yield not_run("not_measured", f"{port.device}: its rate cannot be read{after}", name)
    elif rate < expected.rate_gbps:
        yield failed("slow_link", f"{port.device} runs at {port.rate}{after}, expected {expected.rate_gbps} Gb/s", name)


def _rises(before: IbPort | None, port: IbPort, name: str, hours: float | None) -> Iterator[Finding]:
    if before is None:
        return
    for counter in _FATAL_COUNTERS:
        if rise := _rise(before.counters.get(counter), port.counters.get(counter)):
            yield failed("counter_rose", f"{port.device}: {counter} rose by {rise} under load", name)
    rise = _rise(before.counters.get("symbol_error"), port.counters.get("symbol_error"))
    if not rise:
        return
    said = f"{port.device}: symbol_error rose by {rise} under load"
    if hours is None:
        yield not_run("no_rate", f"{said}, in a time that the guest's clock does not tell", name)
    elif rise > (allowed := _SYMBOL_ERRORS_PER_HOUR * hours):
        yield failed("counter_rose", f"{said}, allowed {allowed:.0f}", name)


def _rise(before: int | None, now: int | None) -> int:
    """A lower value than before means that the counter was cleared: all of it is new."""
    if before is None or now is None:
        return 0
    return now - before if now >= before else now


def _facts(port: IbPort) -> dict[str, Any]:
    read = {
        "device",
        "port",
        "pci",
        "port_guid",
        "fw_ver",
        "hca_type",
        "state",
        "phys_state",
        "link_layer",
        "netdev",
        "counters",
    }
    return port.model_dump(include=read) | {"rate_gbps": port.rate_gbps}


CHECK = Check(NAME, "InfiniBand links", judge, argv=argv, deadline_s=120, output_limit_bytes=2 << 20, options=Options)
