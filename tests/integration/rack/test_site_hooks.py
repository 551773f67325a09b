"""The site's hooks on a simulated rack: no test VM before they said yes, receipts on the record, a no that condemns nobody."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.service import validations as use_cases
from tests.integration.rack.stage import Stage, staged, until

SAMPLE = Path(__file__).parents[3] / "docs" / "hooks.md"


@pytest.fixture
def station(tmp_path: Path) -> Path:
    """The folder in which the page's sample leaves orders and finds receipts."""
    (tmp_path / "station").mkdir()
    return tmp_path / "station"


@pytest.fixture
def stage(tmp_path: Path, station: Path) -> Iterator[Stage]:
    program = tmp_path / "wipe-receipt"
    (text,) = re.findall(r"```python\n(.*?)```", SAMPLE.read_text(), re.DOTALL)
    program.write_text(text)
    program.chmod(0o755)
    hooks = [{"name": "wipe", "command": [str(program), str(station)], "deadline_s": 600}]
    with staged(tmp_path / "rack", 3, hooks=hooks) as made:
        yield made


def test_a_validation_waits_for_the_sites_yes_and_keeps_its_receipt(stage: Stage, station: Path) -> None:
    good, bad = stage.validate("lab-02"), stage.validate("lab-03")  # lab-01 has a tenant
    for validation in (good, bad):
        until(lambda id_=validation: (station / f"{id_}.order").exists(), 60.0, lambda: "no order came")
    asked = json.loads((station / f"{good}.order").read_text())
    assert asked["machine"]["name"] == "lab-02"
    assert stage.test_vms() == {}
    (station / f"{good}.receipt").write_text('{"disks": 8}')
    (station / f"{bad}.failed").write_text("nvme3 cannot be wiped")
    passed, aborted = stage.settled(good), stage.settled(bad)
    assert passed.verdict == "passed"
    assert passed.phases.index("hooks") < passed.phases.index("place")
    assert (aborted.verdict, aborted.reason) == ("aborted", "hook wipe said no: exit status 1: nvme3 cannot be wiped")
    assert aborted.tickets == ()
    assert "place" not in aborted.phases
    with stage.db.read() as session:
        assert use_cases.show(session, good)["receipts"]["wipe"]["receipt"] == {"disks": 8}
