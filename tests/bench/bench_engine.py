"""What the engine costs: 1,000 runs that wait in one worker process, and short runs against the bare transactions.

Run by `python -m tests.bench.bench_engine`. Every figure is a ratio to a bound: the design's, or one measured beside it.
"""

import multiprocessing
import resource
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psycopg
import sqlalchemy as sa

from fleet.core.clock import Deadline
from fleet.engine.claim import Budgets
from fleet.engine.worker import Worker
from fleet.engine.workflow import Next, Phase, Work, Workflow, open_run
from fleet.store.database import Database
from fleet.store.tables import RunRow
from fleet.store.upgrade import upgrade
from tests import postgres

WAITING = 1000
WATCH_S = 10.0
MEMORY_BOUND_MIB = 1024.0  # design section 11
CPU_BOUND = 0.10  # of a core, same place
SHORT_RUNS = 300


def _later(work: Work) -> Next:
    return Next(work.run.phase, "looked, nothing yet", after_s=WATCH_S)


def _then(phase: str | None) -> Callable[[Work], Next]:
    return lambda work: Next(phase, "trivial")


def _give_up(work: Work, error: Exception) -> Next:
    return Next.done(str(error))


WAIT = Workflow("wait", {"gate": Phase(_later, gate=True), "follow": Phase(_later)}, abort=_later, give_up=_give_up)
SHORT = Workflow(
    "short",
    {"one": Phase(_then("two")), "two": Phase(_then("three")), "three": Phase(_then(None))},
    abort=_then(None),
    give_up=_give_up,
)


def waiting(url: str, phase: str, after_s: Callable[[int], float], budgets: Budgets) -> str:
    """Memory and CPU share of a worker process that has nothing else to do."""
    db = Database(url)
    with db.begin() as session:
        session.execute(sa.delete(RunRow))
        for n in range(WAITING):
            open_run(session, WAIT.kind, phase, f"m{n}", after_s=after_s(n), why="bench")
    db.close()
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_watched_worker, args=(url, budgets, there))
    process.start()
    memory_mib, cpu = here.recv()
    process.join()
    return (
        f"{memory_mib:.0f} MiB = {memory_mib / MEMORY_BOUND_MIB:.3f} of the bound, "
        f"{cpu:.1%} of a core = {cpu / CPU_BOUND:.2f} of the bound"
    )


def _watched_worker(url: str, budgets: Budgets, report: Connection) -> None:
    worker = Worker(Database(url), [WAIT], budgets=budgets)
    worker.start()
    time.sleep(2.0)  # what starting costs is not waiting
    before, since = _cpu_s(), time.monotonic()
    time.sleep(WATCH_S)
    share = (_cpu_s() - before) / (time.monotonic() - since)
    report.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, share))
    worker.stop()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def short_runs(url: str, threads: int) -> float:
    """Runs of three trivial phases per second."""
    db = Database(url)
    with db.begin() as session:
        session.execute(sa.delete(RunRow))
        for n in range(SHORT_RUNS):
            open_run(session, SHORT.kind, "one", f"m{n}", why="bench")
    worker = Worker(db, [SHORT], threads=threads)
    started = time.monotonic()
    worker.start()
    left = sa.select(sa.func.count()).where(RunRow.ended_at.is_(None))
    for _ in Deadline.after(120).poll(0.02):
        with db.read() as session:
            if session.scalar(left) == 0:
                break
    took = time.monotonic() - started
    worker.stop()
    db.close()
    return SHORT_RUNS / took


UPDATE = "UPDATE run SET due_at = due_at + 1, epoch = epoch + 1 WHERE id = {}"


def bare(url: str, threads: int) -> float:
    """The bound: two transactions for each of three phases, as the bare drivers do them."""
    ids = _ids(url)
    started = time.monotonic()
    crowd = [threading.Thread(target=_update, args=(url, ids[n::threads])) for n in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return SHORT_RUNS / (time.monotonic() - started)


def _ids(url: str) -> list[int]:
    db = Database(url)
    with db.read() as session:
        ids = list(session.scalars(sa.select(RunRow.id)))
    db.close()
    return ids


def _update(url: str, ids: list[int]) -> None:
    with _bare(url) as execute:
        for run in ids:
            for _ in range(6):
                execute(UPDATE.format(run))


@contextmanager
def _bare(url: str) -> Iterator[Callable[[str], object]]:
    if url.startswith("sqlite"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
        file.execute("PRAGMA synchronous=FULL")
        yield file.execute
        file.close()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection.execute


def measure(name: str, url: str, threads: int) -> None:
    db = Database(url)
    upgrade(db)
    db.close()
    scenes = {
        "wait for a timer": ("follow", lambda n: 3600.0, Budgets()),
        "wait at a full gate": ("gate", lambda n: 0.0, Budgets(total=0)),
        f"looked at every {WATCH_S:.0f} s": ("follow", lambda n: WATCH_S * n / WAITING, Budgets()),
    }
    for scene, (phase, after_s, budgets) in scenes.items():
        print(f"{name}: {WAITING} runs {scene}: {waiting(url, phase, after_s, budgets)}", flush=True)
    pairs = [(short_runs(url, threads), bare(url, threads)) for _ in range(3)]  # by turns: a disk has its moods
    ours, bound = sorted(pairs, key=lambda pair: pair[0] / pair[1])[1]
    print(f"{name}: {ours:.0f} runs/s of three phases = {ours / bound:.2f} of the bare transactions ({bound:.0f})")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        measure("SQLite FULL", f"sqlite:///{Path(folder) / 'bench.sqlite'}", threads=1)
    if binaries := postgres.find_binaries():
        with postgres.server(binaries) as url:
            measure("PostgreSQL", url, threads=4)
    else:
        print("PostgreSQL: not installed, not measured")


if __name__ == "__main__":
    main()
