"""The last gate under load: 50 claims a second while 500 validations run, on the database of a large provider. A worker process
steps them; they end, and others begin, on the very machines that are claimed. Goal: the rate is kept and no claim is wrong:
granted on a machine that was not in the pool, granted twice, or forgotten.

    python -m tests.bench.bench_claims [SECONDS]
"""

import multiprocessing
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import httpx
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fleet.core.errors import FleetError
from fleet.core.model import Trigger
from fleet.core.states import Move, State
from fleet.engine.claim import Budgets
from fleet.engine.worker import Worker
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.store import machines, validations
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import AuditRow, MachineRow, RunRow, ValidationRow
from fleet.workflows import begin
from fleet.workflows.playbook import Playbook
from playbooks.loader import SHIPPED, Library
from tests.bench import crowded
from tests.bench.served import Served, served

RATE = 50
RUNNING = 500
CALLERS = 8
LOOK_S = 5.0
BY = By("bench")


@dataclass(frozen=True)
class Claim:
    machine: str
    instance: str
    status: int
    took_s: float


def running(url: str, in_play: list[str]) -> None:
    """A worker on stand-in validations, each ended at one look in three, and others begun, until it is ended."""
    db = Database(url)
    phases = {name: Phase(_look) for name in ("queued", "checks")}
    flow = Workflow(begin.KIND, phases, abort=_look, give_up=lambda work, error: Next.done(str(error)))
    worker = Worker(db, [flow], budgets=Budgets(10_000, 10_000, 10_000))
    with db.begin() as session:
        open_ = (RunRow.kind == begin.KIND, RunRow.ended_at.is_(None))
        session.execute(sa.update(RunRow).where(*open_).values(due_at=db.now() + LOOK_S * sa.func.random()))
    worker.start()
    playbook = Playbook.load(Library([SHIPPED]), "standard", crowded.SKU)
    while True:
        time.sleep(0.1)
        with db.read() as session:
            free = sa.select(MachineRow.name).where(MachineRow.state == State.AVAILABLE, MachineRow.name.in_(in_play))
            lacking = RUNNING - len(validations.live_ids(session))
            names = session.scalars(free.order_by(sa.func.random()).limit(max(0, lacking))).all()
        for name in names:
            try:
                with db.begin() as session:
                    seen = machines.get(session, name)
                    begin.start_validation(session, seen, playbook, Trigger.MANUAL, BY, image={})
            except FleetError:
                continue  # a claim was faster


def _look(work: Work) -> Next:
    if work.run.phase == "queued" or random.random() > 0.3:
        return Next("checks", "looked", after_s=LOOK_S)
    return Next.done("passed", within=lambda session: _settle(session, work))


def _settle(session: Session, work: Work) -> None:
    row = validations.get(session, str(work.run.ref))
    row.verdict, row.reason, row.ended_at = "passed", "bench", machines.now(session)
    machines.move(session, machines.get(session, row.machine), Move.PASS, "bench", BY)


def claims(fleet: Served, in_play: list[str], seconds: float) -> list[Claim]:
    """At an even rate, whatever the answers take."""
    made: list[Claim] = []
    numbers, start = iter(range(int(RATE * seconds))), time.monotonic()
    lock, dice = threading.Lock(), random.Random(1)

    def caller() -> None:
        while True:
            with lock:
                number, machine = next(numbers, None), dice.choice(in_play)
            if number is None:
                return
            time.sleep(max(0.0, start + number / RATE - time.monotonic()))
            asked, body = time.monotonic(), {"instance": f"claim-{number}"}
            answer: httpx.Response = fleet.post(f"/v1/machines/{machine}/claim", body)
            made.append(Claim(machine, body["instance"], answer.status_code, time.monotonic() - asked))

    crowd = [threading.Thread(target=caller) for _ in range(CALLERS)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return made


def harm(made: Iterable[Claim], story: Iterable[AuditRow]) -> Iterator[str]:
    """`story`: the moves of the machines since the beginning, in order."""
    granted = {(claim.machine, claim.instance) for claim in made if claim.status == 200}
    seen, state = Counter[tuple[str, str]](), dict[str, str]()
    for entry in story:
        machine, told = str(entry.machine), entry.detail
        if "was" not in told:  # a refusal
            continue
        if state.setdefault(machine, told["was"]) != told["was"]:
            yield f"{machine} became {state[machine]} and then left {told['was']}"
        if told["now"] == State.ALLOCATED:
            seen[machine, told["instance"]] += 1
            if told["was"] != State.AVAILABLE:
                yield f"{machine} was given away while {told['was']}"
        state[machine] = told["now"]
    if granted != set(seen):
        yield f"{len(granted ^ set(seen))} claims were answered otherwise than they are on record"
    yield from (f"{machine} was given {count} times to {who}" for (machine, who), count in seen.items() if count > 1)
    yield from (f"claim answered {claim.status}" for claim in made if claim.status not in (200, 409))


def main(seconds: float) -> int:
    with served() as fleet:
        with fleet.db.read() as session:
            first = session.scalar(sa.select(sa.func.max(AuditRow.id))) or 0
            pool = sa.select(MachineRow.name).where(MachineRow.state == State.AVAILABLE).order_by(MachineRow.name)
            in_play = [
                *session.scalars(pool.limit(2 * RUNNING)),
                *session.scalars(sa.select(ValidationRow.machine).where(ValidationRow.ended_at.is_(None))),
            ]
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=running, args=(fleet.url, in_play), daemon=True)
        process.start()
        time.sleep(5.0)  # until it is at work
        started = time.monotonic()
        made = claims(fleet, in_play, seconds)
        rate = len(made) / (time.monotonic() - started)
        process.kill()
        process.join()
        with fleet.db.read() as session:
            moves = sa.select(AuditRow).where(AuditRow.id > first, AuditRow.action.startswith("machine."))
            story = session.scalars(moves.order_by(AuditRow.id)).all()
            both = session.scalars(
                sa.select(MachineRow.name)
                .join(ValidationRow, ValidationRow.machine == MachineRow.name)
                .where(ValidationRow.ended_at.is_(None), MachineRow.state != State.VALIDATING)
            ).all()
            left = len(validations.live_ids(session))
    wrong = [*harm(made, story), *(f"{name} is in validation and is not" for name in both)]
    moves_by = Counter(entry.action for entry in story if "was" in entry.detail)
    took = sorted(claim.took_s * 1000 for claim in made)
    print(f"{len(made)} claims: {dict(Counter(claim.status for claim in made))}; beside them {dict(moves_by)}")
    print(f"  {left} validations open at the end; {rate:.0f} claims/s = {rate / RATE:.2f} of the goal")
    print(f"  answered in {statistics.median(took):.0f} ms at the median, {took[int(len(took) * 0.99)]:.0f} ms p99")
    print(f"  wrong (bound 0): {len(wrong)} {wrong[:5] or ''}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0))
