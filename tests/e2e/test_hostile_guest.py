"""What a guest does to itself is bounded and says nothing about the hardware."""

import pytest

from tests.e2e.hardware import hardware
from tests.e2e.host import Host
from tests.e2e.service import RealService

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

WRONG_CLOCK_AND_ENDLESS_OUTPUT = """#!/bin/sh
date -s 1999-01-01
exec yes '100.0%  proc d: 1 (17000 Gflop/s)   errors: 0   temps: 50 C'
"""
FULL_DISK = """#!/bin/sh
dd if=/dev/zero of=/root/filler bs=1M
dd if=/dev/zero of=/root/rest bs=1
exec yes 'not a byte of this can be kept'
"""


@pytest.mark.parametrize(
    ("script", "reason"),
    [(WRONG_CLOCK_AND_ENDLESS_OUTPUT, "printed more than is allowed"), (FULL_DISK, "disk is full")],
    ids=["output", "disk"],
)
def test_bounded_and_aborted_with_the_reason(service: RealService, host: Host, script: str, reason: str) -> None:
    host.show(hardware(gpu_burn={"script": script}))
    service.add("e2e-05", "vacated")
    seen = service.verdict(service.validate("e2e-05", "burn"))
    assert seen["verdict"] == "aborted"
    assert reason in seen["reason"]
    kept = sum(log["bytes"] for log in service.items(f"/v1/validations/{seen['id']}/logs"))
    assert kept < 64 << 20
    assert service.machine("e2e-05")["state"] == "vacated"
    assert service.items("/v1/tickets") == []
