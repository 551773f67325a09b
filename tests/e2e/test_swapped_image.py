"""The test image on a real host: another file than the stated one places no VM, and one that has passed no machine yet condemns
none, however bad what it measures looks."""

import hashlib

import pytest

from tests.e2e.hardware import hardware, recording
from tests.e2e.host import Host
from tests.e2e.image import Image
from tests.e2e.service import RealService

pytestmark = [pytest.mark.real, pytest.mark.timeout(500)]
DIGEST = "FLEET_HYPERVISOR__IMAGE_DIGEST"


def test_a_swapped_image_places_no_vm_and_a_new_one_condemns_nothing(
    service: RealService, host: Host, vm_image: Image
) -> None:
    there = {
        part: hashlib.sha256(path.read_bytes()).hexdigest()
        for part, path in (("image", vm_image.root), ("kernel", vm_image.kernel), ("initrd", vm_image.initrd))
    }
    service.add("e2e-01", "available")
    restarted(service, "0" * 64)
    refused = service.verdict(service.validate("e2e-01", "e2e"))
    assert refused["verdict"] == "aborted"
    assert f"its SHA-256 is {there['image']}, hypervisor.image_digest says {'0' * 64}" in refused["reason"]
    assert "place" not in {phase["phase"] for phase in refused["phases"]}
    assert service.machine("e2e-01")["state"] == "available"

    host.show(hardware(gpu_burn=recording("gpu-burn/h100x8-one-died-midrun-reconstructed.txt", status=1)))
    restarted(service, there["image"])
    measured = service.verdict(service.validate("e2e-01", "e2e"))
    assert measured["verdict"] == "aborted"
    assert "has not passed any e2e-soft machine yet" in measured["reason"]
    assert service.items("/v1/tickets") == []
    image = measured["image"]
    assert (image["seen"], image["seen_digest"]) == (there, there["image"])
    assert image["versions"]["profile"] == "cpu"
    assert {"fio", "perftest", "linux"} <= set(image["versions"]["packages"])


def restarted(service: RealService, digest: str) -> None:
    service.stop()
    service.env[DIGEST] = digest
    service.start()
