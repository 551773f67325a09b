"""A scheduler may believe in a pool that was: no test VM is placed before it has said that it knows the machine is out.

Nobody waits on the way: it hears by the outbox, and this only looks whether it has answered. `claim` refuses the machine
all the while; the wait is for whoever places first and asks later."""

from fleet.engine.workflow import Next, Work
from fleet.store import notices
from fleet.workflows.preflight import last_look
from fleet.workflows.record import Record, ended_early
from fleet.workflows.world import World

PHASE = "withdrawal"
_SOON_S, _LATER_S = 0.15, 2.0  # between two looks: a scheduler that is well answers at once


def is_awaited(world: World, record: Record) -> bool:
    """Is there a scheduler that may not know yet?"""
    if world.scheduler is None:
        return False
    with world.db.read() as session:
        return notices.withdrawal_open(session, record.machine.name) is not None


def withdrawal(world: World, work: Work, record: Record) -> Next:
    if world.scheduler is None:
        return Next("preflight", "no scheduler is set up")
    with world.db.read() as session:
        notice = notices.withdrawal_open(session, record.machine.name)
    if notice is None:
        return Next("preflight", "the scheduler knows that the machine is out of the pool")
    if work.run.in_phase_s < world.policy.withdrawal_deadline_s:
        pace_s = _SOON_S if work.run.in_phase_s < 20.0 else _LATER_S
        return Next(PHASE, f"waits for the scheduler to acknowledge notice ntc-{notice.id}", pace_s)
    received = "it was received, and not acknowledged" if notice.delivered_at is not None else "it was not sent"
    known = notice.last_error or received
    waited_s = world.policy.withdrawal_deadline_s
    why = f"the scheduler did not acknowledge the withdrawal (notice ntc-{notice.id}) within {waited_s:.0f} s: {known}"
    # it may have placed a tenant: that is seen on the host, or not seen
    return ended_early(record, PHASE, why, last_look(world, record))
