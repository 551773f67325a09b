"""Checking and discovering hosts of the simulated rack, by the command line against a service that runs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rack.service import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("up"), lab=2)
    service.start()
    yield service
    service.stop()


def fleet(service: Service, *words: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("fleet")
    return subprocess.run([program, *words], env=service.env, capture_output=True, text=True, timeout=90, check=False)


def rows(done: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(done.stdout)["result"]["rows"]}


def test_a_simulated_host_meets_every_prerequisite_with_a_tenant_on_it_too(service: Service) -> None:
    for name in ("lab-01", "lab-02"):
        done = fleet(service, "machine", "check", name, "--json")
        assert {n: row["seen"] for n, row in rows(done).items() if row["status"] != "met"} == {}
        assert done.returncode == 0


def test_what_is_broken_is_named_and_a_dead_host_is_not_a_clean_one(service: Service) -> None:
    for fault, name in (("missing-gpu", "device gpu3"), ("host-dies", "ssh")):
        assert fleet(service, "lab", "break", "lab-02", fault).returncode == 0
        done = fleet(service, "machine", "check", "lab-02", "--json")
        assert done.returncode == 3
        assert [n for n, row in rows(done).items() if row["status"] == "missing"] == [name]
        assert fleet(service, "lab", "mend", "lab-02", fault).returncode == 0


def test_a_virsh_that_hangs_is_a_row_and_not_a_command_that_hangs(service: Service) -> None:
    fleet(service, "lab", "break", "lab-02", "virsh-hangs")
    found = rows(fleet(service, "machine", "check", "lab-02", "--json"))
    fleet(service, "lab", "mend", "lab-02", "virsh-hangs")
    assert (found["libvirt"]["status"], found["kvm"]["status"]) == ("missing", "met")
    assert "did not answer in time" in found["libvirt"]["seen"]


def test_a_discovered_record_is_imported_over_the_one_that_is_there(service: Service, tmp_path: Path) -> None:
    before = json.loads(fleet(service, "machine", "show", "lab-01", "--json").stdout)
    proposed = fleet(service, "machine", "discover", "lab-01")
    assert proposed.returncode == 0
    file = tmp_path / "lab-01.yaml"
    file.write_text(proposed.stdout)
    assert fleet(service, "machine", "import", str(file), "--update").returncode == 0
    after = json.loads(fleet(service, "machine", "show", "lab-01", "--json").stdout)
    changed = {key for key in before if before[key] != after[key]} - {"version"}
    assert changed == set()


def test_an_unknown_machine_is_refused(service: Service) -> None:
    assert fleet(service, "machine", "check", "lab-77").returncode == 4
