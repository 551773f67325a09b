"""The stand-in tools of a guest: strict about their arguments, and what they print means what the fault says."""

import json
import socket
import time

import pytest

from playbooks.loader import Library
from validators import CHECKS
from validators.base import Ended, Measurement, Outcome, Subject

SKU = Library().sku("sim-a100x8").value


@pytest.fixture(scope="module")
def vm(shared_rack):
    made = shared_rack.boot("lab-03")
    yield made
    shared_rack.virsh("lab-03", "destroy", made.uuid)


@pytest.fixture
def broken(shared_rack, vm):
    """Puts faults into the guest's machine, and takes them out again."""
    put = []

    def put_in(*faults):
        for fault in faults:
            shared_rack.client.break_("lab-03", fault)
            put.append(fault)

    yield put_in
    for fault in put:
        shared_rack.client.mend("lab-03", fault)


@pytest.fixture
def judged(shared_rack, vm):
    """Runs a check's command in the guest and judges its output."""

    def judge(name):
        slots = [{**slot} for slot in shared_rack.machine("lab-03").slots]
        check, subject = CHECKS[name], Subject(SKU, slots, options={"scratch_disk": "/dev/vdb", "duration_s": 60})
        said = shared_rack.in_guest(vm, " ".join(check.argv(subject)))
        return check.judge([Measurement(name, said.out, said.err, said.status, Ended.EXITED)], subject)

    return judge


@pytest.mark.parametrize("name", ["gpu_burn", "nccl", "storage"])
def test_a_healthy_machine_passes(judged, name):
    result = judged(name)
    assert result.outcome is Outcome.PASSED, result


@pytest.mark.parametrize(
    ("fault", "name", "outcome", "reason"),
    [
        ("faulty-gpu", "gpu_burn", Outcome.FAILED, "gpu3: GPU 3 computed 30472096 wrong results"),
        ("slow-nccl", "nccl", Outcome.FAILED, "77.24 GB/s"),
        ("wrong-nccl-data", "nccl", Outcome.FAILED, "6 of 6 sizes with wrong values"),
        ("disk-errors", "storage", Outcome.FAILED, "Input/output error"),
        ("garbage-output", "nccl", Outcome.NOT_RUN, "no table"),
        ("tool-missing", "gpu_burn", Outcome.NOT_RUN, "gpu_burn"),
        ("clock-wrong", "gpu_burn", Outcome.PASSED, ""),
        ("slow-nccl", "gpu_burn", Outcome.PASSED, ""),  # no fault leaks into another check
    ],
)
def test_a_fault_shows_in_its_check(broken, judged, fault, name, outcome, reason):
    broken(fault)
    result = judged(name)
    assert result.outcome is outcome, result
    assert reason in result.reason


def test_a_mended_machine_passes_again(broken, judged, shared_rack):
    broken("faulty-gpu")
    assert judged("gpu_burn").outcome is Outcome.FAILED
    shared_rack.client.mend("lab-03", "faulty-gpu")
    assert judged("gpu_burn").outcome is Outcome.PASSED


def test_a_burn_tells_its_progress_on_one_line(shared_rack, vm):
    started = time.monotonic()
    out = shared_rack.in_guest(vm, "gpu_burn -d -tc 60").out
    assert time.monotonic() - started > 1.0
    assert out.count("\r") > 100
    assert "\r100.0%  proc'd: " in out
    assert out.endswith("\tGPU 7: OK\n")


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("gpu_burn --fast 60", 22, "Syntax error near --fast"),
        ("gpu_burn 60 60", 22, "Syntax error near 60"),
        ("all_reduce_perf --nonsense 1", 0, "invalid option 'n'"),  # so does the real one
        ("all_reduce_perf -g 9", 2, "invalid device ordinal"),
        ("all_reduce_perf -b eight -g 8", 0, "invalid size"),
        ("fio --name=a --filename=/dev/vda --rw=read --output-format=json", 1, "No such file or directory: /dev/vda"),
        ("fio --name=a --filename=/dev/vdb --rw=sideways --output-format=json", 1, "bad value <sideways>"),
        ("fio --filename=/dev/vdb --output-format=json", 1, "no jobs(s) defined"),
        ("fio --faster", 1, "unrecognized option '--faster'"),
        ("ib_write_bw -d mlx5_77", 1, "IB device mlx5_77 not found"),
        ("ib_write_bw --turbo", 1, "Invalid Command or flag"),
        ("ib_write_bw -d mlx5_0 -p many", 1, "Invalid value"),
        ("dmesg --time-format nice", 1, "unknown time format: nice"),
    ],
)
def test_tools_refuse_what_the_real_ones_refuse(shared_rack, vm, command, status, words):
    said = shared_rack.in_guest(vm, command)
    assert said.status == status
    assert words in said.out + said.err
    assert "GB/s" not in said.out


