"""Every fault of the simulated rack, each in a machine of its own, all at once: the verdict that the fault's row promises,
one ticket for what is condemned, none for what is not, and no test VM left."""

from collections.abc import Iterator
from typing import Any

import pytest

from fleet.lab.faults import FAULTS
from tests.integration.rack.service import Service

MACHINES = {fault: f"lab-{number:02}" for number, fault in enumerate(FAULTS, 2)}  # lab-01 has a tenant
AWAY = {"host-dies", "network-cut", "virsh-hangs"}  # what the host looks like at the end cannot be seen


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, Any]]]:
    """The service after one validation of each broken machine."""
    env = {"FLEET_BUDGETS__PER_RACK": "6", "FLEET_VALIDATION__CALL_DEADLINE_S": "4"}
    service = Service(tmp_path_factory.mktemp("faults"), len(FAULTS) + 1, env)
    service.start()
    try:
        for fault, machine in MACHINES.items():
            service.break_(machine, fault)
        open_ = {fault: service.validate(machine) for fault, machine in MACHINES.items()}
        yield service, {fault: service.settled(id_, 240.0) for fault, id_ in open_.items()}
    finally:
        service.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_verdict_is_the_one_that_the_fault_deserves(rack: tuple[Service, dict[str, Any]], fault: str) -> None:
    service, validations = rack
    validation = validations[fault]
    assert validation["verdict"] == FAULTS[fault].expect, validation["reason"]
    machine = service.machine(MACHINES[fault])
    tickets = service.items(f"/v1/tickets?machine={MACHINES[fault]}")
    told = service.items(f"/v1/attention?machine={MACHINES[fault]}")
    match validation["verdict"]:
        case "passed":
            assert (machine["state"], tickets, told) == ("available", [], [])
        case "failed":
            assert machine["state"] == "failed"
            assert [t["validation"] for t in tickets] == [validation["id"]]
        case _:
            assert tickets == []
            assert machine["state"] in ("available", "vacated")
            assert bool(told) == (machine["state"] == "vacated")


@pytest.mark.timeout(300)
def test_no_test_vm_is_left_on_any_host(rack: tuple[Service, dict[str, Any]]) -> None:
    service, _ = rack
    assert service.test_vms() == []
