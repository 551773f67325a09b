"""Every check there is, by name: to add one, write its file and list it here."""

from . import gpu_burn, gpu_inventory, ib_bandwidth, ib_links, kernel_log, nccl, storage

CHECKS = {
    check.name: check
    for check in (
        gpu_inventory.CHECK,
        ib_links.CHECK,
        gpu_burn.CHECK,
        nccl.CHECK,
        ib_bandwidth.CHECK,
        storage.CHECK,
        kernel_log.CHECK,
    )
}
