"""The site's hooks: asked until they say yes or no, in order, with the same words each time; a no condemns nobody."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.core.states import State
from fleet.hooks.base import Answer, Reply
from fleet.store.database import Database
from fleet.store.tables import RunRow, ValidationRow
from fleet.workflows.world import Policy
from tests.unit.workflows.case import ALL, Case
from tests.unit.workflows.hosts import tenant

YES = Answer(Reply.YES, receipt={"wiped": ["nvme0"]})
NOT_YET = Answer(Reply.NOT_YET, "3 of 8 disks")
NONE = Answer(Reply.NONE, "connection refused")
NO = Answer(Reply.NO, "nvme3 cannot be wiped")


@dataclass
class Told:
    """Answers in the order given, the last one for ever."""

    name: str
    answers: list[Answer]
    deadline_s: float = 900.0
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def ask(self, question: Mapping[str, Any], key: str, deadline: Deadline) -> Answer:
        self.asked.append((key, question))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def at_hooks(db: Database, folder: Path, *hooks: Told) -> Case:
    case = Case(db, folder, policy=Policy(device_return_s=0.0), hooks=hooks)
    case.to_preflight()
    return case


def receipts(db: Database) -> Mapping[str, Any]:
    with db.read() as session:
        return session.scalars(sa.select(ValidationRow.receipts)).one()


def test_each_hook_says_yes_before_a_test_vm_is_made(db: Database, tmp_path: Path) -> None:
    wipe, partition = Told("wipe", [NOT_YET, NONE, YES]), Told("partition", [Answer(Reply.YES, receipt="vlan 7")])
    case = at_hooks(db, tmp_path, wipe, partition)
    case.until("place")
    assert {name: kept["receipt"] for name, kept in receipts(db).items()} == {
        "wipe": {"wiped": ["nvme0"]},
        "partition": "vlan 7",
    }
    assert (len(wipe.asked), len(partition.asked)) == (3, 1)


def test_the_same_key_is_the_same_question(db: Database, tmp_path: Path) -> None:
    wipe = Told("wipe", [NOT_YET, NOT_YET, YES])
    case = at_hooks(db, tmp_path, wipe)
    case.until("place")
    assert wipe.asked[0] == wipe.asked[1] == wipe.asked[2]
    key, question = wipe.asked[0]
    assert key == f"{question['validation']}/wipe"
    assert question["machine"]["name"] == "m1"
    assert question["machine"]["slots"][0]["pci"]


def test_a_no_aborts_with_the_hooks_name_and_words(db: Database, tmp_path: Path) -> None:
    partition = Told("partition", [YES])
    case = at_hooks(db, tmp_path, Told("wipe", [NO]), partition)
    case.until(None)
    assert case.verdict == ("aborted", "hook wipe said no: nvme3 cannot be wiped")
    assert (case.state, case.told(), partition.asked) == (State.AVAILABLE, [], [])


@pytest.mark.parametrize("answer", [NOT_YET, NONE])
def test_no_yes_by_the_deadline_aborts(db: Database, tmp_path: Path, answer: Answer) -> None:
    case = at_hooks(db, tmp_path, Told("wipe", [answer], deadline_s=0.0))
    case.until(None)
    said = f"hook wipe did not say yes within 0 s: {answer.reply}: {answer.words}"
    assert case.verdict == ("aborted", said)
    assert case.state is State.AVAILABLE


def test_the_deadline_is_counted_from_the_first_question(db: Database, tmp_path: Path) -> None:
    """Also when the service was away for the whole of it: then it is asked once more."""
    wipe = Told("wipe", [NOT_YET, YES], deadline_s=100.0)
    case = at_hooks(db, tmp_path, wipe)
    while not wipe.asked:
        case.turn()
    with db.begin() as session:
        row = session.scalars(sa.select(RunRow)).one()
        row.data = {**row.data, "hooks_asked": {"wipe": row.data["hooks_asked"]["wipe"] - 1000.0}}
    case.until("place")


def test_a_tenant_that_came_meanwhile_is_seen_before_a_vm_is_placed(db: Database, tmp_path: Path) -> None:
    case = at_hooks(db, tmp_path, Told("wipe", [NOT_YET, NO]))
    case.turn()
    case.hosts.domains["m1"] = [tenant()]
    case.until(None)
    assert case.verdict[0] == "aborted"
    assert (case.state, case.told()) == (State.ALLOCATED, ["tenant appeared"])


def test_an_abort_ends_the_asking(db: Database, tmp_path: Path) -> None:
    case = at_hooks(db, tmp_path, Told("wipe", [NOT_YET]))
    case.until("hooks")
    case.abort()
    case.turn()
    assert (case.verdict, case.state) == (("aborted", "enough"), State.AVAILABLE)


def test_a_missing_device_is_a_finding_whatever_a_hook_would_say(db: Database, tmp_path: Path) -> None:
    wipe = Told("wipe", [NO])
    case = at_hooks(db, tmp_path, wipe)
    case.hosts.missing.add(ALL[0].pci)
    case.until(None)
    assert case.verdict[0] == "failed"
    assert (case.state, wipe.asked) == (State.FAILED, [])
