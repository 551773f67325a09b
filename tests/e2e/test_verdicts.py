"""The main job on real parts: a tenant leaves, a real VM is placed, and each verdict is settled, while the service is killed
and cut off."""

import time
from typing import Any

import pytest

from tests.e2e.cable import Cable
from tests.e2e.hardware import hardware, recording
from tests.e2e.host import HERE, Host
from tests.e2e.service import LONG_S, RealService

pytestmark = [pytest.mark.real, pytest.mark.timeout(500)]
TENANT = "7e7a1700-0000-4000-8000-000000000001"  # of foreign.xml
CUT_S = 3.0
CHECKS = {"gpu_inventory", "ib_links", "gpu_burn", "nccl", "ib_bandwidth", "storage", "kernel_log"}


def test_machine_passes_past_kills_and_fails_past_cuts(service: RealService, host: Host, cable: Cable) -> None:
    """In one service, because new limits and a new image condemn nothing before they have passed a machine."""
    first = passed_after_the_tenant_left(service, host)
    assert first["verdict"] == "passed", first["reason"]
    assert {check["check"]: check["outcome"] for check in first["checks"] if check["check"] in CHECKS} == dict.fromkeys(
        CHECKS, "passed"
    )
    assert service.machine("e2e-01")["state"] == "available"
    assert service.items("/v1/tickets") == []
    assert host.domains() == []

    host.show(hardware(gpu_burn=recording("gpu-burn/h100x8-one-died-midrun-reconstructed.txt", seconds=4, status=1)))
    second = cut_off_three_times(service, cable)
    assert second["verdict"] == "failed", second["reason"]
    assert "gpu5" in second["reason"] or "GPU 5" in second["reason"]
    assert service.machine("e2e-01")["state"] == "failed"
    (ticket,) = service.items("/v1/tickets")
    assert (ticket["machine"], ticket["state"], ticket["validation"]) == ("e2e-01", "open", second["id"])
    log = service.request("GET", f"/v1/validations/{second['id']}/logs/gpu_burn/stdout").text
    assert "GPU 5: FAULTY" in log
    assert host.domains() == []


def passed_after_the_tenant_left(service: RealService, host: Host) -> Any:
    """Killed while it places, while checks run and while the VM is taken down."""
    host.virsh("create", "--paused", str(HERE / "foreign.xml"))
    service.add("e2e-01", "allocated", "tenant-1")
    service.post(
        "/v1/events", {"id": "event-1", "kind": "instance.removed", "machine": "e2e-01", "instance": "tenant-1"}
    )
    assert service.machine("e2e-01")["state"] == "vacated"
    time.sleep(2)  # long enough for a service that does not wait for the hypervisor
    assert service.items("/v1/validations") == []
    assert host.domains() == [TENANT]
    host.virsh("destroy", TENANT)

    service.until(lambda: service.items("/v1/validations"), LONG_S, lambda: "no validation was started")
    (validation,) = service.items("/v1/validations")
    for phase in ("place", "checks", "teardown"):
        service.reached(validation["id"], phase)
        service.kill()
        service.start()
    return service.verdict(validation["id"])


def cut_off_three_times(service: RealService, cable: Cable) -> Any:
    validation = service.validate("e2e-01", "e2e")
    for phase in ("boot", "checks", "teardown"):
        service.reached(validation, phase)
        cable.cut()
        time.sleep(CUT_S)
        cable.mend()
    return service.verdict(validation)
