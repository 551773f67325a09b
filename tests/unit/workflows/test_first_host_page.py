"""docs/first-host.md says what the code does: its rule for sudo, its files, its rows."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fleet.cli import machine_file
from fleet.core.model import Machine
from fleet.core.states import State
from fleet.hypervisor import scripts
from fleet.hypervisor.inspected_libvirt import Network, read_network
from fleet.hypervisor.inspector import PACKAGES
from fleet.hypervisor.sections import Section
from fleet.service.machine_record import NewMachine, read_rows
from fleet.settings import Settings, load
from fleet.store.database import Database
from fleet.workflows.inspection import Inspection
from fleet.workflows.prerequisites import access, libvirt
from fleet.workflows.prerequisites.row import Status
from tests.unit.workflows.test_inspection import AWAY, SITE, inspected

PAGE = (Path(__file__).parents[3] / "docs/first-host.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_the_rule_for_sudo_is_the_one_command() -> None:
    sent = shlex.split(scripts.command("look", "x", sudo=True))
    assert sent[:4] == ["sudo", "-n", "sh", "-c"]
    rules = [line for line in PAGE.splitlines() if "NOPASSWD" in line]
    assert rules == [access.SUDOERS.format(user="fleet")]
    assert rules[0].endswith(f"/usr/bin/{' '.join(sent[2:4])} *")


def test_the_programs_of_the_page_are_those_of_the_scripts() -> None:
    (line,) = [line for line in PAGE.splitlines() if line.startswith("apt-get install")]
    assert set(PACKAGES) <= set(line.split())


def test_the_network_of_the_page_is_isolated_and_has_the_test_vm_in_it() -> None:
    (xml,) = blocks("xml")
    name = ET.fromstring(xml).findtext("name")
    assert name == Settings().hypervisor.network
    network = read_network(Section(0, "Active:         yes\nAutostart:      yes\n"), Section(0, xml))
    assert isinstance(network, Network)
    assert len(ET.fromstring(xml).find("bridge").get("name")) < 16  # type: ignore[union-attr,arg-type]
    machine = replace(AWAY, guest_address=str(NewMachine.model_fields["guest_address"].default))
    assert libvirt.network(machine, name, network).status is Status.MET


def test_the_settings_of_the_page_load(tmp_path: Path) -> None:
    (settings,) = [text for text in blocks("yaml") if "hypervisor:" in text]
    file = tmp_path / "fleet.yaml"
    file.write_text(settings)
    assert load(file, {}, {}).hypervisor.flavor.memory_mib == 1048576


@pytest.mark.parametrize(("kind", "suffix"), [("yaml", "yaml"), ("csv", "csv")])
def test_the_records_of_the_page_can_be_imported(tmp_path: Path, kind: str, suffix: str) -> None:
    (text,) = [text for text in blocks(kind) if "gpu-017" in text]
    file = tmp_path / f"fleet.{suffix}"
    file.write_text(text)
    found = machine_file.read(file)
    good, bad = read_rows(found.rows)
    assert (found.errors, bad, [row.name for row in good.values()]) == ([], [], ["gpu-017"])


def test_the_login_may_reach_the_test_vm_and_nothing_else() -> None:
    default = Machine("m", "s", State.VACATED, 1, 0.0, "", AWAY.ssh)
    assert f'permitopen="{default.guest_address}:{default.guest_port}"' in PAGE


def test_the_page_has_every_row_of_the_check_and_no_other(db: Database, tmp_path: Path) -> None:
    table = PAGE[PAGE.index("| row of the check |") :].splitlines()[2:]
    told = {name.strip() for line in table for name in line.split("|")[1].split(",")}
    rows: set[str] = set()
    for number, sudo in enumerate((False, True)):
        machine = replace(AWAY, name=f"m{number}", slots=())
        _, result = inspected(db, tmp_path, machine, Inspection.CHECK, replace(SITE, sudo=sudo))
        rows |= {row["name"] for row in result["rows"]}
    assert told == rows | {"device"}
