"""Kernel log lines by their own stamps."""

from fleet.hypervisor import kernel_log

NOON = 1769860800.0  # 2026-01-31 12:00:00 UTC


def test_dmesg_and_journal_stamps_in_any_zone() -> None:
    raw = (
        b"2026-01-31T11:59:59,999999+00:00 old\n"
        b"2026-01-31T14:00:00,000000+02:00 new by dmesg\n"
        b"2026-01-31T05:29:59.000000-0630 old by journalctl\n"
        b"2026-01-31T05:30:00.000001-0630 m-01 kernel: new by journalctl\n"
    )
    assert [line.split()[-1] for line in kernel_log.since(raw, NOON).splitlines()] == [b"dmesg", b"journalctl"]


def test_a_line_without_a_stamp_goes_with_the_one_before() -> None:
    raw = b"2026-01-31T11:00:00,0+00:00 old\n of old\n2026-01-31T13:00:00,0+00:00 new\n of new\n"
    assert kernel_log.since(raw, NOON) == b"2026-01-31T13:00:00,0+00:00 new\n of new\n"


def test_what_cannot_be_dated_is_kept() -> None:
    raw = b"ut off in the middle\n2026-99-99T99:99:99,0+00:00 impossible\n"
    assert kernel_log.since(raw, NOON) == raw
