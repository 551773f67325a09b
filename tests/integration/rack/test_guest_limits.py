"""A guest whose disk is full, whose clock is years behind, that prints without end, whose console has a gigabyte: it costs the
service and the rack no more memory than any other, and what could not be measured says why."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rack.service import Service

CAP_MIB = 32  # of one output, the default
MEMORY_LIMIT_MIB = 400
MACHINES = {"output-flood": "lab-02", "disk-full": "lab-03", "clock-wrong": "lab-04", "console": "lab-05"}


@dataclass
class Done:
    service: Service
    validations: dict[str, Any]
    peaks_mib: dict[str, int]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    service = Service(tmp_path_factory.mktemp("limits"), len(MACHINES) + 1)
    service.start()
    try:
        for fault, machine in MACHINES.items():
            if fault != "console":
                service.break_(machine, fault)
        asked = {fault: service.validate(machine) for fault, machine in MACHINES.items()}
        service.in_phase(asked["console"], "checks")
        _grow_console(service.home / "lab", MACHINES["console"], asked["console"])
        validations = {fault: service.settled(id_) for fault, id_ in asked.items()}
        yield Done(service, validations, {name: _peak_mib(pid) for name, pid in service.pids().items()})
    finally:
        service.stop()


def _grow_console(lab: Path, machine: str, validation: str) -> None:
    with (lab / "machines" / machine / "state" / validation / "console.log").open("ab") as console:
        console.truncate(1 << 30)


def _peak_mib(pid: int) -> int:
    """The most memory that the process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM"))


def test_endless_output_is_cut_and_says_so(done: Done) -> None:
    validation = done.validations["output-flood"]
    assert validation["verdict"] == "aborted"
    assert "printed more than is allowed" in validation["reason"]
    logs = done.service.items(f"/v1/validations/{validation['id']}/logs")
    flood = next(log for log in logs if log["id"] == "gpu_burn/stdout")
    assert flood["truncated"]
    assert 1 << 20 < flood["bytes"] <= CAP_MIB << 20


def test_a_full_disk_is_named(done: Done) -> None:
    validation = done.validations["disk-full"]
    assert validation["verdict"] == "aborted"
    assert "disk" in validation["reason"]


def test_a_clock_years_behind_is_none_of_our_business(done: Done) -> None:
    assert done.validations["clock-wrong"]["verdict"] == "passed"


def test_a_gigabyte_of_console_condemns_nothing_and_is_cut(done: Done) -> None:
    validation = done.validations["console"]
    assert validation["verdict"] in ("passed", "aborted")
    logs = done.service.items(f"/v1/validations/{validation['id']}/logs")
    assert next(log["bytes"] for log in logs if log["id"] == "kernel_log.console/stdout") <= 1 << 20


@pytest.mark.parametrize("process", ["service", "lab"])
def test_memory_stays_bounded(done: Done, process: str) -> None:
    assert done.peaks_mib[process] < MEMORY_LIMIT_MIB


def test_the_machines_are_in_the_pool_again(done: Done) -> None:
    assert [done.service.machine(machine)["state"] for machine in MACHINES.values()] == ["available"] * len(MACHINES)
    assert done.service.test_vms() == []
