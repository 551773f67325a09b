"""One step, driven by hand."""

import os
from pathlib import Path

from validators.guest.step import Step


def test_what_was_printed_just_before_the_end_is_kept(tmp_path: Path) -> None:
    """The deadline passes while the output is still in the pipe and the process is gone."""
    (tmp_path / "work").mkdir()
    (tmp_path / "out/nccl.part").mkdir(parents=True)
    step = Step(str(tmp_path), "nccl", ["sh", "-c", "echo pid $$; head -c 50000 /dev/zero; echo last"], 0.0, 1 << 20)
    step.start()
    assert step._process is not None
    os.waitid(os.P_PID, step._process.pid, os.WEXITED | os.WNOWAIT)
    step.tick()
    assert (step.record.state, step.record.ended, step.record.exit_status) == ("ended", "deadline", 0)
    assert (tmp_path / "out/nccl/stdout").read_bytes().endswith(b"\0last\n")
