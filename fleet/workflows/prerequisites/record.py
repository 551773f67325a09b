"""What our own records must say of a machine: nothing of this needs the host."""

from collections.abc import Iterator

from fleet.core.model import Machine
from fleet.workflows.playbook import Playbook
from fleet.workflows.prerequisites.row import Row, met, missing, not_tried


def rows(machine: Machine, playbook: Playbook) -> Iterator[Row]:
    name = machine.name
    if machine.ssh.address:
        yield met("ssh record", f"{machine.ssh.user}@{machine.ssh.address}:{machine.ssh.port}, {machine.ssh.key_ref}")
    else:
        yield missing(
            "ssh record",
            "no SSH address is recorded",
            f"`fleet machine import FILE --update` with `ssh: {{address, user, host_key, key_ref}}` for {name}",
        )
    if playbook.sku is None:
        yield missing(
            "sku",
            playbook.sku_error,
            f"add skus/{machine.sku}.yaml to a directory of `playbooks.directories`, or correct `sku` of {name} by an import",
        )
        yield not_tried("slot map", "the SKU says what it has to list")
        yield not_tried("scratch disk", "the SKU says whether storage is checked")
        return
    yield met("sku", f"{machine.sku}: {playbook.sku.description or f'{playbook.sku.gpus.count} GPUs'}")
    if gap := playbook.slot_gap(machine):
        yield missing(
            "slot map",
            gap,
            f"`fleet machine discover {name} > found.yaml`, then `fleet machine import found.yaml --update`",
        )
    else:
        yield met("slot map", f"{len(machine.slots)} devices, as the SKU has them")
    yield _scratch_disk(machine, playbook)


def _scratch_disk(machine: Machine, playbook: Playbook) -> Row:
    if "storage" not in playbook.plan.names or (playbook.sku is not None and "storage" in playbook.sku.skip):
        return met("scratch disk", f"not needed: plan {playbook.plan.plan} checks no storage on this SKU")
    if machine.scratch_disk:
        return met("scratch disk", f"{machine.scratch_disk} in the test VM")
    return missing(
        "scratch disk",
        f"plan {playbook.plan.plan} checks storage, and no disk is named that it may overwrite",
        f"`scratch_disk: /dev/nvme0n1` for {machine.name} by `fleet machine import FILE --update`: a disk as the test VM sees "
        "it, the first slot of kind nvme or one of your own domain template; or a plan without storage",
    )
