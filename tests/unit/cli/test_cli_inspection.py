"""`fleet machine check` and `discover`: the table, the exit status, and a proposal that an import reads."""

from typing import Any

import pytest

from fleet.cli import machine_file

WELL = {"name": "kvm", "status": "met", "seen": "/dev/kvm is there", "mend": ""}
GAP = {"name": "iommu", "status": "missing", "seen": "the kernel has no IOMMU groups", "mend": "`update-grub`\x1b[2J"}
UNTRIED = {"name": "vfio", "status": "not tried", "seen": "iommu is in its way", "mend": ""}


def ended(service: Any, outcome: str | None, result: Any, kind: str = "check", taken_up: bool = True) -> None:
    row = {"id": "insp-1", "machine": "gpu-1", "kind": kind, "taken_up": taken_up}
    service.on("POST", "/v1/inspections", {**row, "outcome": None, "result": {}}, status=202)
    waiting = {**row, "outcome": None, "result": {}}
    service.on("GET", "/v1/inspections/insp-1", waiting, {**row, "outcome": outcome, "result": result})


def test_all_met(fleet: Any, service: Any) -> None:
    ended(service, "met", {"rows": [WELL]})
    ran = fleet("machine", "check", "gpu-1")
    assert ran.status == 0
    assert "gpu-1: all 1 prerequisites are met." in ran.out
    assert service.requests[0].body == {"machine": "gpu-1", "kind": "check"}


@pytest.mark.parametrize(("outcome", "rows"), [("gaps", [WELL, GAP]), ("unreached", [WELL, GAP, UNTRIED])])
def test_what_is_missing_comes_with_what_mends_it(fleet: Any, service: Any, outcome: str, rows: list[Any]) -> None:
    ended(service, outcome, {"rows": rows})
    ran = fleet("machine", "check", "gpu-1")
    assert ran.status == 3
    assert "iommu         missing  " in ran.out or "iommu         missing" in ran.out
    assert "iommu: `update-grub`\\x1b[2J" in ran.out
    assert f"1 of {len(rows)} prerequisites missing" in ran.out


def test_one_document_with_json(fleet: Any, service: Any) -> None:
    ended(service, "gaps", {"rows": [GAP]})
    ran = fleet("machine", "check", "gpu-1", "--json")
    assert (ran.status, ran.json["outcome"], ran.json["result"]["rows"]) == (3, "gaps", [GAP])


def test_an_unknown_machine_is_refused(fleet: Any, service: Any) -> None:
    service.problem("POST", "/v1/inspections", 404, "not-found", detail="there is no machine 'gpu-9'")
    assert fleet("machine", "check", "gpu-9").status == 4


def test_a_fault_of_the_service_is_said(fleet: Any, service: Any) -> None:
    ended(service, "broken", {"error": "ZeroDivisionError: a fault"})
    ran = fleet("machine", "check", "gpu-1")
    assert ran.status == 3
    assert "ZeroDivisionError: a fault" in ran.out


def test_a_proposal_is_a_file_that_import_reads(fleet: Any, service: Any, tmp_path: Any) -> None:
    slot = {
        "slot": "gpu0",
        "kind": "gpu",
        "pci": "0000:10:00.0",
        "guest_pci": "0000:00:08.0",
        "serial": "1330000000001",
    }
    row = {
        "name": "gpu-1",
        "sku": "h100-sxm5x8",
        "capacity": 1,
        "slots": [slot],
        "handed_over_at": "2026-01-02T03:04:05+00:00",
    }
    ended(service, "proposed", {"machine": row, "notes": ["no serial of gpu1\nslots: []"]}, "discover")
    ran = fleet("machine", "discover", "gpu-1")
    assert ran.status == 0
    file = tmp_path / "gpu-1.yaml"
    file.write_text(ran.out)
    assert ran.out.startswith("# no serial of gpu1\n# slots: []\n- name: gpu-1\n")
    assert machine_file.read(file).rows == [row]


def test_a_host_that_cannot_be_asked_proposes_nothing(fleet: Any, service: Any) -> None:
    ended(service, "unreached", {"error": "gpu-1: connection refused"}, "discover")
    ran = fleet("machine", "discover", "gpu-1")
    assert (ran.status, ran.out) == (3, "")
    assert "gpu-1: connection refused" in ran.err
