"""Files of machines: YAML, JSON or CSV in, the rows that `POST /v1/machines/import` takes out. What is wrong with the file
itself is found here; what is wrong with a value, the service says. The person hears of every bad row at once."""

import csv
import io
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fleet.cli.exits import CommandError, Exit
from fleet.cli.output import printable

_LIMIT_BYTES = 4 << 20  # the service takes no more
_LIMIT_ROWS = 10_000
_MOST_SHOWN = 40
"""Bad rows that a person is shown; `--json` has all."""

_CSV_SSH = ("address", "user", "host_key", "key_ref")
_CSV_TEXT = ("name", "sku", "rack", "power_feed", "guest_address", "scratch_disk", "handed_over_at", "state")
_CSV_COUNTS = ("capacity", "guest_port")
_CSV_SLOT = ("slot", "kind", "pci", "guest_pci", "serial", "guid", "switch_port")


@dataclass(frozen=True)
class Machines:
    """What a file says: rows with the words for where they stand, and what is wrong with others."""

    file: Path
    placed: list[tuple[str, dict[str, Any]]]
    errors: list[str]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for _, row in self.placed]

    def refused(self, problem: Mapping[str, Any] | None = None) -> CommandError:
        """Every bad row by its place in the file: those found here, and those that the service's `problem` lists."""
        rows = [self._here(error) for error in self.errors] + [self._there(error) for error in bad_rows(problem or {})]
        rows.sort(key=lambda row: _number(row["where"]))
        keys = ("where", "name", "field", "detail")
        shown = [
            ": ".join(printable(row[key]) for key in keys if row.get(key) is not None) for row in rows[:_MOST_SHOWN]
        ]
        if len(rows) > _MOST_SHOWN:
            shown.append(f"and {len(rows) - _MOST_SHOWN} more: --json lists all")
        error = _bad(self.file, "nothing was imported:" + "".join(f"\n  {line}" for line in shown))
        error.document = {
            "title": "nothing was imported",
            "code": "invalid-input",
            "detail": str(error),
            "errors": rows,
        }
        return error

    @staticmethod
    def _here(error: str) -> dict[str, Any]:
        where, _, detail = error.partition(": ")
        return {"where": where, "detail": detail}

    def _there(self, error: Mapping[str, Any]) -> dict[str, Any]:
        at = error["row"]
        known = isinstance(at, int) and 0 < at <= len(self.placed)
        return {"where": self.placed[at - 1][0] if known else f"row {at}", **error}


