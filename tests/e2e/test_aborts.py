"""Aborted: the VM is gone, the machine is in its prior state, nobody is condemned."""

import pytest

from tests.e2e.hardware import hardware, recording
from tests.e2e.host import Host
from tests.e2e.service import RealService

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]


@pytest.mark.parametrize("phase", ["place", "boot", "checks"])
def test_abort_restores_the_machine(service: RealService, host: Host, phase: str) -> None:
    host.show(hardware(gpu_burn=recording("gpu-burn/a100x8-ok-cr-progress.txt", seconds=120)))
    service.add("e2e-02", "available")
    validation = service.validate("e2e-02", "burn")
    service.reached(validation, phase)
    service.post(f"/v1/validations/{validation}/abort", {"reason": "the rack is needed"})
    seen = service.verdict(validation)
    assert (seen["verdict"], seen["prior_state"]) == ("aborted", "available")
    assert "the rack is needed" in seen["reason"]
    assert service.machine("e2e-02")["state"] == "available"
    assert service.items("/v1/tickets") == []
    assert host.domains() == []


def test_missing_tool_aborts_and_says_so(service: RealService, host: Host) -> None:
    host.show(hardware(gpu_burn=None))
    service.add("e2e-03", "vacated")
    seen = service.verdict(service.validate("e2e-03", "burn"))
    assert seen["verdict"] == "aborted"
    assert "gpu_burn" in seen["reason"]
    assert service.machine("e2e-03")["state"] == "vacated"
    assert service.items("/v1/tickets") == []
    assert host.domains() == []


def test_vm_that_cannot_be_placed_aborts_with_the_words_of_libvirt(service: RealService, host: Host) -> None:
    service.add("e2e-04", "available")
    with host.without_scratch_disk():
        seen = service.verdict(service.validate("e2e-04", "e2e"))
    assert seen["verdict"] == "aborted"
    assert "scratch.img" in seen["reason"]
    assert service.machine("e2e-04")["state"] == "available"
