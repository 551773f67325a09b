"""The loop: one thread claims, a pool of threads runs handlers. Deliberately dull; the workflows have the brains."""

import os
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import structlog

from fleet.core.errors import FleetError, LeaseLost, StoreBusy, StoreError
from fleet.engine.claim import Budgets, claim, idle, let_go, put_back, save
from fleet.engine.workflow import Next, Run, Work, Workflow
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
        self.before_step = before_step  # tests: crash here
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
        """Take nothing new, let running handlers end."""
        self._stop.set()
        self._kick.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._pool.shutdown(wait=True)

    def loop(self) -> None:
        while self._free.acquire() and not self._stop.is_set():
            pause_s = self.poll_s
            try:
                run = None if idle(self.db, self.workflows) else self._claim()
            except StoreError as exc:
                log.warning("worker.store", error=str(exc))
                run, pause_s = None, STORE_PAUSE_S
            except Exception:  # the loop outlives whatever the database throws at it
                log.exception("worker.claim")
                run, pause_s = None, STORE_PAUSE_S
            if run is None:
                self._free.release()
                self._kick.wait(pause_s)
                self._kick.clear()
                continue
            self._pool.submit(self._work, run)

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
            self.advance(run)
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
                run = self._step(workflow, work)
            except LeaseLost as exc:
                log.info("worker.lease_lost", run=work.run.id, phase=work.run.phase, error=str(exc))
                return
        if run is not None:
            with suppress(LeaseLost):
                let_go(self.db, run)

    def _step(self, workflow: Workflow, work: Work) -> Run | None:
        try:
            return save(self.db, workflow, work.run, self._decide(workflow, work), self.lease_s)
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
        log.warning(
            "worker.handler", run=run.id, phase=run.phase, attempt=run.attempts + 1, error=str(exc), exc_info=not known
        )
        if run.attempts + 1 >= phase.max_attempts and not isinstance(exc, StoreBusy):
            try:
                return save(self.db, workflow, run, workflow.give_up(work, exc), self.lease_s)
            except Exception as unable:  # giving up looks at the world and writes: it can fail like any handler
                log.warning("worker.give_up", run=run.id, phase=run.phase, error=str(unable))
                exc = unable
        put_back(self.db, run, exc, min(MAX_BACKOFF_S, phase.backoff_s * 2 ** min(run.attempts, 10)))
        return None
