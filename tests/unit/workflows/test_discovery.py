"""A proposed record says what was seen, keeps what cannot be seen, and makes nothing up."""

from dataclasses import replace
from typing import Any

from fleet.core.model import Machine, Slot, SlotKind, SshTarget
from fleet.core.states import State
from fleet.hypervisor.inspected_devices import Found, Function, Port
from fleet.service.machine_record import read_rows
from fleet.workflows.discovery import propose

SSH = SshTarget("10.0.4.17", 22, "fleet", "ssh-ed25519 " + "A" * 68, "file:/etc/fleet/key")
BARE = Machine("gpu-017", "h100-sxm5x8", State.VACATED, 1, 0.0, "", SSH, rack="r12", handed_over_at=1_700_000_000.0)
GPU, SECOND, SWITCH, RAIL, NIC, DISK, OWN_DISK = (
    Function("0000:1b:00.0", "030200", "10de", "2330", "nvidia"),
    Function("0000:43:00.0", "030200", "10de", "2330", "vfio-pci"),
    Function("0000:07:00.0", "068000", "10de", "22a3", None),
    Function("0000:18:00.0", "020700", "15b3", "1021", "vfio-pci"),
    Function("0000:29:00.0", "020000", "15b3", "1021", "mlx5_core"),
    Function("0000:64:00.0", "010802", "144d", "a80a", "vfio-pci"),
    Function("0000:02:00.0", "010802", "144d", "a80a", "nvme"),
)
ALL = Found((SECOND, GPU, SWITCH, RAIL, NIC, DISK, OWN_DISK), (), {GPU.address: "165"}, {}, {NIC.address: "eth5"})


def slots(proposal: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = proposal["machine"]["slots"]
    return found


def test_devices_that_a_tenant_gets_in_their_order() -> None:
    assert slots(propose(BARE, ALL)) == [
        {"slot": "gpu0", "kind": "gpu", "pci": "0000:1b:00.0", "serial": "165"},
        {"slot": "gpu1", "kind": "gpu", "pci": "0000:43:00.0"},
        {"slot": "nvswitch0", "kind": "nvswitch", "pci": "0000:07:00.0"},
        {"slot": "rail0", "kind": "rail", "pci": "0000:18:00.0"},
        {"slot": "nvme0", "kind": "nvme", "pci": "0000:64:00.0"},
    ]


def test_what_cannot_be_seen_is_said() -> None:
    notes = "\n".join(propose(BARE, ALL)["notes"])
    assert "no serial of gpu1: only NVIDIA's driver tells it, and they have nvidia, vfio-pci" in notes
    assert "no GUID of rail0: only mlx5_core tells it, and they have vfio-pci" in notes
    assert "no guest_pci of gpu0, gpu1, nvswitch0, rail0, nvme0" in notes
    assert "left out, as the host seems to use them: 0000:29:00.0 (eth5), 0000:02:00.0 (nvme)" in notes


def test_a_record_that_is_there_keeps_its_names_and_what_is_out_of_sight() -> None:
    known = replace(
        BARE,
        slots=(
            Slot("gpu-left", SlotKind.GPU, SECOND.address, "0000:00:08.0", "166"),
            Slot("gpu0", SlotKind.GPU, "0000:99:00.0"),
            Slot("rail0", SlotKind.RAIL, RAIL.address, guid="b83f:d203:0001:0000", switch_port="leaf-1/7"),
        ),
    )
    seen = replace(
        ALL,
        ports=(Port(RAIL.address, "mlx5_0", 1, "InfiniBand", "b83f:d203:0001:0009"),),
        switch_ports={RAIL.address: "leaf-2/7"},
    )
    proposal = propose(known, seen)
    by_pci = {slot["pci"]: slot for slot in slots(proposal)}
    assert by_pci[SECOND.address] == {
        "slot": "gpu-left",
        "kind": "gpu",
        "pci": SECOND.address,
        "guest_pci": "0000:00:08.0",
        "serial": "166",
    }
    assert by_pci[GPU.address]["slot"] == "gpu1"  # gpu0 is another device's, so that two imports cannot swap them
    assert (by_pci[RAIL.address]["guid"], by_pci[RAIL.address]["switch_port"]) == ("b83f:d203:0001:0009", "leaf-2/7")
    assert "gpu0 of the record (0000:99:00.0) is not on the host" in proposal["notes"]


def test_an_import_takes_the_proposal_as_it_is() -> None:
    row = propose(BARE, ALL)["machine"]
    good, bad = read_rows([row])
    assert bad == []
    machine = good[1].machine("imported")
    assert (machine.ssh, machine.rack, machine.handed_over_at) == (BARE.ssh, "r12", 1_700_000_000.0)
    assert [slot.slot for slot in machine.slots] == ["gpu0", "gpu1", "nvswitch0", "rail0", "nvme0"]
