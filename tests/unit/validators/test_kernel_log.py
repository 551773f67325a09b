import pytest

from tests.unit.validators.machine import SKU, capture, failures, gaps, subject
from validators import CHECKS
from validators.base import CheckResult, Ended, Measurement, Outcome, Subject
from validators.catalogue import Evidence, catalogue
from validators.tools.kernel_log import stamped
from validators.tools.lines import lines

CLAIM = 1_780_000_000.0  # 2026-05-28T20:26:40Z
XID = "NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
QUIET = (
    "[    0.000000] Linux version 6.8.0\n[    1.5] mlx5_core 0000:20:00.0: Port module event: module 0, Cable plugged\n"
)


def judge(of: Subject | None = None, **logs: str) -> CheckResult:
    """Logs by source: guest, host, console."""
    measured = [Measurement(f"kernel_log.{source}", text) for source, text in logs.items()]
    return CHECKS["kernel_log"].judge(measured, of or subject(since=CLAIM))


@pytest.mark.parametrize(
    ("raw", "at", "zoned"),
    [
        ("[   27.320164] XYZ", None, False),
        ("<6>[  201.650687] XYZ", None, False),
        ("6,3964,206764307,-;XYZ", None, False),
        ("[Sun Feb 23 16:24:18 2025] XYZ", 1740327858.0, False),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 XYZ", 1737434504.283302, True),
        ("2025-01-21T05:41:44,283302+01:00 XYZ", 1737434504.283302, True),
        ("2025-01-21T04:41:44.283302+0000 node-1 kernel: XYZ", 1737434504.283302, True),
        ("2025-01-21T04:41:44Z node-1.example.net kernel: XYZ", 1737434504.0, True),
        ("May 27 15:47:45 manet kernel: XYZ", None, False),
        ("kernel: [123.456789] XYZ", None, False),
        ("kernel: Jan 21 11:18:36 kernel: XYZ", None, False),
        ("2025-99-99T04:41:44Z node-1 kernel: XYZ", None, False),
        ("\x1b[0;1m[    3.14] XYZ", None, False),
    ],
)
def test_every_stamp_is_taken_off(raw: str, at: float | None, zoned: bool) -> None:
    (text,) = lines(raw)
    line = stamped(text)
    assert (line.message, line.zoned) == ("XYZ", zoned)
    assert line.at == (pytest.approx(at) if at is not None else None)


def test_xid_in_the_guest_names_the_slot() -> None:
    result = judge(guest=f"{QUIET}[  42.1] {XID}\n", host="")
    assert failures(result) == {("gpu3", "xid_79")}
    assert result.reason.startswith("gpu3: Xid 79 at 0000:13:00 in the guest's log: the GPU no longer answers on PCIe")
    assert result.facts["guest_xid_79_lines"] == 1


def test_host_counts_its_own_addresses() -> None:
    line = f"2026-05-28T21:00:00+00:00 host kernel: {XID.replace('0000:13', '0000:95')}\n"
    assert failures(judge(guest=QUIET, host=line)) == {("gpu5", "xid_79")}


def test_console_alone_condemns_when_the_guest_is_gone() -> None:
    measured = [
        Measurement("kernel_log.guest", "", ended=Ended.LOST),
        Measurement("kernel_log.host", ""),
        Measurement("kernel_log.console", f"\x1b[2J[  42.1] {XID}\r\n"),
    ]
    result = CHECKS["kernel_log"].judge(measured, subject(since=CLAIM))
    assert failures(result) == {("gpu3", "xid_79")}


def test_line_seen_in_guest_and_console_is_one_incident() -> None:
    line = f"[  42.1] {XID}\n"
    result = judge(console=line, guest=line, host="")
    assert [f.reason for f in result.findings if f.outcome is Outcome.FAILED] == [
        f"Xid 79 at 0000:13:00 in the guest's log: the GPU no longer answers on PCIe: {XID}"
    ]


@pytest.mark.parametrize(
    ("stamp", "outcome"),
    [
        ("2026-05-28T20:26:41+00:00 host kernel:", Outcome.FAILED),
        ("2026-05-28T20:26:39+00:00 host kernel:", Outcome.PASSED),
        ("2026-05-28T21:26:39+01:00 host kernel:", Outcome.PASSED),
        ("2026-05-28T21:26:39 host kernel:", Outcome.NOT_RUN),  # no zone, within half a day: could be either
        ("[Sun May 24 10:00:00 2026]", Outcome.PASSED),
        ("[Sat May 30 20:00:00 2026]", Outcome.FAILED),
        ("[   12.5]", Outcome.NOT_RUN),
    ],
)
def test_host_line_counts_when_it_is_newer_than_the_claim(stamp: str, outcome: Outcome) -> None:
    assert judge(guest=QUIET, host=f"{stamp} {XID}\n").outcome is outcome


