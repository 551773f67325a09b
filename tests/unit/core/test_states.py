"""The table of machine states: every row of the design, and nothing else."""

import itertools

import pytest

from fleet.core.errors import IllegalMove
from fleet.core.states import NEXT, STABLE, Move, State, advance

ILLEGAL = [pair for pair in itertools.product(State, Move) if pair not in NEXT]


@pytest.mark.parametrize(("state", "move"), ILLEGAL)
def test_what_is_not_in_the_table_is_refused_with_state_and_move(state: State, move: Move) -> None:
    with pytest.raises(IllegalMove, match=state):
        advance(state, move)


def test_only_a_pass_an_abort_or_a_tenant_that_is_there_ends_a_validation() -> None:
    ends = {move for (state, move) in NEXT if state is State.VALIDATING}
    restores = {Move.RESTORE_AVAILABLE, Move.RESTORE_VACATED, Move.RESTORE_FAILED}
    assert ends == {Move.PASS, Move.FAIL, Move.TENANT_APPEARED} | restores


def test_a_machine_that_left_a_tenant_reaches_the_pool_only_through_a_validation() -> None:
    ways_in = {(state, move) for (state, move), to in NEXT.items() if to is State.AVAILABLE}
    assert ways_in == {(State.VALIDATING, Move.PASS), (State.VALIDATING, Move.RESTORE_AVAILABLE)}
    assert {to for (state, _), to in NEXT.items() if state is State.ALLOCATED} == {State.VACATED}


def test_every_state_can_be_left_but_retired_and_unstable_states_are_the_two_on_their_way() -> None:
    assert {state for state, _ in NEXT} == set(State) - {State.RETIRED}
    assert set(State) - STABLE == {State.VACATED, State.VALIDATING}
