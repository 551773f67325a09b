"""The loop: one thread claims, a pool of threads runs handlers. Deliberately dull; the workflows have the brains."""

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import structlog
from structlog.contextvars import bound_contextvars

from fleet.core.errors import FleetError, LeaseLost, StoreBusy, StoreError, StoreUnconfirmed
from fleet.engine import meters
from fleet.engine.claim import Budgets, claim, idle, let_go, put_back, save
from fleet.engine.workflow import Next, Run, Work, Workflow
from fleet.store import workers
from fleet.store.database import Database

log = structlog.get_logger(__name__)

LEASE_S = 20.0
"""Longer than any handler's calls may take: SSH deadlines are 10 s at most, and guards renew in between."""
MAX_BACKOFF_S = 60.0
STORE_PAUSE_S = 1.0
"""How long to leave a database alone that did not answer, so that the log of an outage stays readable."""


class Worker:
    """Runs workflows on one database until `stop`. Any number of workers may share a PostgreSQL."""

    def __init__(
        self,
        db: Database,
        workflows: list[Workflow],
        *,
        threads: int = 8,
        poll_s: float = 0.1,
        lease_s: float = LEASE_S,
        budgets: Budgets = Budgets(),
        before_step: Callable[[Run], None] = lambda _run: None,
    ) -> None:
        self.db, self.lease_s, self.poll_s, self.budgets = db, lease_s, poll_s, budgets
        self.workflows: Mapping[str, Workflow] = {w.kind: w for w in workflows}
        self.name = f"{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self.threads = threads
        self.before_step = before_step  # tests: crash here
        self._beat_at = 0.0
        self._unsaved: deque[Run] = deque()  # steps that could neither be saved nor put back
        self._stop, self._kick = threading.Event(), threading.Event()
        self._free = threading.Semaphore(threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="step")
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self.loop, name="worker", daemon=True)
        self._thread.start()

    def kick(self) -> None:
        """There may be something to do: do not wait for the next poll."""
        self._kick.set()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Take nothing new, let running handlers end and save what they answer, give back every lease."""
        self._stop.set()
        self._kick.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._pool.shutdown(wait=True)
        with suppress(StoreError), self.db.begin() as session:
            workers.leave(session, self.name)

    def loop(self) -> None:
        while not self._stop.is_set():
            room, run, pause_s = self._free.acquire(timeout=workers.BEAT_S), None, self.poll_s
            try:
                self._beat()
                self._let_go_unsaved()
                if room and not idle(self.db, self.workflows):
                    run = self._claim()
            except StoreError as exc:
                meters.STORE_ERRORS.inc()
                log.warning("worker.store", error=str(exc))
                pause_s = STORE_PAUSE_S
            except Exception:  # the loop outlives whatever the database throws at it
                log.exception("worker.claim")
                pause_s = STORE_PAUSE_S
            if run is not None:
                self._pool.submit(self._work, run)
            elif room:
                self._free.release()
                self._kick.wait(pause_s)
                self._kick.clear()

    def _beat(self) -> None:
        """From the loop itself: a loop that hangs is not up, whatever other threads say."""
        if time.monotonic() < self._beat_at:
            return
        with self.db.begin() as session:
            workers.beat(session, self.name, self.threads)
        self._beat_at = time.monotonic() + workers.BEAT_S

    def _let_go_unsaved(self) -> None:
        """The database is back: what was in hand when it went need not wait for the end of its lease."""
        while self._unsaved:
            with suppress(LeaseLost):
                let_go(self.db, self._unsaved[0])
            self._unsaved.popleft()

    def step(self) -> bool:
        """Claim one run and advance it as far as it goes now, in this thread; False when nothing is due."""
        run = self._claim()
        if run is None:
            return False
        self.advance(run)
        return True

    def _claim(self) -> Run | None:
        return claim(self.db, self.workflows, self.name, self.lease_s, self.budgets)

    def _work(self, run: Run) -> None:
        try:
            with bound_contextvars(**_named(run)):
                self.advance(run)
        except StoreError as exc:  # who takes the run up looks at what is true then
            self._unsaved.append(run)
            meters.STORE_ERRORS.inc()
            log.warning("worker.store", run=run.id, error=str(exc))
        except Exception:  # a pool thread has nobody above it to tell
            log.exception("worker.step", run=run.id)
        finally:
            self._free.release()
            self._kick.set()

    def advance(self, run: Run | None) -> None:
        """Handler after handler while the next phase is due at once."""
        while run is not None and not self._stop.is_set():
            workflow = self.workflows[run.kind]
            self.before_step(run)
            work = Work(self.db, run, self.lease_s)
            try:
                with meters.STEP_S.labels(run.kind).time():
                    run = self._step(workflow, work)
            except LeaseLost as exc:
                _count(work.run, "lease_lost")
                log.info("worker.lease_lost", run=work.run.id, phase=work.run.phase, error=str(exc))
                return
        if run is not None:
            with suppress(LeaseLost):
                let_go(self.db, run)

    def _step(self, workflow: Workflow, work: Work) -> Run | None:
        try:
            following = save(self.db, workflow, work.run, self._decide(workflow, work), self.lease_s)
            _count(work.run, "done")
            return following
        except LeaseLost:
            raise
        except Exception as exc:  # whatever a handler raises keeps the phase and counts
            return self._failed(workflow, work, exc)

    def _decide(self, workflow: Workflow, work: Work) -> Next:
        phase = workflow.phases[work.run.phase]
        if work.run.abort_reason is not None and phase.abortable:
            return workflow.abort(work)
        return phase.handler(work)

    def _failed(self, workflow: Workflow, work: Work, exc: Exception) -> Run | None:
        run, phase = work.run, workflow.phases[work.run.phase]
        known = isinstance(exc, FleetError)
        _count(run, "store" if isinstance(exc, StoreBusy) else "error")
        log.warning(
            "worker.handler", run=run.id, phase=run.phase, attempt=run.attempts + 1, error=str(exc), exc_info=not known
        )
        if isinstance(exc, StoreUnconfirmed):  # written or not: whoever takes it up goes by what the row says
            let_go(self.db, run)
            return None
        if run.attempts + 1 >= phase.max_attempts and not isinstance(exc, StoreBusy):
            try:
                following = save(self.db, workflow, run, workflow.give_up(work, exc), self.lease_s)
                _count(run, "gave_up")
                return following
            except Exception as unable:  # giving up looks at the world and writes: it can fail like any handler
                log.warning("worker.give_up", run=run.id, phase=run.phase, error=str(unable))
                exc = unable
        put_back(self.db, run, exc, min(MAX_BACKOFF_S, phase.backoff_s * 2 ** min(run.attempts, 10)))
        return None


def _named(run: Run) -> dict[str, object]:
    """What every line logged at this work carries. The record that a run works on is of the run's kind, so that a line of
    a validation names it as `validation`."""
    return {"run": run.id, "kind": run.kind, "subject": run.subject, **({run.kind: run.ref} if run.ref else {})}


def _count(run: Run, outcome: str) -> None:
    meters.STEPS.labels(run.kind, run.phase, outcome).inc()
