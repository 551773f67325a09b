"""What a guest answers is hostile: strict shape, bounded size, printable words."""

import json
from typing import Any

import pytest

from fleet.workflows.guest import GuestGarbage, read_poll

BOOT_ID = "11111111-2222-3333-4444-555555555555"


def check(**changes: Any) -> dict[str, Any]:
    return {
        "state": "ended",
        "ended": "exited",
        "exit_status": 0,
        "started_at": 1.5,
        "duration_s": 2,
        "stdout_bytes": 3,
        "stderr_bytes": 0,
        "truncated": False,
        "tail": "",
    } | changes


def answer(state: dict[str, Any] | None = None, blocks: bytes = b"", seen_boot: str = BOOT_ID, **changes: Any) -> bytes:
    document = {"version": 1, "state": "running", "reason": "", "boot_id": BOOT_ID, "beat": 9.5, "checks": {}}
    document |= {} if state is None else {"checks": state}
    return f"{seen_boot}\n10.0 20.0\n{json.dumps(document | changes)}\n".encode() + blocks


def test_well_formed() -> None:
    seen = read_poll(answer({"nccl": check()}, b"nccl 3 3 0 0\na\nb"), ())
    assert seen.state is not None
    assert seen.state.checks["nccl"].duration_s == 2.0
    assert seen.outputs["nccl"].stdout == b"a\nb"
    assert (seen.boot_id, seen.uptime_s, seen.stale) == (BOOT_ID, 10.0, False)


def test_nothing_is_no_state() -> None:
    assert read_poll(b"", ()).state is None


def test_output_that_ended_after_the_state_was_read_waits_for_the_next_poll() -> None:
    running = check(state="running", ended=None)
    assert read_poll(answer({"nccl": running}, b"nccl 3 3 0 0\na\nb"), ()).outputs == {}
    assert read_poll(answer({}, b"nccl 3 3 0 0\na\nb"), ()).outputs == {}


def test_cut_and_truncated_are_told() -> None:
    assert read_poll(answer({"nccl": check()}, b"nccl 9 3 0 0\na\nb"), ()).outputs["nccl"].truncated
    assert read_poll(answer({"nccl": check()}, b"nccl 3 3 1 0\na\nb"), ()).outputs["nccl"].truncated
    assert read_poll(answer({"nccl": check(truncated=True)}, b"nccl 3 3 0 0\na\nb"), ()).outputs["nccl"].truncated


def test_words_are_made_printable() -> None:
    running = check(state="running", ended=None, tail="50%\r\x1b]0;x\x07\u202e60%\n")
    seen = read_poll(answer({"nccl": running}, reason="bad\x1b[31m\nFAKE line"), ()).state
    assert seen is not None
    assert seen.reason == "bad [31m FAKE line"
    assert seen.checks["nccl"].tail == "50%\n?]0;x??60%\n"


@pytest.mark.parametrize(
    ("state", "where"),
    [
        ({"nccl": check(ended="fine")}, "checks.nccl.ended"),
        ({"nccl": check(state="paused")}, "checks.nccl.state"),
        ({"nccl": check(exit_status="0")}, "checks.nccl.exit_status"),
        ({"nccl": check(exit_status=1 << 40)}, "checks.nccl.exit_status"),
        ({"nccl": check(exit_status=True)}, "checks.nccl.exit_status"),
        ({"nccl": check(stdout_bytes=-1)}, "checks.nccl.stdout_bytes"),
        ({"nccl": check(duration_s=float("nan"))}, "checks.nccl.duration_s"),
        ({"nccl": check(started_at=1e300)}, "checks.nccl.started_at"),
        ({"nccl": check(truncated=0)}, "checks.nccl.truncated"),
        ({"nccl": check(tail="x" * 501)}, "checks.nccl.tail"),
        ({"nccl": check(extra=1)}, "checks.nccl.extra"),
        ({"nccl": {}}, "checks.nccl.state"),
        ({"nccl": []}, "checks.nccl"),
        ({"$(reboot)": check()}, "checks.$(reboot)"),
        ({"nccl; x": check()}, "checks.nccl; x"),
        ({f"c{number}": check() for number in range(65)}, "checks"),
    ],
)
def test_a_check_of_another_shape_is_garbage_and_named(state: dict[str, Any], where: str) -> None:
    with pytest.raises(GuestGarbage) as caught:
        read_poll(answer(state), state)
    assert where in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"state": "fine"},
        {"reason": None},
        {"reason": "x" * 501},
        {"boot_id": "x"},
        {"beat": -1},
        {"beat": "1"},
        {"checks": None},
        {"more": 1},
    ],
)
def test_a_state_of_another_shape_is_garbage(changes: dict[str, Any]) -> None:
    with pytest.raises(GuestGarbage, match=next(iter(changes))):
        read_poll(answer(**changes), ())


@pytest.mark.parametrize(
    "blocks",
    [
        b"nccl 3 3 0 0",
        b"nccl 3 3 0\nabc",
        b"nccl 9 9 0 0\nabc",
        b"nccl 3 3 0 0\nabcdef",
        b"nccl -3 3 0 0\nabc",
        b"NCCL 3 3 0 0\nabc",
        b"nccl 3 9999999999999999 0 0\nabc",
        b"\n",
        b"x" * 5000,
        b"",  # said to have ended, and no output
    ],
)
def test_outputs_that_are_not_framed_are_garbage(blocks: bytes) -> None:
    with pytest.raises(GuestGarbage):
        read_poll(answer({"nccl": check()}, blocks), ())


@pytest.mark.parametrize(
    "text",
    [
        b"no such file",
        b"\n\n\n",
        b"\xff\xfe" * 50,
        f"{BOOT_ID}\nmuch\n{{}}\n".encode(),
        answer(seen_boot="x\x1b[2J"),
        b"[" * 100_000,
        f"{BOOT_ID}\n1.0\n".encode() + b"[" * 60_000 + b"\n",
    ],
)
def test_other_programs_words_are_garbage_and_printable(text: bytes) -> None:
    with pytest.raises(GuestGarbage) as caught:
        read_poll(text, ())
    assert str(caught.value).isprintable()
