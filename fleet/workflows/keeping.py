"""When evidence cannot be kept, or not be read: the validation waits, then ends `aborted` with that reason. It never passes
and never condemns by what is not stored."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from fleet.core.errors import EvidenceError
from fleet.engine.workflow import Next, Work
from fleet.store import attention
from fleet.workflows import begin, preflight
from fleet.workflows.record import Record, ended_early
from fleet.workflows.world import World

ATTENTION, STORE = "evidence", "store"
_AGAIN_S = 5.0
_ANOTHER_S = 60.0  # no failure for so long: the next one is another outage


def unkept(world: World, work: Work, record: Record, error: EvidenceError) -> Next:
    """The same step again, until the patience is over; then the way out. A failure of the hardware that the record does not
    show condemns nothing: what is aborted here goes back to where it was."""
    phase, now = work.run.phase, work.run.now
    before: Mapping[str, Any] = record.data.get("unkept") or {}
    goes_on = before.get("phase") == phase and now - float(before["last"]) < _ANOTHER_S
    since = float(before["since"]) if goes_on else now
    data: dict[str, Any] = {"unkept": {"phase": phase, "since": since, "last": now}}
    why = f"evidence cannot be stored or read: {error}"
    if now - since < world.policy.evidence_patience_s:
        return Next(phase, why, _AGAIN_S, data, tells(str(error)))
    if phase in begin.ABORTABLE:
        if phase in ("withdrawal", "preflight", "hooks"):
            data |= preflight.last_look(world, record)
        return ended_early(record, phase, why, data)
    return Next(phase, why, data={**data, "aborted": record.data.get("aborted") or why})


def tells(reason: str) -> Callable[[Session], None]:
    def tell(session: Session) -> None:
        attention.need(
            session,
            ATTENTION,
            STORE,
            machine=None,
            reason=f"evidence cannot be stored or read, and no validation passes without: {reason}",
            next_step="make room, or mend what `evidence:` in the settings names; this closes when the store takes evidence"
            " again, then `fleet revalidate MACHINE` for what was aborted meanwhile",
        )

    return tell
