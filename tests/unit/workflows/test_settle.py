"""Settling: what each verdict does to the machine, its tickets and the people, in the transaction that ends the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from fleet.core.errors import Conflict
from fleet.core.model import Machine, Slot, SlotKind, SshTarget, Trigger, Verdict
from fleet.core.states import Move, State
from fleet.engine.worker import Worker
from fleet.engine.workflow import Next, Phase, Work, Workflow
from fleet.store import machines, site, tickets, validations
from fleet.store.audit import By
from fleet.store.database import Database
from fleet.store.tables import AttentionRow, MachineRow, NoticeRow, ProvenRow, RunRow, TicketRow
from fleet.workflows import begin
from fleet.workflows.events import Event, EventKind, apply
from fleet.workflows.playbook import Playbook
from fleet.workflows.record import Record
from fleet.workflows.settle import Settlement
from fleet.workflows.verdict import decide
from fleet.workflows.world import Policy, World
from tests.unit.workflows.hosts import KEYS, Hosts, world
from validators.base import CheckResult, conclude, failed, passed

BY = By("anna")
SSH = SshTarget("127.0.0.1", 22, "fleet", "ssh-ed25519 AAAA", "env:KEY")
GPU = Slot("gpu3", SlotKind.GPU, "0000:1b:00.0", serial="165000003", guest_pci="0000:00:0b.0")
CLEAN = {"placed": True, "vm_gone": True, "devices_back": True}
GOOD = {n: conclude(n, [passed("fine", "all good")]) for n in ("gpu_inventory", "gpu_burn", "ib_links", "kernel_log")}
BAD = {**GOOD, "gpu_burn": conclude("gpu_burn", [failed("faulty", "12 errors, limit 0", "gpu3")])}


@dataclass
class Case:
    """One machine in a validation that is about to be settled."""

    db: Database
    world: World

    def begin(self, prior: State, trigger: Trigger = Trigger.VACATED) -> None:
        with self.db.begin() as session:
            machine = Machine("m1", "sim-a100x8", prior, 1, 0.0, "imported", SSH, (GPU,), rack="r1")
            machines.add(session, machine, BY)
        self.begin_again(trigger)

    def begin_again(self, trigger: Trigger = Trigger.VACATED, attempt: int = 1) -> None:
        playbook = Playbook.load(self.world.library, "quick", "sim-a100x8")
        with self.db.begin() as session:
            seen = machines.get(session, "m1")
            begin.start_validation(session, seen, playbook, trigger, BY, image={}, attempt=attempt)

    def settle(
        self, results: Mapping[str, CheckResult], data: Mapping[str, Any] = CLEAN, aborted: str | None = None
    ) -> str:
        """Take the run through the engine, so that the settlement commits with the end of the row."""

        def handler(work: Work) -> Next:
            record = Record.load(self.world, work)
            decision = decide(results, set(results), self.world.policy.minimum_checks, aborted=aborted)
            work.run.data.update(data)  # type: ignore[attr-defined]

            def within(session: Any) -> None:
                settlement = Settlement(session, self.world, work, record, results, decision, set(results))
                settlement.write_record()
                settlement.move_machine()

            return Next.done(str(decision.verdict), within=within)

        phases = {begin.FIRST: Phase(handler)}
        flow = Workflow(begin.KIND, phases, abort=handler, give_up=lambda _w, error: Next.done(str(error)))
        assert Worker(self.db, [flow], threads=1).step()
        with self.db.read() as session:
            row = session.scalars(sa.select(RunRow).where(RunRow.kind == begin.KIND).order_by(RunRow.id.desc())).first()
            assert row is not None
            assert row.last_error is None
            assert row.ended_at is not None
            return validations.get(session, row.ref or "").verdict or "open"

    @property
    def machine(self) -> Machine:
        with self.db.read() as session:
            return machines.get(session, "m1")

    def rows(self, what: Any) -> list[Any]:
        with self.db.read() as session:
            return list(session.scalars(sa.select(what)))

    def vacancies(self) -> list[RunRow]:
        return [r for r in self.rows(RunRow) if r.kind == "vacancy" and r.ended_at is None]

    def mark_fixed(self) -> None:
        with self.db.begin() as session:
            for ticket in tickets.open_of(session, "m1"):
                tickets.mark_fixed(session, ticket, "tech", "replaced")


@pytest.fixture
def case(db: Database, tmp_path: Path) -> Case:
    with db.begin() as session:
        site.set_mode(session, "enforce", BY)
    return Case(db, world(db, Hosts(), tmp_path, Policy(abort_retries_s=(60.0, 300.0))))


def test_a_pass_returns_the_machine_and_tells_the_scheduler(case: Case) -> None:
    case.begin(State.VACATED)
    assert case.settle(GOOD) == Verdict.PASSED
    assert case.machine.state is State.AVAILABLE
    assert [n.kind for n in case.rows(NoticeRow)] == ["pool.returned"]
    assert case.rows(TicketRow) == []
    assert case.rows(AttentionRow) == []


def test_a_pass_proves_each_check_that_has_passed(case: Case) -> None:
    case.begin(State.VACATED)
    case.settle(GOOD)
    proofs = Playbook.load(case.world.library, "quick", "sim-a100x8").proofs({})
    assert {row.digest for row in case.rows(ProvenRow)} == {proofs[check] for check in GOOD}


def test_a_failure_files_a_ticket_with_machine_slot_and_number(case: Case) -> None:
    case.begin(State.VACATED)
    assert case.settle(BAD) == Verdict.FAILED
    assert case.machine.state is State.FAILED
    (ticket,) = case.rows(TicketRow)
    assert ticket.title == "m1: gpu_burn: gpu3: 12 errors, limit 0"
    assert ticket.cause == "gpu_burn/faulty"
    assert "serial 165000003" in ticket.body
    assert "r1" in ticket.body
    assert ticket.checks == ["gpu_burn"]


def test_a_second_failure_of_the_same_cause_is_the_same_ticket(case: Case) -> None:
    case.begin(State.VACATED)
    case.settle(BAD)
    case.begin_again(Trigger.MANUAL)
    case.settle(BAD)
    (ticket,) = case.rows(TicketRow)
    assert [h["what"] for h in ticket.history] == ["opened", "failed again"]


def test_a_fixed_machine_that_fails_again_reopens_its_ticket_and_a_pass_closes_it(case: Case) -> None:
    case.begin(State.VACATED)
    case.settle(BAD)
    case.mark_fixed()
    case.begin_again(Trigger.FIXED)
    case.settle(BAD)
    (ticket,) = case.rows(TicketRow)
    assert ticket.state == "reopened"
    case.mark_fixed()
    case.begin_again(Trigger.FIXED)
    case.settle(GOOD)
    (ticket,) = case.rows(TicketRow)
    assert ticket.state == "closed"
    assert case.machine.state is State.AVAILABLE


def test_a_check_that_failed_once_stays_on_the_ticket_until_it_passes(case: Case) -> None:
    """The second run stops at its first failure; a plan without NCCL must not close the ticket later."""
    case.begin(State.VACATED)
    case.settle({**BAD, "nccl": conclude("nccl", [failed("slow", "12 GB/s, limit 220")])})
    case.mark_fixed()
    case.begin_again(Trigger.FIXED)
    case.settle(BAD)
    (ticket,) = case.rows(TicketRow)
    assert ticket.checks == ["gpu_burn", "nccl"]


def test_a_pass_without_a_fix_is_written_on_the_ticket_and_the_machine_stays_out(case: Case) -> None:
    case.begin(State.VACATED)
    case.settle(BAD)
    case.begin_again(Trigger.MANUAL)
    assert case.settle(GOOD) == Verdict.PASSED
    assert case.machine.state is State.FAILED
    (ticket,) = case.rows(TicketRow)
    assert ticket.state == "open"
    assert ticket.history[-1]["note"] == "passed, but not marked fixed"


def test_a_ticket_fixed_while_the_run_was_under_way_starts_a_new_one(case: Case) -> None:
    case.begin(State.VACATED)
    case.settle(BAD)
    case.begin_again(Trigger.MANUAL)
    case.mark_fixed()
    case.settle(GOOD)
    assert case.machine.state is State.VACATED
    (vacancy,) = case.vacancies()
    assert vacancy.data["trigger"] == Trigger.FIXED


def test_an_abort_restores_vacated_and_tries_again_later(case: Case) -> None:
    case.begin(State.VACATED)
    assert case.settle(GOOD, aborted="host away") == Verdict.ABORTED
    assert case.machine.state is State.VACATED
    (vacancy,) = case.vacancies()
    assert vacancy.data["attempt"] == 2
    assert vacancy.due_at - vacancy.created_at == pytest.approx(60.0)
    assert case.rows(AttentionRow) == []
    assert case.rows(TicketRow) == []


def test_a_person_who_starts_before_the_retry_takes_its_place(case: Case) -> None:
    case.begin(State.VACATED)
    case.settle(GOOD, aborted="host away")
    assert len(case.vacancies()) == 1
    case.begin_again(Trigger.MANUAL)
    assert case.vacancies() == []


def test_after_the_last_retry_a_person_is_told(case: Case) -> None:
    case.begin(State.VACATED)
    with case.db.begin() as session:
        session.execute(sa.update(RunRow).values(data={"attempt": 3}))
    case.settle(GOOD, {**CLEAN, "attempt": 3}, aborted="host away")
    assert case.vacancies() == []
    (told,) = case.rows(AttentionRow)
    assert (told.kind, told.machine) == ("aborted", "m1")
    assert "host away" in told.reason


@pytest.mark.parametrize("how", ["manual", "by a person"])
def test_what_a_person_started_or_ended_is_not_tried_again(case: Case, how: str) -> None:
    case.begin(State.VACATED, Trigger.MANUAL if how == "manual" else Trigger.VACATED)
    ended = {} if how == "manual" else {"aborted_by": "anna"}
    case.settle(GOOD, {**CLEAN, **ended}, aborted="enough")
    assert case.vacancies() == []
    assert len(case.rows(AttentionRow)) == 1


@pytest.mark.parametrize(
    ("data", "to"),
    [
        (CLEAN, State.AVAILABLE),
        ({"placed": False, "ended_in": "queued"}, State.AVAILABLE),
        ({"placed": False, "ended_in": "preflight", "seen_clean": True}, State.AVAILABLE),
        ({"placed": False, "ended_in": "preflight"}, State.VACATED),
        ({**CLEAN, "vm_gone": False}, State.VACATED),
        ({**CLEAN, "devices_back": False}, State.VACATED),
    ],
)
def test_available_is_restored_only_when_all_is_seen_clean(case: Case, data: Mapping[str, Any], to: State) -> None:
    case.begin(State.AVAILABLE, Trigger.MANUAL)
    case.settle(GOOD, data, aborted="a person ended it")
    assert case.machine.state is to
    assert len(case.rows(AttentionRow)) == (to is State.VACATED)


def test_failing_evidence_settles_failed_even_when_aborted(case: Case) -> None:
    case.begin(State.AVAILABLE, Trigger.MANUAL)
    assert case.settle(BAD, aborted="a person ended it") == Verdict.FAILED
    assert case.machine.state is State.FAILED


def test_a_site_that_only_observes_condemns_nothing(case: Case) -> None:
    with case.db.begin() as session:
        site.set_mode(session, "observe", BY)
    case.begin(State.VACATED)
    assert case.settle(BAD) == Verdict.FAILED
    assert case.machine.state is State.VACATED
    assert case.rows(TicketRow) == []
    (told,) = case.rows(AttentionRow)
    assert told.kind == "observed failure"


def test_an_observed_failure_of_an_available_machine_is_told(case: Case) -> None:
    with case.db.begin() as session:
        site.set_mode(session, "observe", BY)
    case.begin(State.AVAILABLE, Trigger.MANUAL)
    assert case.settle(BAD) == Verdict.FAILED
    assert case.machine.state is State.AVAILABLE
    assert [told.kind for told in case.rows(AttentionRow)] == ["observed failure"]


def test_a_tenant_that_is_there_gets_the_machine_and_the_ticket_is_filed_all_the_same(case: Case) -> None:
    case.begin(State.VACATED)
    case.settle(BAD, {**CLEAN, "tenants": [["u-1", "tenant-b"]]}, aborted="tenant domain on the host")
    assert case.machine.state is State.ALLOCATED
    assert [i.id for i in case.machine.instances] == ["u-1"]
    assert len(case.rows(TicketRow)) == 1
    assert [a.kind for a in case.rows(AttentionRow)] == ["tenant appeared"]


def test_a_placed_event_that_waited_is_true_after_the_pass(case: Case) -> None:
    case.begin(State.VACATED)
    with case.db.begin() as session:  # as it was before the vacate: a on it, b waiting
        machines.add_instance(session, "m1", "a")
        session.execute(sa.text("UPDATE machine SET state = 'allocated'"))
        assert apply(session, Event("e-b", EventKind.PLACED, "m1", "b"), BY).state == "waiting"
        machines.remove_instance(session, "m1", "a")
        session.execute(sa.text("UPDATE machine SET state = 'validating'"))
    case.settle(GOOD)
    assert case.machine.state is State.ALLOCATED
    assert [i.id for i in case.machine.instances] == ["b"]


@pytest.mark.parametrize(("prior", "aborted"), [(State.VACATED, None), (State.AVAILABLE, None), (State.AVAILABLE, "x")])
def test_a_tenant_that_is_said_to_stay_keeps_the_machine_out_until_a_look(
    case: Case, prior: State, aborted: str | None
) -> None:
    """The event came too late to abort the run; the domain may not be back yet."""
    case.begin(prior)
    with case.db.begin() as session:
        session.execute(sa.update(MachineRow).values(vacated_because={"instance": "a"}))
        session.execute(sa.update(RunRow).values(phase="teardown"))
        assert apply(session, Event("e-k", EventKind.KEPT, "m1", "a"), BY).state == "waiting"
        session.execute(sa.update(RunRow).values(phase=begin.FIRST))
    case.settle(GOOD, aborted=aborted)
    assert case.machine.state is State.VACATED
    assert [run.why for run in case.vacancies()] == ["a migration was rolled back"]
    assert [n.kind for n in case.rows(NoticeRow)][1:] in ([], ["pool.withdrawn"])  # the first is of its import


def test_an_event_that_comes_while_a_verdict_is_settled_is_seen_by_it(case: Case) -> None:
    case.begin(State.VACATED)
    with case.db.begin() as session:
        session.execute(sa.update(MachineRow).values(vacated_because={"instance": "a"}))
    with case.db.read() as session:
        seen = machines.get(session, "m1")
    with case.db.begin() as session:
        apply(session, Event("e-k", EventKind.KEPT, "m1", "a"), BY)
    with pytest.raises(Conflict), case.db.begin() as session:
        machines.move(session, seen, Move.PASS, "all passed", BY)


def test_the_vms_keys_leave_the_record_with_the_verdict(case: Case) -> None:
    case.begin(State.VACATED)
    with case.db.begin() as session:
        (row,) = session.scalars(sa.select(validations.ValidationRow)).all()
        row.secrets = KEYS
    case.settle(GOOD)
    (row,) = case.rows(validations.ValidationRow)
    assert row.secrets is None
    assert {e["phase"] for e in row.phases} == {"queued", "settled"}
    assert all(e["until"] is not None for e in row.phases)
