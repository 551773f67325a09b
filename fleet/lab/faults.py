"""The faults that can be put into a simulated machine and taken out again. The table is what `fleet lab faults` prints."""

from dataclasses import asdict, dataclass

from fleet.core.errors import NotFound


@dataclass(frozen=True)
class Fault:
    """`expect` is the verdict of a standard validation of a machine with this fault; `where` it sits."""

    name: str
    title: str
    expect: str
    where: str


_ROWS = (
    Fault("faulty-gpu", "one GPU computes wrong results in the burn", "failed", "guest"),
    Fault("missing-gpu", "one GPU is not on the host's PCI bus", "failed", "host"),
    Fault("gpu-lost-under-load", "one GPU falls off the bus during the burn (Xid 79)", "failed", "guest"),
    Fault("slow-nccl", "the all-reduce reaches a third of its bandwidth", "failed", "guest"),
    Fault("wrong-nccl-data", "the all-reduce delivers wrong values", "failed", "guest"),
    Fault("rail-down", "one InfiniBand port is down", "failed", "guest"),
    Fault("slow-rail", "one InfiniBand port moves a quarter of its bandwidth", "failed", "guest"),
    Fault("disk-errors", "writes to the scratch disk fail with I/O errors", "failed", "guest"),
    Fault("vm-not-placed", "the hypervisor cannot start a VM", "aborted", "host"),
    Fault("guest-never-boots", "the test VM starts, its kernel panics", "aborted", "guest"),
    Fault("guest-hangs-in-burn", "the guest hangs in the burn, with an Xid 79 on its console", "failed", "guest"),
    Fault("ssh-drops", "connections to the guest break again and again", "passed", "network"),
    Fault("host-dies", "the host goes down at once and boots again when mended", "aborted", "host"),
    Fault("network-cut", "the host accepts connections and answers nothing", "aborted", "network"),
    Fault("virsh-hangs", "virsh does not answer", "aborted", "host"),
    Fault("virsh-lies", "virsh says running, and nothing runs", "aborted", "host"),
    Fault("device-not-back", "one GPU does not come back when the VM is gone", "failed", "host"),
    Fault("tool-missing", "gpu_burn is not installed in the test image", "aborted", "guest"),
    Fault("garbage-output", "all_reduce_perf prints garbage with terminal control codes", "aborted", "guest"),
    Fault("output-flood", "gpu_burn prints without end", "aborted", "guest"),
    Fault("disk-full", "the guest's disk is full", "aborted", "guest"),
    Fault("clock-wrong", "the guest's clock is years behind", "passed", "guest"),
)
FAULTS = {fault.name: fault for fault in _ROWS}


def known(name: str) -> Fault:
    """Raises NotFound, naming what there is."""
    try:
        return FAULTS[name]
    except KeyError:
        raise NotFound(f"there is no fault {name[:80]!r}; there are: {', '.join(FAULTS)}") from None


def rows() -> list[dict[str, str]]:
    return [asdict(fault) for fault in _ROWS]
