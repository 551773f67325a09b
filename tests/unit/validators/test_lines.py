import pytest

from validators.tools.lines import MAX_LINE, lines, printable, unlabelled
from validators.tools.numbers import number, whole


def test_every_line_end_ends_a_line() -> None:
    assert list(lines("a\r\nb\rc\nd")) == ["a", "b", "c", "d"]
    assert list(lines("a\n\nb\n")) == ["a", "", "b", ""]


@pytest.mark.parametrize("raw", ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07red", "\x1b[2K\x1b[1Gred", "re\x1b[1md"])
def test_colours_are_taken_off(raw: str) -> None:
    assert list(lines(raw)) == ["red"]


@pytest.mark.parametrize("raw", ["[1,0]<stdout>:row 1", "[12,345]<stderr>:row 1", "0: row 1", "  15: row 1", "row 1"])
def test_labels_of_launchers_are_taken_off(raw: str) -> None:
    assert [line.strip() for line in unlabelled(raw)] == ["row 1"]


def test_long_line_is_cut_and_the_next_is_read() -> None:
    first, second = lines("x" * (2 * MAX_LINE) + "\nnext")
    assert (len(first), second) == (MAX_LINE, "next")


def test_shown_text_is_one_printable_line() -> None:
    assert printable("a\x1b[31m\tb\n\u202ec") == "a [31m b c"
    assert len(printable("x" * 1000, 50)) == 50


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), ("-2", -2.0), ("1.04858e+06", 1048580.0), ("0e+00", 0.0), (".5", 0.5), ("7.", 7.0)]
    + [(text, None) for text in ("", "nan", "inf", "N/A", "1_000", "--", "1e999", "0x10", "1,5", "9" * 41)],
)
def test_number(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("8589934592", 8589934592), ("-1", None), ("٣", None), ("9" * 19, None)]
)
def test_whole(text: str, value: int | None) -> None:
    assert whole(text) == value
