"""Tables that a person can read in 80 columns, and a program in a pipe."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.cli.layout import columns_of, details, lay_out

TITLES = ("ID", "MACHINE", "STATE", "SINCE", "ASKED BY", "WHY")
LONG = "the test VM could not be placed: error: Failed to create domain from /var/lib/fleet/val-1/domain.xml " * 6
ROWS = [
    ("val-01m8q4nzmz-j07cj5", "gpu-017", "validating", "2026-11-30 21:09:56Z", "service:vacancy", "short"),
    ("val-01m8q4nzmz-j07cj6", "gpu-018", "aborted", "2026-11-30 21:09:56Z", "", LONG),
]


def test_in_a_pipe_every_row_is_a_line_and_every_character_is_there() -> None:
    laid = lay_out(TITLES, ROWS, None)
    assert laid.header.split("  ")[0] == "ID"
    assert len(laid.body) == 2
    assert laid.body[1].endswith(LONG.rstrip())


@pytest.mark.parametrize("width", [20, 40, 80, 100, 132, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    laid = lay_out(TITLES, ROWS, width)
    assert max(map(columns_of, [laid.header, *laid.body])) <= width


def test_an_id_is_never_folded_and_what_has_no_room_stands_below_with_its_title() -> None:
    laid = lay_out(TITLES, ROWS, 80)
    assert laid.header.split() == ["ID", "MACHINE", "STATE", "SINCE"]
    assert laid.body[:2] == [
        "val-01m8q4nzmz-j07cj5  gpu-017  validating  2026-11-30 21:09:56Z",
        "    asked by: service:vacancy  why: short",
    ]
    assert laid.body[2].startswith("val-01m8q4nzmz-j07cj6  gpu-018  aborted")
    assert laid.body[3].startswith("    why: the test VM could not be placed: error:")
    assert len(laid.body[3:]) == 4
    assert laid.body[-1].endswith("…")


def test_a_single_sentence_is_folded_beside_the_others_where_it_has_room() -> None:
    seen = "no such network, or nobody may ask for it; libvirt says: Network not found"
    laid = lay_out(
        ("PREREQUISITE", "STATUS", "SEEN"), [("network fleet-test", "missing", seen), ("kvm", "met", "x")], 60
    )
    assert laid.header == "PREREQUISITE        STATUS   SEEN"
    assert laid.body == [
        "network fleet-test  missing  no such network, or nobody may",
        "                             ask for it; libvirt says:",
        "                             Network not found",
        "kvm                 met      x",
    ]


def test_a_column_without_a_value_takes_no_room_on_a_terminal() -> None:
    assert lay_out(("A", "HOLD", "B"), [("1", "", "2")], 80).header == "A  B"
    assert lay_out(("A", "HOLD", "B"), [("1", "", "2")], None).header == "A  HOLD  B"


def test_letters_of_two_columns_are_counted_as_two() -> None:
    assert columns_of("架é") == 3
    laid = lay_out(("NAME", "WHY"), [("gpu-1", "架" * 100)], 80)
    assert max(map(columns_of, laid.body)) <= 80
    wide, narrow = lay_out(("NAME", "B"), [("架架架", "x"), ("abcdef", "x")], 80).body
    assert columns_of(wide) == columns_of(narrow)


def test_a_record_goes_on_below_its_own_values() -> None:
    assert list(details([("id", "val-1"), ("reason", "a long sentence " * 3)], 40)) == [
        "id      val-1",
        "reason  a long sentence a long sentence",
        "        a long sentence",
    ]
    assert list(details([("reason", "x" * 500)], None)) == ["reason  " + "x" * 500]


def on_a_terminal(service: object, tmp_path: Path, *words: str) -> str:
    """What a terminal of 80 columns gets."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "FLEET_URL": service.url, "FLEET_TOKEN": "t", "COLUMNS": "80", "TERM": "dumb"}  # type: ignore[attr-defined]
    code = "import sys; from fleet.cli import main; sys.exit(main())"
    with subprocess.Popen([sys.executable, "-c", code, *words], env=env, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            shown += part
        assert child.wait(timeout=30) == 0
    os.close(ours)
    return shown.decode().replace("\r", "")


def test_a_long_list_on_a_terminal_says_how_long_it_is(service, tmp_path):
    row = {
        "name": "gpu-001",
        "sku": "h100-sxm5x8",
        "state": "vacated",
        "since": "2026-11-30T21:09:56.123Z",
        "why": LONG,
    }
    service.on("GET", "/v1/machines", {"items": [{**row, "id": f"gpu-{n}"} for n in range(1000)], "next": None})
    shown = on_a_terminal(service, tmp_path, "machine", "list").splitlines()
    assert max(map(len, shown)) <= 80
    assert shown[0] == "NAME     STATE    SINCE                 SKU"
    assert shown[-1] == "1000 rows; --limit gives fewer at once."
