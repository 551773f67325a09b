"""One host for all tests of a worker; nothing on it outlives a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.hypervisor.libvirt import Libvirt
from fleet.hypervisor.site import Flavor, ImageSpec, Site
from fleet.remote.ssh import SshPool
from tests.e2e.cable import Cable
from tests.e2e.host import HERE, Host, missing_parts, running
from tests.e2e.image import Image, image
from tests.e2e.service import RealService
from tests.needs import need

CMDLINE = "console=ttyS0 loglevel=4 panic=-1 nokaslr mitigations=off random.trust_cpu=on tsc=reliable no_timer_check"
MEMORY_MIB = 256


@pytest.fixture(scope="session")
def vm_image() -> Image:
    lacking = missing_parts()
    need(f"{', '.join(lacking)} (Debian: tools/system-packages, as root)", not lacking)
    return image()


@pytest.fixture(scope="session")
def running_host(vm_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with running(tmp_path_factory.mktemp("host")) as host:
        yield host


@pytest.fixture
def host(running_host: Host) -> Iterator[Host]:
    """With healthy hardware and no VM, before and after."""
    running_host.reset()
    yield running_host
    left = running_host.domains()
    for domain in left:  # so that the next test is judged by itself
        running_host.virsh("destroy", domain)
    assert left == []


@pytest.fixture(scope="session")
def site(vm_image: Image) -> Site:
    return Site(
        image=ImageSpec(str(vm_image.root), kernel=str(vm_image.kernel), initrd=str(vm_image.initrd), cmdline=CMDLINE),
        flavor=Flavor(vcpus=1, memory_mib=MEMORY_MIB, cpu="maximum"),
        template_dir=HERE / "site",
    )


@pytest.fixture
def hypervisor(site: Site) -> Iterator[Libvirt]:
    pool = SshPool()
    yield Libvirt(pool, site)
    pool.close()


@pytest.fixture
def cable(host: Host) -> Iterator[Cable]:
    with Cable(host.ssh_port) as cable:
        yield cable


@pytest.fixture
def service(site: Site, host: Host, cable: Cable, tmp_path: Path) -> Iterator[RealService]:
    service = RealService(tmp_path / "service", site, host, cable)
    service.start()
    yield service
    service.stop()
