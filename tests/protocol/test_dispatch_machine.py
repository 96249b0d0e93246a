"""Every state with every step, for every kind; and what a crash in each state becomes in the next process."""

from __future__ import annotations

import itertools

import pytest
from counterfoil.decisions.dispatch import decide_dispatch
from counterfoil.errors import DispatchStateError
from counterfoil.model.dispatch import Dispatch, DispatchEvidence, Incarnation, Park, ReturnRecorded, Row
from counterfoil.model.tokens import HandlerKind
from counterfoil.protocol.dispatch_machine import TABLES, State, Step, advance, rows_left_behind

FINAL = {State.ACKNOWLEDGED, State.STOPPED}


@pytest.mark.parametrize(("kind", "state", "step"), list(itertools.product(HandlerKind, State, Step)))
def test_whole_table(kind: HandlerKind, state: State, step: Step) -> None:
    if step in TABLES[kind].get(state, {}):
        assert advance(kind, state, step) is TABLES[kind][state][step]
    else:
        with pytest.raises(DispatchStateError, match=str(kind)):
            advance(kind, state, step)


def reachable(kind: HandlerKind) -> set[State]:
    found = {State.RECEIVED}
    while True:
        more = found | {target for state in found for target in TABLES[kind][state].values()}
        if more == found:
            return found
        found = more


@pytest.mark.parametrize("kind", HandlerKind)
def test_every_listed_state_is_reached_and_leads_to_an_end(kind: HandlerKind) -> None:
    assert reachable(kind) == set(TABLES[kind])
    ends = set(FINAL)
    while True:
        more = ends | {state for state, steps in TABLES[kind].items() if ends & set(steps.values())}
        if more == ends:
            break
        ends = more
    assert ends == set(TABLES[kind]) | FINAL


@pytest.mark.parametrize("kind", [HandlerKind.IDEMPOTENT, HandlerKind.AT_MOST_ONCE])
def test_no_handler_begins_before_its_intent_is_durable(kind: HandlerKind) -> None:
    sources = {state for state, steps in TABLES[kind].items() if State.RUNNING in steps.values()}
    assert sources == {State.CLAIMED}
    into_claimed = {
        (state, step)
        for state, steps in TABLES[kind].items()
        for step, target in steps.items()
        if target is State.CLAIMED
    }
    assert into_claimed <= {(State.CLAIMING, Step.INTENT_DURABLE), (State.RUNNING, Step.HANDLER_FAILED)}


@pytest.mark.parametrize("kind", HandlerKind)
def test_acknowledged_only_after_a_durable_outcome(kind: HandlerKind) -> None:
    for state, steps in TABLES[kind].items():
        for step, target in steps.items():
            if target is State.SETTLED:
                assert step in (Step.OUTCOME_DURABLE, Step.FOUND_SETTLED)
            if target is State.ACKNOWLEDGED:
                assert state is State.SETTLED


def test_at_most_once_never_begins_twice() -> None:
    """From RUNNING there is no way back to it, but by the outcome that says that nothing was done."""
    table = TABLES[HandlerKind.AT_MOST_ONCE]

    def targets(state: State) -> set[State]:
        return {target for step, target in table[state].items() if step is not Step.KEY_FREED}

    after = {State.RUNNING}
    while True:
        more = after | {target for state in after for target in targets(state)}
        if more == after:
            break
        after = more
    assert not any(State.RUNNING in targets(state) for state in after)
    assert [state for state in State if Step.KEY_FREED in table[state]] == [State.SETTLED]


#: The crash matrix for kill, power loss and split brain, by column: idempotent, at most once, transactional.
#: E is once, R is at most once and reported.
MATRIX = {
    State.RECEIVED: ("E", "E", "E"),
    State.CLAIMING: ("E", "E or R", None),
    State.CLAIMED: ("E", "R", None),
    State.RUNNING: ("E", "R", "E"),
    State.SETTLING: ("E", "E or R", "E"),
    State.RELEASING: ("E", "E or R", None),
    State.SETTLED: ("E", "E", "E"),
    State.ACKNOWLEDGED: ("E", "E", "E"),
}
COLUMNS = (HandlerKind.IDEMPOTENT, HandlerKind.AT_MOST_ONCE, HandlerKind.TRANSACTIONAL)


def after_the_crash(kind: HandlerKind, state: State) -> set[str]:
    """What becomes of the event in the next process, for each row that it may find."""
    codes = set()
    for row in rows_left_behind(kind, state):
        verdict = decide_dispatch(DispatchEvidence(row=row, kind=kind, incarnation=Incarnation.EARLIER))
        if isinstance(verdict, Park):
            codes.add("R")
        else:
            assert isinstance(verdict, Dispatch | ReturnRecorded)
            codes.add("E")
    return codes


@pytest.mark.parametrize("state", MATRIX)
@pytest.mark.parametrize("kind", HandlerKind)
def test_crash_in_every_state_is_a_cell_of_the_matrix(kind: HandlerKind, state: State) -> None:
    cell = MATRIX[state][COLUMNS.index(kind)]
    if cell is None:
        assert state not in TABLES[kind]
        return
    assert after_the_crash(kind, state) == set(cell.split(" or "))


def test_a_second_run_after_a_crash_cannot_double_an_effect() -> None:
    """Where the next process runs the handler again, the effect is rolled back, keyed, or never began."""
    never_begun = {State.RECEIVED, State.CLAIMING, State.RELEASING}
    for kind, state in itertools.product(HandlerKind, MATRIX):
        if kind is not HandlerKind.AT_MOST_ONCE or state not in TABLES[kind]:
            continue
        for row in rows_left_behind(kind, state):
            verdict = decide_dispatch(DispatchEvidence(row=row, kind=kind, incarnation=Incarnation.EARLIER))
            if isinstance(verdict, Dispatch):
                assert state in never_begun
                assert row in (Row.NONE, Row.RELEASED)
