"""Machine states and the moves between them: one table, which is the diagram and the test as well."""

from collections.abc import Mapping
from enum import StrEnum

from fleet.core.errors import IllegalMove


class State(StrEnum):
    AVAILABLE = "available"  # in the pool
    ALLOCATED = "allocated"  # a tenant instance is on it
    VACATED = "vacated"  # tenant gone, not offered, waits for a validation or a person
    VALIDATING = "validating"  # a validation owns it
    FAILED = "failed"  # out, with an open ticket
    RETIRED = "retired"  # out of the fleet


class Move(StrEnum):
    ALLOCATE = "allocated"
    WITHDRAW = "withdrawn"
    VACATE = "vacated"
    KEEP = "kept"
    START_VALIDATION = "validation_started"
    PASS = "passed"
    FAIL = "failed"
    RESTORE_AVAILABLE = "aborted_to_available"
    RESTORE_VACATED = "aborted_to_vacated"
    RESTORE_FAILED = "aborted_to_failed"
    TENANT_APPEARED = "tenant_appeared"
    FIX = "fixed"
    OVERRIDE = "overridden"
    RETIRE = "retired"


NEXT: Mapping[tuple[State, Move], State] = {
    (State.AVAILABLE, Move.ALLOCATE): State.ALLOCATED,
    (State.AVAILABLE, Move.START_VALIDATION): State.VALIDATING,
    (State.AVAILABLE, Move.WITHDRAW): State.VACATED,
    (State.AVAILABLE, Move.RETIRE): State.RETIRED,
    (State.ALLOCATED, Move.VACATE): State.VACATED,
    (State.VACATED, Move.START_VALIDATION): State.VALIDATING,
    (State.VACATED, Move.KEEP): State.ALLOCATED,
    (State.VACATED, Move.OVERRIDE): State.ALLOCATED,
    (State.VACATED, Move.TENANT_APPEARED): State.ALLOCATED,
    (State.VACATED, Move.RETIRE): State.RETIRED,
    (State.VALIDATING, Move.PASS): State.AVAILABLE,
    (State.VALIDATING, Move.FAIL): State.FAILED,
    (State.VALIDATING, Move.RESTORE_AVAILABLE): State.AVAILABLE,
    (State.VALIDATING, Move.RESTORE_VACATED): State.VACATED,
    (State.VALIDATING, Move.RESTORE_FAILED): State.FAILED,
    (State.VALIDATING, Move.TENANT_APPEARED): State.ALLOCATED,
    (State.FAILED, Move.FIX): State.VACATED,
    (State.FAILED, Move.START_VALIDATION): State.VALIDATING,
    (State.FAILED, Move.OVERRIDE): State.ALLOCATED,
    (State.FAILED, Move.RETIRE): State.RETIRED,
}

STABLE = frozenset({State.AVAILABLE, State.ALLOCATED, State.FAILED, State.RETIRED})
"""A machine in any other state is on its way somewhere: it has a deadline, and a watchdog looks after it."""


def advance(state: State, move: Move) -> State:
    """The state after `move`. Raises IllegalMove where the table has no such row."""
    try:
        return NEXT[state, move]
    except KeyError:
        raise IllegalMove(f"a machine that is {state} cannot be {move.replace('_', ' ')}") from None
