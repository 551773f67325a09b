"""What the host itself must have: programs, a place for our files, a clock, memory, virtualisation."""

from collections.abc import Iterator

from fleet.core.model import Machine
from fleet.hypervisor.domain_needs import Needs
from fleet.hypervisor.inspected_host import Host
from fleet.hypervisor.inspector import PACKAGES, TOOLS
from fleet.hypervisor.site import Flavor
from fleet.workflows.prerequisites.row import Row, met, missing, not_tried

NAMES = ("tools", "kernel log", "state directory", "fence", "clock", "kvm", "iommu", "vfio", "cpus", "memory")
CLOCK_S = 30.0
"""How far the host's clock may be from the database's: people lay its kernel log beside our times."""
_STATE_KIB = 64 << 10  # seeds, consoles and digests of many validations


def rows(machine: Machine, host: Host, now: float, needs: Needs | None, flavor: Flavor, busy: bool) -> Iterator[Row]:
    """`now`: the database's time of the answer. `busy`: a VM is running, and has memory that a test VM would have."""
    yield _tools(host)
    yield _kernel_log(machine, host)
    yield _state(machine, host)
    yield _fence(host, now)
    yield _clock(host, now)
    if needs is None:
        yield from (not_tried(name, "the domain template does not render") for name in ("kvm", "iommu", "vfio"))
    else:
        yield _kvm(host, needs)
        yield _iommu(host, needs)
        yield _vfio(host, needs)
    yield _cpus(host, flavor)
    yield _memory(host, flavor, busy)


def unreached(why: str) -> Iterator[Row]:
    return (not_tried(name, why) for name in NAMES)


def _tools(host: Host) -> Row:
    lacking = [tool for tool in TOOLS if tool not in host.tools]
    if not lacking:
        return met("tools", f"all {len(TOOLS)} that the scripts call")
    packages = [package for package, tools in PACKAGES.items() if not host.tools.issuperset(tools)]
    return missing("tools", f"not in PATH: {', '.join(lacking)}", f"apt-get install {' '.join(packages)}")


def _kernel_log(machine: Machine, host: Host) -> Row:
    if host.kernel_log:
        return met("kernel log", f"read by {host.kernel_log}")
    return missing(
        "kernel log",
        "neither journalctl nor dmesg shows this user the kernel's lines",
        f"usermod -aG systemd-journal {machine.ssh.user} (or `kernel.dmesg_restrict = 0` in /etc/sysctl.d)",
    )


def _state(machine: Machine, host: Host) -> Row:
    path, seen = host.state_path, host.state
    if seen is None:
        return not_tried("state directory", f"{path}: the host did not say")
    if seen.refused:
        return missing(
            "state directory",
            f"{host.user} may not write to {seen.nearest}",
            f"install -d -o {machine.ssh.user} -m 711 {path}",
        )
    if seen.free_kib is not None and seen.free_kib < _STATE_KIB:
        return missing(
            "state directory",
            f"{seen.nearest} has {seen.free_kib >> 10} MiB free, {_STATE_KIB >> 10} are needed",
            f"make room below {seen.nearest}: `du -xh {seen.nearest} | sort -h | tail`",
        )
    there = "is there" if seen.nearest == path else f"will be made below {seen.nearest}"
    return met("state directory", f"{path} {there}" + (f", {seen.free_kib >> 10} MiB free" if seen.free_kib else ""))


def _fence(host: Host, now: float) -> Row:
    path = f"{host.state_path}/fence"
    if host.fence is None:
        return missing("fence", f"{path} is damaged: it must hold two numbers, run and epoch", _no_fence(path))
    run, epoch = host.fence
    if run == 0:
        return met("fence", "no validation has been here yet")
    if run / 1000 > now + CLOCK_S:
        return missing(
            "fence",
            f"{path} is at run {run}, {run / 1000 - now:.0f} s later than the database's clock: no test VM would start",
            f"set the database's clock right; or, if the database was restored, {_no_fence(path)}",
        )
    return met("fence", f"run {run}, epoch {epoch}: older than the next validation")