def test_fio_reports_only_what_was_asked_for(shared_rack, vm):
    said = shared_rack.in_guest(vm, "fio --output-format=json --filename=/dev/vdb --name=r --rw=read --bs=128k")
    (job,) = json.loads(said.out)["jobs"]
    assert job["read"]["iops"] == pytest.approx(85138.89 / 32, rel=1e-3)
    assert job["read"]["bw"] == 340570
    assert job["write"]["total_ios"] == 0


def test_rdma_sides_meet_over_tcp_or_not_at_all(shared_rack, vm):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    same = f"-d mlx5_2 -p {port} -s 8388608 -D 1 -q 2 -F --report_gbits"
    alone = shared_rack.in_guest(vm, f"ib_write_bw {same} 127.0.0.1")
    assert alone.status == 1
    assert "Couldn't connect" in alone.err
    client = f"until ib_write_bw {same} 127.0.0.1 2>/dev/null; do sleep 0.05; done"
    both = shared_rack.in_guest(vm, f"ib_write_bw {same} > server & {client}; wait; cat server")
    assert both.out.count("Waiting for client") == 1
    rows = [line.split() for line in both.out.splitlines() if line.startswith(" 8388608")]
    assert [row[3] for row in rows] == ["201.80", "201.80"]
    assert both.out.count("Device         : mlx5_2") == 2


@pytest.mark.parametrize(("fault", "average"), [("rail-down", None), ("slow-rail", "50.45")])
def test_rails_show_their_faults(shared_rack, vm, broken, fault, average):
    broken(fault)
    command = "ib_write_bw -d {} -p {} -s 8388608 -F --report_gbits"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server, client = command.format("mlx5_3", port), command.format("mlx5_3", port) + " 127.0.0.1"
    if average is None:
        said = shared_rack.in_guest(vm, client)
        assert "state is Down" in said.err
        assert "1: DOWN" in shared_rack.in_guest(vm, "cat $FLEET_ROOT/sys/class/infiniband/mlx5_3/ports/1/state").out
        assert "4: ACTIVE" in shared_rack.in_guest(vm, "cat $FLEET_ROOT/sys/class/infiniband/mlx5_2/ports/1/state").out
    else:
        loop = f"until {client} 2>/dev/null; do sleep 0.05; done"
        said = shared_rack.in_guest(vm, f"{server} >/dev/null & {loop}; wait")
        assert average in said.out


def test_disk_errors_are_in_the_kernels_log(shared_rack, vm, broken):
    broken("disk-errors")
    shared_rack.in_guest(vm, "fio --output-format=json --filename=/dev/vdb --name=w --rw=write --bs=4k")
    log = shared_rack.in_guest(vm, "dmesg --time-format iso").out
    assert "blk_update_request: I/O error, dev vdb" in log


def test_a_flood_ends_only_with_its_reader(shared_rack, vm, broken):
    broken("output-flood")
    said = shared_rack.in_guest(vm, "gpu_burn 60 | head -c 3000000 | wc -c")
    assert said.out.strip() == "3000000"


def test_a_full_disk_stops_what_the_guests_python_writes(shared_rack, vm, broken):
    broken("disk-full")
    write = "python3 -c \"open('big','wb').write(bytes(100000))\""
    said = shared_rack.in_guest(vm, write)
    assert said.status == 1
    assert "File too large" in said.err
    assert int(shared_rack.in_guest(vm, "stat -c %s big").out) <= 16384


def test_a_wrong_clock_shows_in_date_python_and_kernel_log(shared_rack, vm, broken):
    broken("clock-wrong")
    said = shared_rack.in_guest(vm, "date +%s; python3 -c 'import time; print(int(time.time()))'")
    for stamp in said.out.split():
        assert int(stamp) < time.time() - 5 * 365 * 86400


def test_nothing_printed_by_garbage_is_text(shared_rack, vm, broken):
    broken("garbage-output")
    said = shared_rack.in_guest(vm, "all_reduce_perf -g 8 | od -An -tx1 -N64")
    assert "1b" in said.out.split()
    assert "ff" in said.out.split()
