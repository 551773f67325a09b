"""docs/people.md says of each action which roles may take it, as the code does; and which acts take two people."""

import re
from pathlib import Path

from fleet.cli import root
from fleet.service.access import MAY, Action, Role
from fleet.service.approvals import ACTS

PAGE = (Path(__file__).parents[3] / "docs" / "people.md").read_text()
ROWS = re.findall(r"^\| `([a-z_.]+)` \| (.+?) \|((?: [x ] \|){6})$", PAGE, re.MULTILINE)


def test_the_table_of_roles_is_the_codes() -> None:
    columns = [
        Role(name) for name in re.findall(r"^\| action \| command \| (.+) \|$", PAGE, re.MULTILINE)[0].split(" | ")
    ]
    told = {
        action: {role for role, mark in zip(columns, marks.split("|"), strict=False) if mark.strip() == "x"}
        for action, _, marks in ROWS
    }
    assert told == {action: {role for role in Role if action in MAY[role]} for action in Action}


def test_each_role_is_explained() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \| [^|]+ \|$", PAGE, re.MULTILINE) == [*Role]


def test_what_takes_two_people_is_marked() -> None:
    assert {action for action, command, _ in ROWS if "two people" in command} == ACTS.keys()


def test_the_commands_that_the_page_names_exist() -> None:
    said = set(re.findall(r"fleet ([a-z]+)", PAGE)) - {"up", "serve"}
    assert said <= root.COMMANDS.keys()
