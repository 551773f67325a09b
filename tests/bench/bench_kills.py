"""kill -9 anywhere, 200 times, on three workers: design section 11 allows no harm. Also what the kills cost: validations a
minute with them, as a ratio to the same rack without.

Run by `python -m tests.bench.bench_kills`; takes some five minutes."""

import sys
import tempfile
import time
from pathlib import Path

from fleet.store.database import Database
from fleet.store.upgrade import upgrade
from tests import postgres
from tests.torture.rack import Report, play

KILLS = 200
WITHOUT_S = 45.0
WORKERS = 3


def played(kills: int, at_least_s: float) -> tuple[Report, float]:
    """The report, and validations a minute."""
    binaries = postgres.find_binaries()
    if binaries is None:
        raise SystemExit("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, postgres.server(binaries) as url:
        db = Database(url)
        upgrade(db)
        db.close()
        started = time.monotonic()
        report = play(url, Path(folder), workers=WORKERS, kills=kills, at_least_s=at_least_s)
        return report, report.validations * 60 / (time.monotonic() - started)


def main() -> int:
    calm, calm_rate = played(0, WITHOUT_S)
    report, rate = played(KILLS, 0.0)
    print(f"harm after {report.kills} kills (bound 0): {sum(report.harm.values())} {dict(report.harm) or ''}")
    print(f"harm without kills (bound 0): {sum(calm.harm.values())} {dict(calm.harm) or ''}")
    print(f"validations under kill: {report.validations}, with {dict(report.verdicts)}")
    print(f"validations a minute, killed to undisturbed: {rate / calm_rate:.2f} ({rate:.0f} to {calm_rate:.0f})")
    return 1 if report.harm or calm.harm else 0


if __name__ == "__main__":
    sys.exit(main())
