"""Every recording of the tools against the lab's SKU: outcome, devices, codes and the sentence with the number."""

import pytest

from tests.unit.validators.machine import CAPTURES, capture, failures, gaps, judge, subject
from validators import CHECKS
from validators.base import Measurement, Outcome

P, F, N = Outcome.PASSED, Outcome.FAILED, Outcome.NOT_RUN
GPU_BURN = {
    "a100x8-ok-cr-progress": (P, set(), "16942 Gflop/s, limit 15200, no errors"),
    "a400-ok": (F, {("gpu0", "slow")}, "GPU 0: 1772 Gflop/s, limit 15200"),
    "b300-compare-symbol-not-found": (N, set(), "named symbol not found"),
    "h100x8-one-died-midrun-reconstructed": (F, {("gpu5", "died")}, "GPU 5 died in the burn"),
    "mps-init-failures-no-clients": (N, set(), "MPS server is not ready"),
    "t4-faulty-warning-every-window": (F, {("gpu0", "wrong_results")}, "GPU 0 computed 284522555 wrong results"),
    "two-gpus-temp-dashes-one-faulty": (F, {("gpu0", "slow"), ("gpu1", "wrong_results")}, "420 Gflop/s"),
}
NCCL = {
    "allgather-old-format-1e0-error-4-failed": (F, {(None, "wrong_data")}, "4 values out of bounds"),
    "allgather-old-format": (N, set(), "validation is off"),
    "allreduce-a100x16-2node-ok": (N, set(), "16 GPUs are listed as taking part, expected 8"),
    "allreduce-a100x8-ok": (P, set(), "231.72 GB/s at 1073741824 B, limit 220 GB/s, 8 GPUs"),
    "allreduce-old-format-c0-na-8gpu": (N, set(), "validation is off"),
    "allreduce-one-gpu-busbw-zero": (N, set(), "one GPU alone has no bus to measure"),
    "allreduce-unhandled-cuda-error-no-rows": (N, set(), "unhandled cuda error"),
    "allreduce-wrong-scientific-notation": (
        F,
        {(None, "wrong_data")},
        "27 of 27 sizes with wrong values, first at 8 B",
    ),
    "alltoall-old-format": (N, set(), "validation is off"),
    "broadcast-old-format-root0": (N, set(), "0 GPUs are listed as taking part"),
    "broadcast-old-format": (N, set(), "validation is off"),
    "cuda-system-not-yet-initialized": (N, set(), "is fabric manager running?"),
    "invalid-usage-ofi-plugin-missing": (N, set(), "AWS Libfabric not found"),
    "mpirun-tag-output-p5-2node-elided": (N, set(), "0 GPUs are listed as taking part"),
    "net-ib-completion-error-12": (F, {("mlx5_2", "transport_error")}, "retries exceeded on mlx5_2"),
    "reduce-old-format": (N, set(), "validation is off"),
    "reducescatter-old-format": (N, set(), "validation is off"),
    "remote-process-exited-test-string": (N, set(), "remote process exited"),
    "srun-label-prefix-p4de-2node": (N, set(), "the output ends before its last lines"),
    "srun-label-prefix-p5-2node": (N, set(), "the output ends before its last lines"),
}
PERFTEST = {
    "couldnt-listen-and-connect-retry": (N, set(), "Couldn't listen to port 18515"),
    "ib-send-lat-cpu-frequency-noise": (N, set(), "measured nothing"),
    "ib-write-bw-a-gdr-h200-degraded-140g": (F, {("mlx5_3", "slow")}, "140.4 Gb/s at 8388608 B, limit 180"),
    "ib-write-bw-duration-mode-peak-zero": (F, {("roceP2p1s0f1", "slow")}, "99.61 Gb/s at 1048576 B, limit 180"),
    "ib-write-bw-loopback-8m": (N, set(), "1 rails were measured, the SKU has 8"),
    "ib-write-bw-loopback-all-sizes": (N, set(), "1 rails were measured, the SKU has 8"),
    "ib-write-lat-spark": (N, set(), "measured nothing"),
    "rem-op-err-status9-cross-tool": (N, set(), "Completion with error at client"),
}
FIO = {
    "fio-json-superbench": (P, set(), "2554337 reads and 2552154 writes without an error, 85139 / 85066 IOPS"),
    "text-before-json-head": (N, set(), "no job in it"),
}
DMESG = {
    "aer-fatal-root-port": (F, {("0000:0c:00.0", "aer_fatal")}, "a fatal PCIe error"),
    "disk-io-error-xfs-log-error": (F, {("nvme2n1", "disk_io_error"), ("md127", "xfs_shutdown")}, "3 lines"),
    "gb200-xid-144-150-nvlink5-pid-name": (
        F,
        {("0008:01:00", "xid_149"), ("0018:01:00", "xid_149"), ("0019:01:00", "xid_149")},
        "NETIR Fatal",
    ),
    "gb200-xid-149-154-burst": (
        F,
        {(f"{pci}:01:00", "xid_154") for pci in ("0008", "0009", "0018", "0019")}
        | {(f"{pci}:01:00", "xid_149") for pci in ("0008", "0009")},
        "NETIR_LINK_EVT Fatal",
    ),
    "kmsg-raw-1": (P, set(), "no hardware error"),
    "kmsg-raw-peermem": (P, set(), "no hardware error"),
    "mlx5-insufficient-then-link-boot": (P, set(), "no hardware error"),
    "mlx5-module-events-and-errors": (P, set(), "no hardware error"),
    "pstore-erst-panic": (P, set(), "no hardware error"),
    "segfault-libnccl-decode-iso": (P, set(), "no hardware error"),
    "sxid-nvswitch-nonfatal-and-fatal": (F, {("0000:c3:00.0", "sxid_24007")}, "Fatal NVSwitch error: sourcetrack"),
    "xfs-corruption-shutdown": (F, {("dm-0", "xfs_shutdown")}, "Shutting down filesystem"),
    "xid-119-gsp-rpc-history": (F, {("0000:9b:00", "xid_119")}, "5 lines"),
    "xid-120-154-dmesg-T-and-journal": (
        F,
        {("0000:2a:00", "xid_120"), ("0000:2a:00", "xid_154")},
        "GSP kernel exception",
    ),
    "xid-13-burst-decode-iso": (P, set(), "no hardware error"),
    "xid-51-154-pf-flr-label": (F, {("0000:0d:00", "xid_154")}, "the driver asks for: PF FLR"),
    "xid-63-94-31-unknown-pid-crlf": (F, {("0000:86:00", "xid_94"), ("0000:01:00", "xid_79")}, "Xid 94"),
    "xid-74-nvlink-seven-registers": (F, {("0003:00:00", "xid_74")}, "fatal error detected on link 14"),
    "xid-79-154-node-reboot-with-rpc": (F, {("0000:02:00", "xid_79"), ("0000:02:00", "xid_154")}, "fallen off the bus"),
}
TOOLS = {
    "gpu-burn": ("gpu_burn", "gpu_burn", GPU_BURN),
    "nccl-tests": ("nccl", "nccl", NCCL),
    "perftest": ("ib_bandwidth", "ib_bandwidth", PERFTEST),
    "fio": ("storage", "storage", FIO),
    "dmesg": ("kernel_log", "kernel_log.guest", DMESG),
}


