"""Telling the outside what was promised: one perpetual run for each destination, one message at a time.

A message says how things are now, not how they were when it was promised, with a version of each subject to order by: one
that was held up on its way changes nothing for a receiver that has heard a newer one. No notice is given up. A receiver that
is away costs one thread for one call now and then, and no validation its turn."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence

from sqlalchemy.orm import Session

from fleet.core.clock import Deadline
from fleet.core.errors import InvalidInput, RemoteError
from fleet.engine.workflow import Next, Phase, Work, Workflow, ensure_run
from fleet.store import machines, notices
from fleet.store.audit import By
from fleet.store.tables import NoticeRow, RunRow
from fleet.webhook.receiver import CALL_S, NOT_NOW, Receiver
from fleet.workflows import messages
from fleet.workflows.events import apply_waiting
from fleet.workflows.world import World

KIND = "delivery"
SEND = "send"
BY = By("service:delivery")
MOST_IN_ONE = 100
LONGEST_WAIT_S = 300.0
_ROUND_S = 60.0  # between two looks at what nobody writes a notice of: a hold that ends by itself
_AGAIN_S = 60.0  # until what was received, and not acknowledged, is sent again
_KEPT_S = 7 * 86400.0


def ensure(session: Session) -> None:
    """One run a destination for the whole fleet, whichever process starts first."""
    for destination in notices.DESTINATIONS:
        ensure_run(session, KIND, SEND, destination, why="first round")


def workflow(world: World) -> Workflow:
    def send(work: Work) -> Next:
        return _send(world, work)

    def give_up(_work: Work, error: Exception) -> Next:
        return Next(SEND, f"broken off: {error}", _ROUND_S)

    receiving = [destination for destination, receiver in _receivers(world).items() if receiver is not None]
    awake = RunRow.subject.in_(receiving) & notices.is_due(RunRow.subject)
    return Workflow(KIND, {SEND: Phase(send, abortable=False)}, abort=send, give_up=give_up, awake=awake)


def _receivers(world: World) -> Mapping[str, Receiver | None]:
    return {notices.SCHEDULER: world.scheduler, notices.ATTENTION: world.attention_hook}


def _send(world: World, work: Work) -> Next:
    destination, now, data = work.run.subject, work.run.now, work.run.data
    receiver = _receivers(world)[destination]
    if receiver is None:
        return Next(
            SEND, "no receiver is set up", _ROUND_S, within=_round(destination, "nobody: no receiver is set up")
        )
    if (wait_s := data.get("not_before", 0.0) - now) > 0.0:  # something new: it waits with the others
        return Next(SEND, "waits after an error", wait_s, within=_postponed(destination, data["not_before"]))
    with world.db.read() as session:
        rows = notices.batch(session, destination, MOST_IN_ONE)
        told = messages.told(session, destination, rows)
    if not told:
        return Next(SEND, "nothing is to be told", 0.0 if rows else _ROUND_S, within=_round(destination, over=rows))
    id_, message = messages.message(destination, list(told.values()), now)
    work.guard()
    deadline, away = Deadline.after(CALL_S), True
    try:
        answer = receiver.post(id_, message, deadline)
        away = answer.status in NOT_NOW
        if not 200 <= answer.status < 300:
            raise InvalidInput(answer.words)
        acknowledged = messages.acknowledged(destination, answer, told)
    except (InvalidInput, RemoteError) as exc:
        ended = now + CALL_S - deadline.left_s
        if not away and len(rows) == 1:
            return _choked(destination, rows[0], ended, str(exc))
        return _failed(work, rows, ended, str(exc), counts=not away)
    versions = {subject: int(notice["version"]) for subject, notice in told.items()}

    def delivered(session: Session) -> None:
        notices.delivered(session, destination, versions, acknowledged, _AGAIN_S)
        _close(session, destination, [row for row in rows if row.subject not in told])

    why = f"{len(acknowledged)} of {len(told)} acknowledged"
    return Next(SEND, why, data={"tries": 0, "not_before": 0.0}, within=delivered)


def _failed(work: Work, rows: Sequence[NoticeRow], ended: float, error: str, *, counts: bool) -> Next:
    """The receiver is away, or wrong in some way of its own: everything waits, longer each time."""
    destination, tries = work.run.subject, int(work.run.data.get("tries", 0)) + 1
    wait_s = _wait_s(tries)

    def failed(session: Session) -> None:
        notices.failed(session, destination, [row.subject for row in rows], error, counts=counts)
        notices.postpone(session, destination, ended + wait_s)

    data = {"tries": tries, "not_before": ended + wait_s}
    return Next(SEND, f"try {tries}: {error}", wait_s, data=data, within=failed)


def _choked(destination: str, row: NoticeRow, ended: float, error: str) -> Next:
    """It may be this one notice that is answered with an error: it waits, and no other."""
    until = ended + _wait_s(row.attempts + 1)

    def choked(session: Session) -> None:
        notices.failed(session, destination, [row.subject], error, counts=True)
        notices.postpone(session, destination, until, [row.subject])

    return Next(SEND, f"{row.subject}: {error}", data={"tries": 0, "not_before": 0.0}, within=choked)


def _wait_s(tries: int) -> float:
    """Not all at the same moment: the receiver may have been away for many."""
    return min(LONGEST_WAIT_S, 2.0 ** min(tries, 10)) * random.uniform(0.5, 1.0)  # noqa: S311


def _round(destination: str, by: str | None = None, over: Sequence[NoticeRow] = ()) -> Callable[[Session], None]:
    """What is done when there is nothing to send. `by`: nothing ever is, and why."""

    def within(session: Session) -> None:
        _close(session, destination, over)
        if by is not None:
            notices.close(session, destination, by)
        notices.forget(session, destination, _KEPT_S)
        if destination == notices.SCHEDULER:
            _lift_expired_holds(session)

    return within


def _postponed(destination: str, until: float) -> Callable[[Session], None]:
    return lambda session: notices.postpone(session, destination, until)


def _close(session: Session, destination: str, over: Collection[NoticeRow]) -> None:
    for row in over:
        notices.close(session, destination, "nobody: it was over", subject=row.subject, up_to=row.version)


def _lift_expired_holds(session: Session) -> None:
    """The end of a hold is nobody's act, and the scheduler must hear of it all the same."""
    for machine in machines.hold_expired(session):
        machines.set_hold(session, machine, None, BY)
        apply_waiting(session, machine.name, BY)
