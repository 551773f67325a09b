"""How long a command takes: `fleet --help`, and `fleet machine list` against a running service, as whole processes.

The bound beside them is the same interpreter that imports nothing, and one that imports httpx and makes one request. Goals:
0.25 s and 0.4 s.

    python -m tests.bench.bench_cli [RUNS]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.rack.service import Service

FLEET = str(Path(sys.executable).with_name("fleet"))
GOALS_S = {"fleet --help": 0.25, "fleet machine list": 0.4}


def seconds(command: list[str], env: dict[str, str]) -> float:
    started = time.monotonic()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder), 6)
        service.start()
        env = {**os.environ, **service.env}
        request = f"import httpx; httpx.get('{service.profile['url']}/healthz').raise_for_status()"
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "python, httpx, one request": [sys.executable, "-c", request],
            "fleet --help": [FLEET, "--help"],
            "fleet machine list": [FLEET, "machine", "list"],
        }
        try:
            rounds = [{name: seconds(argv, env) for name, argv in commands.items()} for _ in range(runs + 1)][1:]
        finally:
            service.stop()
    for name in commands:
        median = statistics.median(r[name] for r in rounds)
        goal = f", {median / GOALS_S[name]:.2f} of the goal ({GOALS_S[name]} s)" if name in GOALS_S else ""
        print(
            f"{name}: {median:.3f} s, {median / statistics.median(r['python -c pass'] for r in rounds):.1f} x bare{goal}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
