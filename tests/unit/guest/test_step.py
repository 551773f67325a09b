"""One step, driven by hand."""

import os
from pathlib import Path

from validators.guest.step import Step


def ended_step(directory: Path, script: str, deadline_s: float) -> Step:
    """Its process is gone, and nobody has looked yet."""
    (directory / "work").mkdir()
    (directory / "out/nccl.part").mkdir(parents=True)
    step = Step(str(directory), "nccl", ["sh", "-c", script], deadline_s, 1 << 20)
    step.start()
    assert step._process is not None
    os.waitid(os.P_PID, step._process.pid, os.WEXITED | os.WNOWAIT)
    return step


def test_what_was_printed_just_before_the_end_is_kept(tmp_path: Path) -> None:
    step = ended_step(tmp_path, "head -c 50000 /dev/zero; echo last", 60)
    step.kill("stopped")
    step.tick()
    assert (step.record.state, step.record.ended, step.record.exit_status) == ("ended", "stopped", 0)
    assert (tmp_path / "out/nccl/stdout").read_bytes().endswith(b"\0last\n")


def test_a_process_that_ended_in_time_did_so_however_late_we_look(tmp_path: Path) -> None:
    step = ended_step(tmp_path, "exit 4", 0.0)
    while step.running:
        for output in step.open_outputs:
            step.pump(output)
        step.tick()
    assert (step.record.ended, step.record.exit_status) == ("exited", 4)
