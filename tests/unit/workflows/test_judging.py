"""From stored measurements to results: what is not there, or is not what was measured, proves nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.core.model import Machine, Slot, SlotKind, SshTarget
from fleet.core.states import State
from fleet.store.evidence import EvidenceFolder
from fleet.store.tables import MeasurementRow
from fleet.workflows.judging import judge_all
from fleet.workflows.playbook import Playbook
from playbooks.loader import Library
from tests.unit.validators.machine import SLOTS, inventory, ports
from validators.base import CheckResult, Outcome

SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
MACHINE = Machine(
    "m1",
    "sim-a100x8",
    State.VALIDATING,
    1,
    0.0,
    "",
    SSH,
    tuple(Slot(**{**s, "kind": SlotKind(s["kind"])}) for s in SLOTS),
)
OUTPUTS = {"gpu_inventory": inventory(), "gpu_inventory.2": inventory(), "ib_links": ports(), "ib_links.2": ports()}


class Case:
    def __init__(self, folder: Path, outputs: Mapping[str, str]) -> None:
        self.evidence = EvidenceFolder(folder)
        self.rows = [self._row(name, text) for name, text in outputs.items()]

    def _row(self, name: str, text: str) -> MeasurementRow:
        files: dict[str, Any] = {"stdout": self.evidence.put("val-1", name, "stdout", text.encode())}
        check = name.partition(".")[0]
        return MeasurementRow(
            validation="val-1", check=check, name=name, ended="exited", exit_status=0, truncated=False, files=files
        )

    def judge(self) -> Mapping[str, CheckResult]:
        playbook = Playbook.load(Library(), "quick", "sim-a100x8")
        return judge_all(self.rows, self.evidence, playbook, MACHINE, 0.0)

    def spoil(self, name: str) -> None:
        (row,) = [row for row in self.rows if row.name == name]
        (self.evidence.root / row.files["stdout"]["path"]).write_text(OUTPUTS["gpu_inventory"])


def test_all_readings_of_the_plan_pass(tmp_path: Path) -> None:
    results = Case(tmp_path, OUTPUTS).judge()
    assert {name: results[name].outcome for name in ("gpu_inventory", "ib_links")} == {
        "gpu_inventory": Outcome.PASSED,
        "ib_links": Outcome.PASSED,
    }


@pytest.mark.parametrize("check", ["gpu_inventory", "ib_links"])
def test_without_the_reading_after_the_stress_nothing_has_passed(tmp_path: Path, check: str) -> None:
    result = Case(tmp_path, {n: text for n, text in OUTPUTS.items() if n != f"{check}.2"}).judge()[check]
    assert result.outcome is Outcome.NOT_RUN
    assert result.reason == f"the reading {check}.2 was not made"


def test_without_the_hosts_log_nothing_is_known_of_the_host(tmp_path: Path) -> None:
    quiet = {"kernel_log.guest": "[    0.0] Linux version 6.8.0\n", "kernel_log.console": ""}
    assert Case(tmp_path, {**OUTPUTS, **quiet}).judge()["kernel_log"].outcome is Outcome.NOT_RUN
    quiet["kernel_log.host"] = ""
    assert Case(tmp_path, {**OUTPUTS, **quiet}).judge()["kernel_log"].outcome is Outcome.PASSED


def test_a_changed_file_is_no_evidence(tmp_path: Path) -> None:
    case = Case(tmp_path, {**OUTPUTS, "gpu_inventory.2": inventory(missing=[3])})
    case.spoil("gpu_inventory.2")
    result = case.judge()["gpu_inventory"]
    assert result.outcome is Outcome.NOT_RUN
    assert "is not what was stored" in result.reason


def test_what_has_failed_stays_failed_beside_a_changed_file(tmp_path: Path) -> None:
    case = Case(tmp_path, {**OUTPUTS, "gpu_inventory": inventory(missing=[3])})
    case.spoil("gpu_inventory.2")
    assert case.judge()["gpu_inventory"].outcome is Outcome.FAILED


def test_a_changed_look_at_the_host_is_no_evidence(tmp_path: Path) -> None:
    case = Case(tmp_path, {**OUTPUTS, "device_return": "passed\tdevice_answers\tgpu gpu0\tanswers\n"})
    case.spoil("device_return")
    assert case.judge()["device_return"].outcome is Outcome.NOT_RUN
