"""The long torture: rounds of machines, until the time is over and enough workers were killed. Exit status 1 on harm."""

import argparse
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from fleet.core.clock import Deadline
from fleet.store.database import Database
from fleet.store.upgrade import upgrade
from tests import postgres
from tests.torture.round import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--database", default="sqlite", help="sqlite, postgresql (a server of its own), or a URL")
    parser.add_argument("--machines", type=int, default=40, help="in one round")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=300, help="start no round after this")
    parser.add_argument("--kills", type=int, default=0, help="but go on until so many workers were killed")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--no-guard", action="store_true", help="show what the guard prevents")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torture-")))
        db = Database(_url(asked.database, folder, stack))
        stack.callback(db.close)
        upgrade(db)
        total: Counter[str] = Counter()
        number, deadline, bad = 0, Deadline.after(asked.seconds), False
        while not deadline.passed or total["kills"] < asked.kills:
            place = folder / str(number)
            place.mkdir()
            seed = asked.seed + number
            report = play(
                db, place, machines=asked.machines, workers=asked.workers, seed=seed, guarded=not asked.no_guard
            )
            print(f"seed {seed}: {report}", flush=True)
            total.update(machines=asked.machines, kills=report.kills, freezes=report.freezes)
            bad, number = bad or bool(report.harm) or report.died > 0, number + 1
        print(", ".join(f"{n} {what}" for what, n in total.items()), "- HARM" if bad else "- no harm")
    return 1 if bad else 0


def _url(asked: str, folder: Path, stack: ExitStack) -> str:
    if asked == "sqlite":
        return f"sqlite:///{folder / 'torture.sqlite'}"
    if asked == "postgresql":
        binaries = postgres.find_binaries()
        if binaries is None:
            raise SystemExit("PostgreSQL is not installed (Debian: apt-get install postgresql)")
        return stack.enter_context(postgres.server(binaries))
    return asked


if __name__ == "__main__":
    sys.exit(main())
