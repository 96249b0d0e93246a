"""Every state with every step: a legal state, or a typed error."""

from __future__ import annotations

import itertools

import pytest
from counterfoil.errors import StreamStateError
from counterfoil.protocol.client_stream.states import READING, TABLE, State, Step, advance


@pytest.mark.parametrize(("state", "step"), list(itertools.product(State, Step)))
def test_whole_table(state: State, step: Step) -> None:
    if step in TABLE[state]:
        assert advance(state, step) is TABLE[state][step]
    else:
        with pytest.raises(StreamStateError, match=f"{state}.*{step}"):
            advance(state, step)


def test_every_state_is_reached_and_can_end() -> None:
    reached = {State.UNOPENED}
    while True:
        following = {target for state in reached for target in TABLE[state].values()} | reached
        if following == reached:
            break
        reached = following
    assert reached == set(State)
    assert all(Step.FINISHED in TABLE[state] for state in State if state is not State.ENDED)


def test_ended_is_final() -> None:
    assert TABLE[State.ENDED] == {}


def test_only_a_verdict_leads_to_delivery() -> None:
    """No path into FLOWING but from JUDGING."""
    sources = {
        state for state, steps in TABLE.items() for target in steps.values() if target is State.FLOWING
    }
    assert sources == {State.JUDGING}
    assert {State.JUDGING, State.FLOWING, State.ANSWER_ONLY} == READING
