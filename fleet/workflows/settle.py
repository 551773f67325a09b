"""Settling: the verdict, the machine's next state, tickets and notices, in one transaction with the end of the run."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy.orm import Session

from fleet.core.errors import NotFound, StoreError
from fleet.core.model import EventKind, Trigger, Verdict
from fleet.core.states import Move, State
from fleet.engine.workflow import Next, Work
from fleet.store import attention, events, machines, tickets, validations
from fleet.store.audit import By
from fleet.store.tables import TicketRow
from fleet.workflows import begin, judging, vacancy
from fleet.workflows.events import apply_waiting
from fleet.workflows.playbook import checks_sha256
from fleet.workflows.record import Record
from fleet.workflows.verdict import Decision, decide
from fleet.workflows.world import World
from ticketing.render import Report, render
from validators.base import CheckResult, Outcome

BY = By("service:revalidation")


def settle_now(world: World, work: Work, record: Record) -> Next:
    """Judge what was stored; the answer ends the run in the transaction that makes the verdict true. What else the verdict
    hangs on goes onto the run, so that it can be computed again."""
    with world.db.read() as session:
        rows = validations.measurements(session, record.id)
        needed = _needed_by_tickets(tickets.open_of(session, record.machine.name), before=work.run.created_at)
        proofs = record.playbook.proofs(record.image).items()
        proven = {check for check, digest in proofs if validations.is_proven(session, record.machine.sku, digest)}
    ended_by = record.data.get("aborted") or record.data.get("ended_by")
    results = judging.judge_all(
        rows,
        world.evidence,
        record.playbook,
        record.machine,
        record.since,
        ended_by,
        patient=not record.data.get("aborted"),
    )
    enforced = record.playbook.enforced | set(judging.HOST_CHECKS) | ({"kernel_log"} - set(record.playbook.plan.names))
    minimum = world.policy.minimum_checks
    found = decide(results, enforced, minimum, also_needed=needed, aborted=record.data.get("aborted"))
    decision = _may_not_condemn(record, found, proven) or found

    def within(session: Session) -> None:
        settlement = Settlement(session, world, work, record, results, decision, enforced)
        settlement.write_record()
        settlement.move_machine()

    judged = {"minimum": sorted(minimum), "needed": sorted(needed), "proven": sorted(proven), "checks": checks_sha256()}
    return Next(None, f"{decision.verdict}: {decision.reason}", data={"judged": judged}, within=within)


def _needed_by_tickets(open_: Sequence[TicketRow], before: float) -> set[str]:
    """Checks that the tickets marked fixed before this run name: a pass must cover what failed."""
    fixed = [t for t in open_ if (at := tickets.fixed_at(t)) is not None and at <= before]
    return {str(c) for t in fixed for c in t.checks if c not in judging.HOST_CHECKS}


def _may_not_condemn(record: Record, decision: Decision, proven: Collection[str]) -> Decision | None:
    """A check that has never passed a machine of this SKU with this image, these limits and these options condemns nothing:
    the fault may be its own. What the host itself says of a device needs no such proof."""
    if decision.verdict is not Verdict.FAILED or set(decision.failed) & {*proven, *judging.HOST_CHECKS}:
        return None
    what = f"{', '.join(decision.failed)} has not passed any {record.machine.sku} machine yet as it was run here"
    return Decision(
        Verdict.ABORTED,
        f"would be failed ({decision.reason}), but {what} (image, limits, options), so it condemns none",
    )


class Settlement:
    def __init__(
        self,
        session: Session,
        world: World,
        work: Work,
        record: Record,
        results: Mapping[str, CheckResult],
        decision: Decision,
        enforced: frozenset[str] | set[str],
    ) -> None:
        self.session, self.world, self.work, self.record = session, world, work, record
        self.results, self.decision, self.enforced = results, decision, enforced
        self.data = work.run.data
        self.machine = machines.get(session, record.machine.name)
        self.why = f"validation {record.id}: {decision.reason}"

    def write_record(self) -> None:
        row = validations.get(self.session, self.record.id)
        row.verdict, row.reason, row.secrets = self.decision.verdict, self.decision.reason, None
        row.ended_at = machines.now(self.session)
        row.evidence_bytes = validations.evidence_bytes(self.session, self.record.id)
        row.progress = {
            n: {"state": "ended", "percent": None, "outcome": str(r.outcome)} for n, r in self.results.items()
        }
        validations.set_phase(self.session, row.id, "settled", self.decision.reason)
        row.phases = [*row.phases[:-1], {**row.phases[-1], "until": row.ended_at}]
        for name, result in self.results.items():
            validations.put_check(
                self.session,
                row.id,
                name,
                mode="enforce" if name in self.enforced else "observe",
                outcome=result.outcome,
                reason=result.reason,
                findings=judging.as_findings(result),
                facts=dict(result.facts),
                limits=dict(result.limits),
            )
        if self.decision.verdict is Verdict.PASSED:
            for check, digest in self.record.playbook.proofs(self.record.image).items():
                if check in self.results and self.results[check].outcome is Outcome.PASSED:
                    validations.prove(self.session, self.machine.sku, digest, row.id)

    def move_machine(self) -> None:
        """One way for each verdict; a tenant that is really there comes before all of them."""
        enforce = self.record.site_mode == "enforce"
        failed = self.decision.verdict is Verdict.FAILED
        if failed and enforce:
            self._file_ticket()
        if foreign := self.data.get("tenants"):
            self._tenant_is_there(foreign)
        elif failed and enforce:
            self._move(Move.FAIL)
            attention.settle(self.session, BY.actor, machine=self.machine.name)
        elif self.decision.verdict is Verdict.PASSED:
            self._passed()
        else:
            self._restore()
        self._start_again_if_fixed()

    def _move(self, how: Move) -> None:
        detail = {"validation": self.record.id, "verdict": str(self.decision.verdict)}
        self.machine = machines.move(self.session, self.machine, how, self.why, BY, detail=detail)

    def _passed(self) -> None:
        open_ = tickets.open_of(self.session, self.machine.name)
        unfixed = [t for t in open_ if (at := tickets.fixed_at(t)) is None or at > self.work.run.created_at]
        if unfixed:
            for ticket in unfixed:
                tickets.remark(self.session, ticket, BY.actor, "passed, but not marked fixed", self.record.id)
            self._move(Move.RESTORE_FAILED)
            return
        for ticket in open_:
            tickets.close(self.session, ticket, BY.actor, self.decision.reason, self.record.id)
        if self._said_to_stay():
            self._move(Move.RESTORE_VACATED)
            self._look_for_tenant()
            return
        self._move(Move.PASS)
        attention.settle(self.session, BY.actor, machine=self.machine.name)
        apply_waiting(self.session, self.machine.name, BY)

    def _restore(self) -> None:
        """Aborted, or failed where the site only observes: back to the prior state, and nobody is condemned."""
        prior, clean = State(self.record.prior_state), self._seen_clean()
        if prior is State.AVAILABLE and clean and not self._said_to_stay():
            self._move(Move.RESTORE_AVAILABLE)
            if self.decision.verdict is Verdict.FAILED:
                self._tell(clean)
            apply_waiting(self.session, self.machine.name, BY)
            return
        if prior is State.FAILED:
            self._move(Move.RESTORE_FAILED)
            return
        self._move(Move.RESTORE_VACATED)
        name, attempt = self.machine.name, int(self.data.get("attempt", 1))
        waits = self.world.policy.abort_retries_s
        aborted = self.decision.verdict is Verdict.ABORTED
        if self._said_to_stay():
            self._look_for_tenant()
        elif aborted and prior is State.VACATED and self._retries() and attempt <= len(waits):
            wait_s, why = waits[attempt - 1], f"attempt {attempt} was aborted: {self.decision.reason}"
            trigger = Trigger(self.record.trigger)
            vacancy.open_vacancy(self.session, name, why=why, trigger=trigger, attempt=attempt + 1, after_s=wait_s)
        else:
            self._tell(clean)

    def _said_to_stay(self) -> bool:
        """The newest event says that the last tenant is still there. Until a look has shown whether that is true, the
        machine is nobody else's, whatever the checks said."""
        return events.waiting(self.session, self.machine.name, EventKind.KEPT) is not None

    def _look_for_tenant(self) -> None:
        vacancy.open_vacancy(self.session, self.machine.name, why="a migration was rolled back")

    def _retries(self) -> bool:
        """A manual run, and one that a person ended, never comes back by itself."""
        return self.record.trigger != Trigger.MANUAL and self.data.get("aborted_by") is None

    def _tell(self, clean: bool) -> None:
        step = f"mend the cause, then `fleet revalidate {self.machine.name}`"
        if not clean:
            step = (
                f"see that no test VM is left on the host and all devices answer, then {step.partition(', then ')[2]}"
            )
        kind = "aborted" if self.decision.verdict is Verdict.ABORTED else "observed failure"
        attention.need(
            self.session, kind, self.machine.name, machine=self.machine.name, reason=self.why, next_step=step
        )

    def _seen_clean(self) -> bool:
        """The test VM was seen gone with all devices back. Where there never was one: nobody had looked yet, or a look found
        nothing wrong; a host that could not be looked at is not clean."""
        if not self.data.get("placed"):
            return self.data.get("ended_in") == begin.FIRST or bool(self.data.get("seen_clean"))
        return bool(self.data.get("vm_gone")) and bool(self.data.get("devices_back"))

    def _tenant_is_there(self, foreign: Sequence[Sequence[str]]) -> None:
        """Reality wins: somebody runs on it, so it is allocated, and a person must know that it was not validated."""
        kept = events.waiting(self.session, self.machine.name, EventKind.KEPT)
        if kept is not None:
            events.finish(self.session, kept, events.APPLIED)
        for instance in [kept.instance] if kept is not None else [uuid for uuid, _name in foreign]:
            machines.add_instance(self.session, self.machine.name, instance)
        self._move(Move.TENANT_APPEARED)
        if kept is None:
            names = ", ".join(name for _uuid, name in foreign)
            attention.need(
                self.session,
                "tenant appeared",
                self.machine.name,
                machine=self.machine.name,
                reason=f"tenant domain {names} appeared while the machine was being validated",
                next_step="find out who placed it; the machine was not validated for this tenant",
            )

    def _file_ticket(self) -> None:
        report = Report(
            machine=self.machine,
            validation=self.record.id,
            plan=self.record.playbook.plan.plan,
            results=tuple(self.results.values()),
            failed=self.decision.failed,
            log=_last_log(self.world, self.record),
        )
        text = render(report)
        ticket = tickets.file(
            self.session,
            machine=self.machine.name,
            cause=text.cause,
            title=text.title,
            body=text.body,
            checks=list(self.decision.failed),
            validation=self.record.id,
            by=BY.actor,
        )
        self.why = f"ticket {ticket.id}: {text.title}"

    def _start_again_if_fixed(self) -> None:
        """A ticket marked fixed while this run was under way: the machine gets a new one."""
        vacancy.vacate_fixed(self.session, self.machine, BY, "a ticket was marked fixed meanwhile")


def _last_log(world: World, record: Record) -> tuple[str, ...]:
    """The last lines of the host's log and the console, for the ticket."""
    lines: list[str] = []
    with world.db.read() as session:
        rows = [m for m in validations.measurements(session, record.id) if m.check == "kernel_log"]
    for row in rows:
        try:
            text = judging.read(row, world.evidence).stdout
        except (NotFound, StoreError) as exc:  # the verdict was made without it
            text = str(exc)
        lines += [f"{row.name.partition('.')[2]}: {line}" for line in text.splitlines()[-25:]]
    return tuple(lines)
