"""The long run of the interleavings, `make torture` has it. Exit status 1 on harm, with the seed that brings it again."""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import structlog

from fleet.store.database import Database
from fleet.store.upgrade import upgrade
from tests.integration.scheduler.interleaving import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.scheduler", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first")
    parser.add_argument("--no-gate", action="store_true", help="show what claims prevent")
    parser.add_argument("--no-wait", action="store_true", help="show what waiting for acknowledgements prevents")
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="interleavings-") as folder:
        db = Database(f"sqlite:///{folder}/fleet.sqlite")
        upgrade(db)
        seeds = range(asked.seed, asked.seed + asked.count)
        harm = play(db, Path(folder), seeds, waits=not asked.no_wait, gate=not asked.no_gate)
        db.close()
    for seen in harm:
        print(f"HARM {seen}")
    print(f"{asked.count} interleavings from seed {asked.seed}:", f"{len(harm)} with harm" if harm else "no harm")
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main())
