"""The log's two forms, and what is on every line."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from fleet.app import logs


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raising = root.handlers[:], root.level, logging.raiseExceptions
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raising
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_line_is_one_json_document_with_what_is_bound(tmp_path: Path) -> None:
    logs.start("info", tmp_path / "log")
    with bound_contextvars(run=7, validation="val-9"):
        structlog.get_logger("ours").info("said", text="a\nb\x1b[2J")
        logging.getLogger("theirs").warning("said by a library")
    ours, theirs = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert (ours["event"], ours["level"], ours["logger"], ours["run"]) == ("said", "info", "ours", 7)
    assert (theirs["event"], theirs["validation"]) == ("said by a library", "val-9")
    assert ours["text"] == "a\nb\x1b[2J"


def test_text_is_for_people_and_cannot_move_a_cursor(tmp_path: Path) -> None:
    logs.start("info", tmp_path / "log", "text")
    with bound_contextvars(run=7):
        structlog.get_logger("ours").info("said", text="a\nb\x1b[2J")
    try:
        raise ValueError("evil\x1b[2J")
    except ValueError:
        structlog.get_logger("ours").exception("broke")
    first, second, *trace = (tmp_path / "log").read_text().splitlines()
    assert first.split(" ", 1)[1] == r"INFO said text='a\nb\x1b[2J' run=7 logger='ours'"
    assert " ERROR broke " in second
    assert trace[0].startswith("Traceback")
    assert trace[-1] == r"ValueError: evil\x1b[2J"


def test_what_is_below_the_level_is_not_written(tmp_path: Path) -> None:
    logs.start("warning", tmp_path / "log")
    structlog.get_logger("ours").info("said")
    logging.getLogger("paramiko").info("said")
    assert (tmp_path / "log").read_text() == ""
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