@pytest.mark.parametrize(("tool", "name"), [(tool, name) for tool in TOOLS for name in TOOLS[tool][2]])
def test_capture_is_judged_by_what_it_shows(tool: str, name: str) -> None:
    check, measurement, expected = TOOLS[tool]
    (file,) = [path.name for path in (CAPTURES / tool).iterdir() if path.stem == name]
    outcome, failed, said = expected[name]
    result = CHECKS[check].judge([Measurement(measurement, capture(f"{tool}/{file}"))], subject())
    assert result.outcome is outcome
    assert failures(result) == failed
    assert said in result.reason + " ".join(finding.reason for finding in result.findings)
    assert all(finding.reason for finding in result.findings)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_recording_of_the_tool_is_judged_here(tool: str) -> None:
    assert {path.stem for path in (CAPTURES / tool).iterdir()} == set(TOOLS[tool][2])


def test_two_nodes_pass_where_the_sku_measures_on_two() -> None:
    sku = subject().sku
    nccl = sku.limits.nccl
    assert nccl is not None
    limit = nccl.busbw_gbs.model_copy(update={"value": 180.0})
    limits = sku.limits.model_copy(update={"nccl": nccl.model_copy(update={"nodes": 2, "busbw_gbs": limit})})
    pair = subject(sku.model_copy(update={"limits": limits}))
    result = judge("nccl", capture("nccl-tests/allreduce-a100x16-2node-ok.txt"), of=pair)
    assert (result.outcome, result.facts["busbw_gbs"], result.facts["average_busbw_gbs"]) == (P, 182.8, 150.209)
    assert not gaps(result)
