"""All benchmarks, one after the other: `python -m tests.bench`. Figures are ratios against a bound measured in the same run."""

import subprocess
import sys
from pathlib import Path

for script in sorted(Path(__file__).parent.glob("bench_*.py")):
    print(f"== {script.stem}", flush=True)
    subprocess.run([sys.executable, "-m", f"tests.bench.{script.stem}"], check=True)