def _no_fence(path: str) -> str:
    return f"`virsh list --all` on the host; with no fleet-test domain on it: `rm {path}`"


def _clock(host: Host, now: float) -> Row:
    if host.wall is None:
        return not_tried("clock", "the host did not tell its time")
    off = host.wall - now
    seen = f"{abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} the database"
    if abs(off) <= CLOCK_S:
        return met("clock", seen)
    return missing("clock", f"{seen}, at most {CLOCK_S:.0f} are allowed", "apt-get install chrony; `chronyc makestep`")


def _kvm(host: Host, needs: Needs) -> Row:
    if needs.kind != "kvm":
        return met("kvm", f"not needed: the domain template makes a domain of type {needs.kind}")
    if host.kvm:
        return met("kvm", "/dev/kvm is there")
    return missing(
        "kvm", "there is no /dev/kvm", "switch on VT-x or AMD-V in the BIOS; `modprobe kvm_intel` or `modprobe kvm_amd`"
    )


def _iommu(host: Host, needs: Needs) -> Row:
    if not needs.passthrough:
        return met("iommu", "not needed: no device is passed through")
    if host.iommu_groups:
        return met("iommu", f"{host.iommu_groups} groups")
    return missing(
        "iommu",
        "the kernel has no IOMMU groups",
        f"switch on VT-d or AMD-Vi in the BIOS; on Intel also {_boot_option('intel_iommu=on iommu=pt')}",
    )


def _vfio(host: Host, needs: Needs) -> Row:
    if not needs.passthrough:
        return met("vfio", "not needed: no device is passed through")
    if host.vfio == "loaded":
        return met("vfio", "vfio-pci is loaded")
    if host.vfio:
        return met("vfio", "vfio-pci is there, libvirt loads it")
    return missing(
        "vfio", "the kernel has no vfio-pci", "echo vfio-pci > /etc/modules-load.d/fleet.conf; `modprobe vfio-pci`"
    )


def _cpus(host: Host, flavor: Flavor) -> Row:
    if host.cpus is None:
        return not_tried("cpus", "the host did not say how many it has")
    seen = f"{host.cpus} on the host, the flavour has {flavor.vcpus}"
    if host.cpus >= flavor.vcpus:
        return met("cpus", seen)
    return missing("cpus", seen, "lower `hypervisor.flavor.vcpus` (or `hypervisor.flavors.SKU.vcpus`) in the settings")


def _memory(host: Host, flavor: Flavor, busy: bool) -> Row:
    if flavor.hugepages:
        return _hugepages(host, flavor, busy)
    if host.memory_mib is None:
        return not_tried("memory", "the host did not say how much it has")
    total, available = host.memory_mib
    there, word = (total, "in all") if busy else (available, "available")
    seen = f"{there} MiB {word}, the flavour has {flavor.memory_mib}"
    if there >= flavor.memory_mib:
        return met("memory", seen)
    return missing(
        "memory",
        seen,
        "lower `hypervisor.flavor.memory_mib` (or `hypervisor.flavors.SKU.memory_mib`), or free memory on the host",
    )


def _hugepages(host: Host, flavor: Flavor, busy: bool) -> Row:
    """libvirt takes them of the kernel's default size; the largest pool of one size is what can be had."""
    pools = {size: number if busy else free for size, (number, free) in host.hugepages_kib.items()}
    size, pages = max(pools.items(), key=lambda pool: pool[0] * pool[1], default=(0, 0))
    there = size * pages >> 10
    word = "in all" if busy else "free"
    seen = f"{pages} hugepages of {size} KiB {word} ({there} MiB), the flavour has {flavor.memory_mib} MiB"
    if there >= flavor.memory_mib:
        return met("memory", seen)
    wanted = -(-flavor.memory_mib // 1024)
    return missing(
        "memory",
        seen if pages else f"no hugepages, the flavour has {flavor.memory_mib} MiB of them",
        _boot_option(f"default_hugepagesz=1G hugepagesz=1G hugepages={wanted}"),
    )


def _boot_option(words: str) -> str:
    return f'GRUB_CMDLINE_LINUX="{words}" in /etc/default/grub, `update-grub`, reboot'