def test_wrong_clock_of_the_guest_hides_nothing() -> None:
    assert judge(guest=f"1970-01-01T00:01:00+00:00 guest kernel: {XID}\n").outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:13:00): 13, pid=4, name=python, Graphics Exception: ESR 0x1",
        "NVRM: Xid (PCI:0000:13:00): 31, pid=4, name=python, Ch 00000008, MMU Fault",
        "NVRM: Xid (PCI:0000:13:00): 43, pid=4, name=python, Ch 00000008",
        "NVRM: Xid (PCI:0000:13:00): 45, pid=4, name=python, Ch 00000008",
        "NVRM: Xid (PCI:0000:13:00): 63, Row Remapper: new row marked for remapping",
        "NVRM: Xid (PCI:0000:13:00): 199, from the future",
        "NVRM: Xid (PCI:0000:13:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008)",
        "NVRM: Xid (PCI:0000:13:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX Short Error Rate",
        "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
        "pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
        "mlx5_core 0000:20:00.0: mlx5_cmd_out_err:838: ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2)",
        "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ)",
        "vfio-pci 0000:93:00.0: resetting",
        "Out of memory: Killed process 31337 (python3) total-vm:1024kB, anon-rss:512kB",
        "Kernel panic - not syncing: hung_task: blocked tasks",
        "XFS (vda1): Log I/O Error Detected. Shutting down filesystem",  # the VM's image, where the host's disk is full
    ],
)
def test_line_that_is_no_hardware_evidence_condemns_nothing(line: str) -> None:
    assert (
        judge(guest=f"[    1.0] {line}\n", host=f"2026-05-28T21:00:00Z host kernel: {line}\n").outcome is Outcome.PASSED
    )


@pytest.mark.parametrize(
    ("line", "device", "code"),
    [
        ("NVRM: GPU 0000:13:00.0: GPU has fallen off the bus.", "gpu3", "gpu_fallen_off_bus"),
        ("NVRM: GPU 0000:13:00.0: RmInitAdapter failed! (0x62:0x40:2393)", "gpu3", "gpu_rminit_failed"),
        ("nvidia 0000:13:00.0: AER: can't recover (no error_detected callback)", "gpu3", "gpu_pci_lost_config"),
        ("mlx5_core 0000:22:00.0: device's health compromised - reached miss count.", "rail2", "mlx5_health_lost"),
        (
            "mlx5_core 0000:22:00.0: ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
            "rail2",
            "mlx5_command_timeout",
        ),
        ("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0", "0000:00:01.0", "aer_fatal"),
        ("mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 9: be00000000010091", None, "mce_fatal"),
        ("EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)", None, "edac_ue"),
        ("nvme nvme4: Disabling device after reset failure: -19", "nvme4", "nvme_controller_down"),
        ("XFS (nvme1n1): Log I/O Error Detected. Shutting down filesystem", "nvme1n1", "xfs_shutdown"),
        ("md/raid:md0: Disk failure on nvme3n1 detected, failing array.", "md0", "raid_array_failed"),
    ],
)
def test_hardware_lines_condemn_the_part_they_name(line: str, device: str | None, code: str) -> None:
    assert failures(judge(guest=f"[  9.9] {line}\n")) == {(device, code)}


@pytest.mark.parametrize(("times", "outcome"), [(2, Outcome.PASSED), (3, Outcome.FAILED)])
def test_warning_that_keeps_coming_is_evidence(times: int, outcome: Outcome) -> None:
    line = "[ 9.9] nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller\n"
    assert judge(guest=line * times).outcome is outcome


def test_logs_that_could_not_be_read_are_not_run() -> None:
    measured = [
        Measurement("kernel_log.guest", "", "dmesg: read kernel buffer failed: Operation not permitted", exit_status=1),
        Measurement("kernel_log.host", "", ended=Ended.LOST),
        Measurement("kernel_log.console", ""),
    ]
    result = CHECKS["kernel_log"].judge(measured, subject(since=CLAIM))
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {"no_log"})
    assert CHECKS["kernel_log"].judge([], subject()).outcome is Outcome.NOT_RUN


def test_host_log_alone_says_nothing_of_the_guest_but_a_console_does() -> None:
    assert gaps(judge(host=QUIET)) == {"no_log"}
    assert judge(host="", console=QUIET).reason == "no hardware error in the log of host, console"
    assert judge(guest="").reason == "no hardware error in the log of guest"
    assert judge(guest=QUIET, host="", console="").outcome is Outcome.PASSED


def test_cut_guest_log_is_not_run_but_a_cut_console_is_no_gap() -> None:
    guest, console = Measurement("kernel_log.guest", QUIET), Measurement("kernel_log.console", QUIET, truncated=True)
    cut = Measurement("kernel_log.guest", QUIET, truncated=True)
    for logs, outcome in (([guest, console], Outcome.PASSED), ([cut], Outcome.NOT_RUN), ([console], Outcome.NOT_RUN)):
        assert CHECKS["kernel_log"].judge(logs, subject(since=CLAIM)).outcome is outcome


def test_sku_can_skip() -> None:
    sku = SKU.model_copy(update={"skip": {"kernel_log": "tried elsewhere"}})
    assert judge(subject(sku), guest=XID).outcome is Outcome.SKIPPED


def test_application_xids_are_counted_in_the_facts() -> None:
    result = judge(guest=capture("dmesg/xid-13-burst-decode-iso.txt"))
    assert (result.facts["guest_xid_13_lines"], result.facts["guest_xid_43_lines"]) == (16, 1)


def test_text_of_a_line_cannot_reach_the_terminal() -> None:
    result = judge(guest=f"[ 1.0] {XID}\x07\x9b31m\x00\u202e\n")
    assert result.reason.isprintable()


def test_catalogue_classes_what_the_design_names() -> None:
    known = catalogue()
    hardware = {code for code, row in known.xids.items() if row.evidence is Evidence.HARDWARE}
    assert hardware >= {46, 48, 62, 64, 74, 79, 94, 95, 119, 120, 140, 143}
    assert not hardware & {8, 13, 31, 43, 45, 63, 92, 108}
    assert len({pattern.id for pattern in known.lines}) == len(known.lines)
