"""The states of a client's stream, as one table and the few lines that walk it.

Nothing else decides where a stream goes next; what an input means for the state is said by whoever sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from counterfoil.errors import StreamStateError


class State(StrEnum):
    """Where the stream stands."""

    UNOPENED = "unopened"
    OPENING = "opening"  # asked, and no response head yet
    JUDGING = "judging"  # an answer, and no verdict yet
    FLOWING = "flowing"  # continuous: events are dispatched
    ANSWER_ONLY = "answer-only"  # not continuous: read for the outstanding answer alone
    WAITING = "waiting"  # between two connections
    LOST = "lost"  # not continuous, and nothing to read it for: the application decides
    ENDED = "ended"


class Step(StrEnum):
    """What moves a stream."""

    ASKED = "asked"
    ANSWERED = "answered"
    CONTINUED = "continued"  # the verdict is new or resumed
    BROKEN = "broken"  # another verdict, and an answer may still come
    LOST = "lost"  # another verdict, and nothing may come
    INTERRUPTED = "interrupted"  # the connection failed, ended, or was closed for a fault
    ACCEPTED = "accepted"  # the application takes the loss
    FINISHED = "finished"


_FROM_ANYWHERE = {Step.FINISHED: State.ENDED}

TABLE: Mapping[State, Mapping[Step, State]] = {
    State.UNOPENED: {Step.ASKED: State.OPENING, **_FROM_ANYWHERE},
    State.OPENING: {
        Step.ANSWERED: State.JUDGING,
        Step.INTERRUPTED: State.WAITING,
        **_FROM_ANYWHERE,
    },
    State.JUDGING: {
        Step.CONTINUED: State.FLOWING,
        Step.BROKEN: State.ANSWER_ONLY,
        Step.LOST: State.LOST,
        Step.INTERRUPTED: State.WAITING,
        **_FROM_ANYWHERE,
    },
    State.FLOWING: {Step.INTERRUPTED: State.WAITING, **_FROM_ANYWHERE},
    State.ANSWER_ONLY: {Step.INTERRUPTED: State.WAITING, **_FROM_ANYWHERE},
    State.WAITING: {Step.ASKED: State.OPENING, **_FROM_ANYWHERE},
    State.LOST: {Step.ACCEPTED: State.WAITING, **_FROM_ANYWHERE},
    State.ENDED: {},
}

#: States in which an answer is being read.
READING = frozenset({State.JUDGING, State.FLOWING, State.ANSWER_ONLY})


def advance(state: State, step: Step) -> State:
    """Return the next state.

    Raises `StreamStateError` for a step that the state does not know.
    """
    try:
        return TABLE[state][step]
    except KeyError:
        raise StreamStateError(f"a stream that is {state} cannot be {step}") from None
