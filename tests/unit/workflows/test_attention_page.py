"""docs/attention.md has every kind of attention that the code opens, and no other; each next step names a command."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.workflows.deadlines import RULES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "attention.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)


def opened() -> Iterator[tuple[Path, ast.FunctionDef, ast.expr]]:
    """Every call of `attention.need`, with the function it is in and what says the kind."""
    for file in sorted((ROOT / "fleet").rglob("*.py")):
        source = file.read_text()
        if "attention.need(" not in source:
            continue
        for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                if ast.unparse(call.func) == "attention.need":
                    yield file, function, call.args[1]


def kinds_of(file: Path, function: ast.FunctionDef, said: ast.expr) -> set[str]:
    """A literal, a constant of the module, or what a local variable is made from."""
    if isinstance(said, ast.Constant):
        return {said.value}
    if ast.unparse(said) == "rule.kind":
        return {rule.kind for rule in RULES}
    assert isinstance(said, ast.Name), f"{file}: write the kind as a word: {ast.unparse(said)}"
    module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    if hasattr(module, said.id):
        return {getattr(module, said.id)}
    made = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and said.id in ast.unparse(n.targets[0])]
    values = {n.value for a in made for n in ast.walk(a.value) if isinstance(n, ast.Constant)}
    return {value for value in values if isinstance(value, str)}


def test_the_page_has_each_kind_that_the_code_opens_and_no_other() -> None:
    found: dict[tuple[Path, int], set[str]] = {}
    for (
        file,
        function,
        said,
    ) in opened():  # a call in an inner function comes twice: the outer one may know the variable
        found.setdefault((file, said.lineno), set()).update(kinds_of(file, function, said))
    assert [place for place, kinds in found.items() if not kinds] == []
    assert set().union(*found.values()) == {kind for kind, _, _ in ROWS}


@pytest.mark.parametrize(("kind", "step"), [(kind, step) for kind, _, step in ROWS])
def test_a_next_step_is_something_to_do(kind: str, step: str) -> None:
    assert step.strip()
    assert len([row for row in ROWS if row[0] == kind]) == 1
