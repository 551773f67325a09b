"""One worker process: `python -m tests.torture.worker DATABASE_URL WORLD guarded|unguarded`; ends by being killed."""

import sys
from pathlib import Path

from fleet.engine.worker import Worker
from fleet.store.database import Database
from tests.torture.job import BUDGETS, LEASE_S, Job
from tests.torture.world import World


def main(url: str, root: str, guarded: str) -> None:
    job = Job(World(Path(root)), guarded=guarded == "guarded")
    Worker(Database(url), [job.workflow()], threads=4, poll_s=0.05, lease_s=LEASE_S, budgets=BUDGETS).loop()


if __name__ == "__main__":
    main(*sys.argv[1:])