def bad_rows(problem: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the service says of single rows."""
    listed = problem.get("errors")
    return [e for e in listed if isinstance(e, dict) and e.get("row")] if isinstance(listed, list) else []


def read(file: Path) -> Machines:
    """The machines in `file`, at least one. Raises CommandError for a file that has no rows at all."""
    parse = _PARSERS.get(file.suffix.lower())
    if parse is None:
        raise _bad(file, f"ends in {file.suffix or 'nothing'}: a file of machines is .yaml, .json or .csv")
    rows, errors = parse(file, _text(file))
    if not rows and not errors:
        raise _bad(file, "has no machines")
    if len(rows) > _LIMIT_ROWS:
        raise _bad(file, f"has {len(rows)} machines, at most {_LIMIT_ROWS} fit in one import: split it")
    sound = []
    for where, row in rows:
        try:
            text = json.dumps(row, allow_nan=False, ensure_ascii=False)
            text.encode()
        except (TypeError, ValueError) as exc:  # a date, a set, bytes, .nan, half a surrogate pair
            errors.append(f"{where}: has a value that no machine has: {exc}")
            continue
        if "\\u0000" in text:
            errors.append(f"{where}: has a NUL character in it")
        else:
            sound.append((where, row))
    return Machines(file, sound, errors)


def slots(file: Path) -> list[Any]:
    """The slot map in a YAML or JSON file: a list, or a list under `slots`."""
    if file.suffix.lower() not in (".yaml", ".yml", ".json"):
        raise _bad(file, "a slot map is .yaml or .json")
    data = _document(file, _text(file))
    found = data.get("slots") if isinstance(data, dict) else data
    if not isinstance(found, list) or not all(isinstance(slot, dict) for slot in found):
        raise _bad(file, "is not a list of slots")
    return found


Rows = tuple[list[tuple[str, dict[str, Any]]], list[str]]
"""Rows with the words for where they stand, and what is wrong with others."""


def _from_document(file: Path, text: str) -> Rows:
    data = _document(file, text)
    if isinstance(data, dict):
        if set(data) != {"machines"}:
            raise _bad(file, "is not a list of machines, and not one under the only key `machines`")
        data = data["machines"]
    if not isinstance(data, list):
        raise _bad(file, "is not a list of machines")
    placed = [(f"machine {number}", row) for number, row in enumerate(data, 1)]
    errors = [f"{where}: is not a mapping with name and sku" for where, row in placed if not isinstance(row, dict)]
    return [(where, row) for where, row in placed if isinstance(row, dict)], errors


def _from_csv(file: Path, text: str) -> Rows:
    """A line a machine, or a line a device: a line with a slot adds it to the machine of the line above, where its name is the
    same or left out."""
    reader = csv.reader(io.StringIO(text), strict=True)
    rows: list[tuple[str, dict[str, Any]]] = []
    errors: list[str] = []
    last: Mapping[str, str] = {}
    try:
        header = [name.strip() for name in next(reader, [])]
        known = {*_CSV_TEXT, *_CSV_SSH, *_CSV_COUNTS, *_CSV_SLOT, "port", "instances"}
        if unknown := [name for name in header if name not in known]:
            raise _bad(
                file,
                f"line 1: there is no column {unknown[0][:80]!r}; the first line names the columns, with commas between "
                f"them: {', '.join(sorted(known))}",
            )
        if repeated := [name for name in header if header.count(name) > 1]:
            raise _bad(file, f"line 1: column {repeated[0]!r} twice")
        for cells in reader:
            where = f"line {reader.line_num}"
            if not cells:
                continue
            if len(cells) != len(header):
                errors.append(f"{where}: {len(cells)} cells under {len(header)} columns")
                continue
            said = {k: v.strip() for k, v in zip(header, cells, strict=True) if v.strip()}
            slot = {k: said.pop(k) for k in _CSV_SLOT if k in said}
            if slot and rows and said.get("name", last.get("name")) == last.get("name"):
                rows[-1][1].setdefault("slots", []).append(slot)
                errors += [
                    f"{where}: {k}: {v!r} is not that of the line above" for k, v in said.items() if v != last.get(k)
                ]
                continue
            last = said
            row, wrong = _csv_row(said)
            rows.append((where, row | ({"slots": [slot]} if slot else {})))
            errors += [f"{where}: {problem}" for problem in wrong]
    except csv.Error as exc:
        raise _bad(file, f"line {reader.line_num}: {exc}") from exc
    return rows, errors


def _csv_row(cells: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    row: dict[str, Any] = {name: cells[name] for name in _CSV_TEXT if name in cells}
    if "instances" in cells:
        row["instances"] = cells["instances"].split()
    ssh: dict[str, Any] = {name: cells[name] for name in _CSV_SSH if name in cells}
    wrong = []
    for name, into in (("port", ssh), *((name, row) for name in _CSV_COUNTS)):
        if name in cells and not (cells[name].isascii() and cells[name].isdigit() and len(cells[name]) < 10):
            wrong.append(f"{name}: {cells[name]!r} is not a number")
        elif name in cells:
            into[name] = int(cells[name])
    return row | ({"ssh": ssh} if ssh else {}), wrong


_PARSERS: Mapping[str, Callable[[Path, str], Rows]] = {
    ".yaml": _from_document,
    ".yml": _from_document,
    ".json": _from_document,
    ".csv": _from_csv,
}


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LIMIT_BYTES + 1)
    except OSError as exc:
        raise _bad(file, f"cannot be read: {exc.strerror}") from exc
    if len(raw) > _LIMIT_BYTES:
        raise _bad(file, f"has more than {_LIMIT_BYTES >> 20} MiB, the most that fit in one import: split it")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise _bad(file, f"is not UTF-8 text (byte {exc.start})") from exc


def _document(file: Path, text: str) -> Any:
    try:
        if file.suffix.lower() == ".json":
            return json.loads(text, object_pairs_hook=_once)
        return yaml.load(text, _Strict)  # noqa: S506  a SafeLoader, stricter still
    except yaml.MarkedYAMLError as exc:
        at = exc.problem_mark
        raise _bad(file, f"line {at.line + 1 if at else '?'}: {exc.problem}") from exc
    except RecursionError as exc:
        raise _bad(file, "is nested too deep") from exc
    except (yaml.YAMLError, ValueError) as exc:
        raise _bad(file, str(exc)) from exc


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} twice in one object")
        found[key] = value
    return found


class _Strict(yaml.SafeLoader):
    """No key twice, and no aliases: a few of them unfold to gigabytes. A time is the text that it was written as."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed", self.get_mark())
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if (key.tag, key.value if isinstance(key, yaml.ScalarNode) else id(key)) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} twice", key.start_mark)
            seen.add((key.tag, key.value if isinstance(key, yaml.ScalarNode) else id(key)))
        return super().construct_mapping(node, deep)


def _number(where: str) -> int:
    """Of `line 12` or `machine 3`."""
    return int("".join(c for c in where if c in "0123456789") or 0)


def _bad(file: Path, why: str) -> CommandError:
    return CommandError(f"{file}: {why}", Exit.USAGE)
