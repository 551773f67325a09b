"""YAML without its surprises: no duplicate keys, anchors, aliases, tags, dates or deep nesting; every value with its line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from playbooks.errors import PlaybookError, Problem

Key = tuple[str | int, ...]
_MAX_DEPTH = 12
_PLAIN = ("str", "int", "float", "bool", "null")


@dataclass(frozen=True)
class Document:
    """`lines` has the line of every key path in `content`."""

    file: str
    content: dict[str, Any]
    lines: Mapping[Key, int]

    def line(self, key: Key) -> int | None:
        """The line of `key`, or of the nearest place above it that is in the file."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key)


def load(text: str, file: str) -> Document:
    """Raises PlaybookError."""
    try:
        _refuse_surprises(text, file)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as exc:
        mark: yaml.Mark | None = exc.problem_mark or exc.context_mark
        raise PlaybookError(Problem(file, mark.line + 1 if mark else None, "", f"no YAML: {exc.problem}")) from None
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise PlaybookError(Problem(file, None, "", f"no YAML: {str(exc).splitlines()[0][:200]}")) from None
    if not isinstance(node, yaml.MappingNode):
        raise PlaybookError(Problem(file, 1, "", "a file is a mapping of keys to values"))
    builder = _Builder(file)
    content = builder.mapping(node, ())
    return Document(file, content, builder.lines)


def dotted(key: Key) -> str:
    """`limits.nccl.busbw_gbs`, `stages[1][0]`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _refuse_surprises(text: str, file: str) -> None:
    """Reads the event stream, which is bounded and not recursive, before anything is built from it."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise PlaybookError(Problem(file, line, "", "anchors and aliases are not allowed: write the value out"))
        if tag := getattr(event, "tag", None):
            raise PlaybookError(Problem(file, line, "", f"tags such as {str(tag)[:40]} are not allowed"))
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise PlaybookError(Problem(file, line, "", f"nested deeper than {_MAX_DEPTH} levels"))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Builder:
    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Key, int] = {}
        self._scalars = yaml.SafeLoader("")

    def mapping(self, node: yaml.MappingNode, at: Key) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            name = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if name is None or key_node.tag != "tag:yaml.org,2002:str":
                raise PlaybookError(
                    Problem(self.file, line, dotted(at), "a key is a plain word (quote what YAML reads otherwise)")
                )
            key = (*at, name)
            if name in content:
                raise PlaybookError(
                    Problem(self.file, line, dotted(key), f"is given twice, first in line {self.lines[key]}")
                )
            self.lines[key] = line
            content[name] = self._value(value_node, key)
        return content

    def _value(self, node: yaml.Node, at: Key) -> Any:
        self.lines.setdefault(at, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*at, index)) for index, item in enumerate(node.value)]
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _PLAIN:
            raise PlaybookError(self._problem(node, at, "YAML reads this as a date or another special value: quote it"))
        try:
            return self._scalars.construct_object(node)
        except (ValueError, OverflowError):
            raise PlaybookError(self._problem(node, at, "is no number")) from None

    def _problem(self, node: yaml.Node, at: Key, what: str) -> Problem:
        return Problem(self.file, node.start_mark.line + 1, dotted(at), what)
