"""What a site says about its test VMs, as plain values; fleet.app makes it from the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.model import Machine


@dataclass(frozen=True)
class ImageSpec:
    """The test image, by its paths on the host. With a kernel it is booted directly and the disk is read-only; without
    one the disk boots and what the guest writes to it is thrown away."""

    path: str
    format: str = "raw"  # or "qcow2"
    kernel: str | None = None
    initrd: str | None = None
    cmdline: str = "root=/dev/vda console=ttyS0"

    @property
    def files(self) -> Mapping[str, str]:
        """Paths on the host by part: all that the VM is made from."""
        parts = {"image": self.path, "kernel": self.kernel, "initrd": self.initrd}
        return {part: path for part, path in parts.items() if path is not None}


@dataclass(frozen=True)
class Flavor:
    """The size that a tenant's VM has on this hardware."""

    vcpus: int
    memory_mib: int
    hugepages: bool = False
    cpu: str = "host-passthrough"  # libvirt's cpu mode


@dataclass(frozen=True)
class Site:
    image: ImageSpec
    flavor: Flavor
    flavors: Mapping[str, Flavor] = field(default_factory=dict)  # by SKU, where it differs from `flavor`
    sudo: bool = False  # run the host's scripts by `sudo -n`
    template_dir: Path | None = None  # a domain.xml.j2 in it replaces ours
    network: str = "fleet-test"  # libvirt network of the host, without a route to anywhere else
    start_deadline_s: int = 900

    def flavor_of(self, machine: Machine) -> Flavor:
        return self.flavors.get(machine.sku, self.flavor)
