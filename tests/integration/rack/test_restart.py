"""The service with its rack, ended in the middle and started again, and reality turning out otherwise than events said: over
HTTP, as the provider's control plane and operators see it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fleet.app import rack
from fleet.lab import manifest
from fleet.lab.client import LabClient
from tests.integration.rack.crashing import PLAYBOOKS, SHORT
from tests.integration.rack.service import Service

ENV = {
    "FLEET_PLAYBOOKS__DIRECTORIES": json.dumps([str(PLAYBOOKS)]),
    "FLEET_VALIDATION__DEFAULT_PLAN": "short-all",  # some seconds, so that something can happen meanwhile
    "FLEET_VALIDATION__MINIMUM_CHECKS": json.dumps(SHORT["minimum_checks"]),
    "FLEET_VALIDATION__HOST_LOOK_S": "0.5",
    "FLEET_BUDGETS__PER_RACK": "8",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = Service(tmp_path_factory.mktemp("restart"), 9, ENV)
    running.start()
    yield running
    running.stop()


def control(service: Service) -> LabClient:
    return rack.client(manifest.read(service.home / "lab" / "lab.json"))


def event(service: Service, id_: str, kind: str, machine: str, instance: str) -> str:
    body = {"id": id_, "kind": f"instance.{kind}", "machine": machine, "instance": instance}
    return str(service.post("/v1/events", body)["state"])


def in_state(service: Service, machine: str, state: str) -> Any:
    service.until(lambda: service.machine(machine)["state"] == state, 90.0, lambda: str(service.machine(machine)))
    return service.machine(machine)


def validations(service: Service, machine: str) -> list[Any]:
    return service.items(f"/v1/validations?machine={machine}")


def attention(service: Service, machine: str) -> list[Any]:
    return service.items(f"/v1/attention?machine={machine}")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_in_the_middle_condemns_nothing(service: Service, end: str) -> None:
    machines = ("lab-02", "lab-03", "lab-04") if end == "stop" else ("lab-05", "lab-06", "lab-07")
    asked = {machine: service.validate(machine, "short-all") for machine in machines}
    service.in_phase(asked[machines[0]], "checks")
    getattr(service, end)()
    service.start()
    for machine, id_ in asked.items():
        validation = service.settled(id_)
        assert validation["verdict"] in ("passed", "aborted")
        assert validation["reason"]
        assert (service.machine(machine)["state"], attention(service, machine)) == ("available", [])
        assert len(validations(service, machine)) == 1
    assert service.items("/v1/tickets") == []
    assert service.test_vms() == []


def test_a_tenant_that_appears_during_a_validation_has_the_machine(service: Service) -> None:
    id_ = service.validate("lab-08", "short-all")
    service.in_phase(id_, "checks")
    control(service).place_tenant("lab-08", "uninvited")
    validation = service.settled(id_)
    assert (validation["verdict"], validation["reason"]) == ("aborted", "tenant domain on the host: uninvited")
    assert service.machine("lab-08")["state"] == "allocated"
    assert [row["kind"] for row in attention(service, "lab-08")] == ["tenant appeared"]
    domains = next(row["domains"] for row in service.items("/v1/lab/machines") if row["name"] == "lab-08")
    assert len(domains) == 1
    assert domains[0]["instance"] is not None


def test_a_tenant_said_to_stay_is_back_when_no_validation_has_begun(service: Service) -> None:
    """A paused fleet begins none, and the tenant comes back all the same."""
    service.post("/v1/pause", {"reason": "a test"})
    assert event(service, "k-1", "migrated", "lab-01", "tenant-1") == "applied"
    assert service.machine("lab-01")["state"] == "vacated"
    assert event(service, "k-2", "kept", "lab-01", "tenant-1") == "waiting"
    machine = in_state(service, "lab-01", "allocated")
    assert [i["id"] for i in machine["instances"]] == ["tenant-1"]
    assert (attention(service, "lab-01"), validations(service, "lab-01")) == ([], [])
    service.post("/v1/resume", {})


def test_a_tenant_said_to_stay_ends_the_validation(service: Service) -> None:
    before = {row["id"] for row in validations(service, "lab-01")}
    event(service, "k-3", "migrated", "lab-01", "tenant-1")
    in_state(service, "lab-01", "validating")
    event(service, "k-4", "kept", "lab-01", "tenant-1")
    machine = in_state(service, "lab-01", "allocated")
    assert [i["id"] for i in machine["instances"]] == ["tenant-1"]
    (validation,) = [row for row in validations(service, "lab-01") if row["id"] not in before]
    assert validation["verdict"] == "aborted"
    assert "rolled back, tenant-1 stays" in validation["reason"]
    assert (attention(service, "lab-01"), service.test_vms()) == ([], [])


def test_a_departure_leads_to_the_pool_and_on_to_who_waits(service: Service) -> None:
    """The next tenant's arrival is reported before the last one's departure."""
    assert event(service, "o-1", "placed", "lab-09", "vm-1") == "applied"
    assert event(service, "o-2", "placed", "lab-09", "vm-2") == "waiting"
    assert event(service, "o-3", "removed", "lab-09", "vm-1") == "applied"
    machine = in_state(service, "lab-09", "allocated")
    assert [i["id"] for i in machine["instances"]] == ["vm-2"]
    (validation,) = validations(service, "lab-09")
    assert (validation["verdict"], validation["trigger"], validation["prior_state"]) == ("passed", "vacated", "vacated")
    moves = [row["action"] for row in service.items("/v1/audit?machine=lab-09&limit=100")]
    told = [action for action in reversed(moves) if action.startswith("machine.")]
    assert told[-5:] == [
        "machine.allocated",
        "machine.vacated",
        "machine.validation_started",
        "machine.passed",
        "machine.allocated",
    ]
