"""The dispatch of one event as three literal tables, one per handler kind, and the line that walks them.

They say which step may follow which, and what a process that dies in a state leaves in the ledger.  They
run nothing and write nothing; the dispatcher does, in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from counterfoil.errors import DispatchStateError
from counterfoil.model.dispatch import Row
from counterfoil.model.tokens import HandlerKind


class State(StrEnum):
    """Where the dispatch of one event stands."""

    RECEIVED = "received"  # judged, and nothing of it is in the ledger
    CLAIMING = "claiming"  # the intent is on its way to the disk
    CLAIMED = "claimed"  # the intent is durable, the handler has not begun
    RUNNING = "running"
    SETTLING = "settling"  # the outcome is on its way to the disk
    RELEASING = "releasing"  # the intent is being taken back
    SUPPRESSED = "suppressed"  # a copy: another run of this process has the event
    SETTLED = "settled"
    ACKNOWLEDGED = "acknowledged"
    STOPPED = "stopped"  # failed closed: the row says what happens when the stream is resumed


class Step(StrEnum):
    """What happens to a dispatch."""

    CLAIM_SENT = "claim sent"
    INTENT_DURABLE = "intent durable"
    FOUND_SETTLED = "found settled"
    FOUND_RUNNING = "found running"
    OTHER_RUN_ENDED = "other run ended"
    HANDLER_BEGUN = "handler begun"
    HANDLER_RETURNED = "handler returned"
    HANDLER_FAILED = "handler failed"
    ATTEMPTS_USED_UP = "attempts used up"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled back"
    COMMIT_REPEATED = "commit repeated"
    OUTCOME_DURABLE = "outcome durable"
    KEY_FREED = "key freed"
    RELEASE_DURABLE = "release durable"
    STORE_FAILED = "store failed"
    ACKNOWLEDGEMENT_SENT = "acknowledgement sent"


Table = Mapping[State, Mapping[Step, State]]

_ENDS: Table = {
    # A copy that waited for another run of this process asks the ledger again when that run has ended.
    State.SUPPRESSED: {Step.OTHER_RUN_ENDED: State.RECEIVED, Step.CANCELLED: State.STOPPED},
    # A lost acknowledgement is repeated when the event comes again and is found settled.
    State.SETTLED: {Step.ACKNOWLEDGEMENT_SENT: State.ACKNOWLEDGED},
    State.ACKNOWLEDGED: {},
    State.STOPPED: {},
}

#: An intent of its own before the handler, an outcome of its own after it.
_OUTSIDE: Table = {
    State.RECEIVED: {Step.CLAIM_SENT: State.CLAIMING, Step.CANCELLED: State.STOPPED},
    State.CLAIMING: {
        Step.INTENT_DURABLE: State.CLAIMED,
        Step.FOUND_SETTLED: State.SETTLED,
        Step.FOUND_RUNNING: State.SUPPRESSED,
        # The commit may be on the disk: only a release that follows it is certain.
        Step.CANCELLED: State.RELEASING,
        Step.STORE_FAILED: State.STOPPED,
    },
    State.CLAIMED: {
        Step.HANDLER_BEGUN: State.RUNNING,
        Step.ATTEMPTS_USED_UP: State.SETTLING,
        Step.CANCELLED: State.RELEASING,
        # The next try could not be counted.
        Step.STORE_FAILED: State.STOPPED,
    },
    State.SETTLING: {
        # The commit alone is tried again, never the handler.
        Step.COMMIT_REPEATED: State.SETTLING,
        Step.OUTCOME_DURABLE: State.SETTLED,
        Step.STORE_FAILED: State.STOPPED,
    },
    State.RELEASING: {Step.RELEASE_DURABLE: State.STOPPED, Step.STORE_FAILED: State.STOPPED},
    **_ENDS,
}

TABLES: Mapping[HandlerKind, Table] = {
    HandlerKind.IDEMPOTENT: {
        **_OUTSIDE,
        State.RUNNING: {
            Step.HANDLER_RETURNED: State.SETTLING,
            Step.HANDLER_FAILED: State.CLAIMED,
            Step.CANCELLED: State.RELEASING,
        },
    },
    HandlerKind.AT_MOST_ONCE: {
        **_OUTSIDE,
        # Begun is begun: whatever ends it, the row is settled, as indeterminate where nobody can tell.
        State.RUNNING: {
            Step.HANDLER_RETURNED: State.SETTLING,
            Step.HANDLER_FAILED: State.SETTLING,
            Step.CANCELLED: State.SETTLING,
        },
        # Not applied frees the key: the next run is one like the first.
        State.SETTLED: {Step.ACKNOWLEDGEMENT_SENT: State.ACKNOWLEDGED, Step.KEY_FREED: State.RECEIVED},
    },
    #: Row, effect and outcome share one commit; until it is durable there is nothing to take back.
    HandlerKind.TRANSACTIONAL: {
        State.RECEIVED: {
            Step.HANDLER_BEGUN: State.RUNNING,
            Step.FOUND_SETTLED: State.SETTLED,
            Step.FOUND_RUNNING: State.SUPPRESSED,
            Step.ATTEMPTS_USED_UP: State.SETTLING,
            Step.CANCELLED: State.STOPPED,
            Step.STORE_FAILED: State.STOPPED,
        },
        State.RUNNING: {
            Step.HANDLER_RETURNED: State.SETTLING,
            Step.HANDLER_FAILED: State.RECEIVED,
            Step.ROLLED_BACK: State.RECEIVED,
        },
        State.SETTLING: {
            # Whatever undid the shared commit, the handler has to run again with it.
            Step.ROLLED_BACK: State.RECEIVED,
            Step.OUTCOME_DURABLE: State.SETTLED,
            Step.STORE_FAILED: State.STOPPED,
        },
        **_ENDS,
    },
}

_INTENT_MAY_BE_THERE = frozenset({State.CLAIMING, State.RELEASING})
_INTENT_IS_THERE = frozenset({State.CLAIMED, State.RUNNING})
_OUTCOME_IS_THERE = frozenset({State.SETTLED, State.ACKNOWLEDGED})


def advance(kind: HandlerKind, state: State, step: Step) -> State:
    """Return the next state.

    Raises `DispatchStateError` for a step that the state does not know.
    """
    try:
        return TABLES[kind][state][step]
    except KeyError:
        raise DispatchStateError(f"a dispatch ({kind}) that is {state} cannot have its {step}") from None


def rows_left_behind(kind: HandlerKind, state: State) -> frozenset[Row]:
    """Return which rows the next process may find if this one dies here.

    More than one where a commit is in flight.
    """
    if state in _OUTCOME_IS_THERE:
        return frozenset({Row.COMPLETED})
    if kind is HandlerKind.TRANSACTIONAL:
        return frozenset({Row.NONE, Row.COMPLETED} if state is State.SETTLING else {Row.NONE})
    if state is State.SETTLING:
        return frozenset({Row.INTENDED, Row.COMPLETED})
    if state in _INTENT_IS_THERE:
        return frozenset({Row.INTENDED})
    if state in _INTENT_MAY_BE_THERE:
        return frozenset({Row.NONE, Row.INTENDED, Row.RELEASED})
    return frozenset({Row.NONE})
