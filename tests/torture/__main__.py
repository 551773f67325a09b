"""The long torture: rounds of machines on each database, until time is over and enough were killed and frozen. Exit status 1 on
harm; with `--no-guard`, where none was found."""

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
    parser.add_argument(
        "--database",
        nargs="+",
        default=["sqlite", "postgresql"],
        help="sqlite, postgresql (a server of its own), or a URL; default: the first two, one after the other",
    )
    parser.add_argument("--machines", type=int, default=40, help="in one round")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=150, help="on one database; no round is started after this")
    parser.add_argument("--kills", type=int, default=100, help="but go on until so many workers were killed")
    parser.add_argument("--freezes", type=int, default=100, help="and so many were frozen")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--no-guard", action="store_true", help="show what the guard prevents")
    asked = parser.parse_args()
    harmless = [_on(database, asked) for database in asked.database]
    return 1 if asked.no_guard in harmless else 0


def _on(database: str, asked: argparse.Namespace) -> bool:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torture-")))
        db = Database(_url(database, folder, stack))
        stack.callback(db.close)
        upgrade(db)
        total: Counter[str] = Counter()
        number, deadline, harm = 0, Deadline.after(asked.seconds), False
        wanted = Counter(kills=asked.kills, freezes=asked.freezes)
        while number == 0 or not deadline.passed or not wanted <= total:
            seed, place = asked.seed + number, folder / str(number)
            place.mkdir()
            guarded = not asked.no_guard
            report = play(db, place, machines=asked.machines, workers=asked.workers, seed=seed, guarded=guarded)
            print(f"{database} seed {seed}: {report}", flush=True)
            total.update(machines=asked.machines, kills=report.kills, freezes=report.freezes)
            harm, number = harm or bool(report.harm) or report.died > 0, number + 1
        print(f"{database}:", ", ".join(f"{n} {what}" for what, n in total.items()), "- HARM" if harm else "- no harm")
    return not harm


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
