"""Decide whether a handler may run, from the row that the ledger holds for its event.

It must be asked at the top of every run, in every incarnation (a transactional run asks inside its own
savepoint), and it never looks at the ledger itself.
"""

from __future__ import annotations

from typing import assert_never

from counterfoil.model.dispatch import (
    Attempts,
    Dispatch,
    DispatchEvidence,
    DispatchVerdict,
    GiveUp,
    Incarnation,
    InFlight,
    KeyExpired,
    Park,
    ReturnRecorded,
    Row,
)
from counterfoil.model.tokens import HandlerKind, Next, Why


def decide_dispatch(evidence: DispatchEvidence) -> DispatchVerdict:
    """Return whether to run the handler, to wait for a run, to repeat what is recorded, or to park the event.

    An intent of the living process is a run in progress, however late the copy comes; only that of an
    earlier one is a doubt, and only a transactional or an idempotent handler may resolve the doubt by
    running again.
    """
    match evidence.row:
        case Row.NONE:
            return Dispatch(evidence=evidence, why=Why.NO_ROW, next=Next.CONTINUE, attempt=1)
        case Row.COMPLETED | Row.FAILED | Row.INDETERMINATE:
            return ReturnRecorded(evidence=evidence, why=Why.SETTLED, next=Next.DONE)
        case Row.NOT_APPLIED:
            return _run_again(evidence, Why.NOT_APPLIED)
        case Row.RELEASED:
            return _run_again(evidence, Why.RELEASED)
        case Row.INTENDED:
            return _after_intent(evidence)
        case Row.CANCELLING:
            return _unless_living(evidence, Why.CANCELLING)
        case Row.AWAITING_INPUT:
            return _unless_living(evidence, Why.AWAITING_INPUT)
        case Row.TOMBSTONE:
            return KeyExpired(evidence=evidence, why=Why.EXPIRED, next=Next.RECONCILE)
        case _:
            assert_never(evidence.row)


def _run_again(evidence: DispatchEvidence, why: Why) -> DispatchVerdict:
    if evidence.attempts is Attempts.EXHAUSTED:
        return GiveUp(evidence=evidence, why=Why.ATTEMPTS, next=Next.RECONCILE)
    return Dispatch(evidence=evidence, why=why, next=Next.CONTINUE, attempt=evidence.attempt + 1)


def _after_intent(evidence: DispatchEvidence) -> DispatchVerdict:
    if evidence.incarnation is Incarnation.LIVING:
        return InFlight(evidence=evidence, why=Why.INTENDED, next=Next.RETRY)
    if evidence.kind is HandlerKind.AT_MOST_ONCE:
        return Park(evidence=evidence, why=Why.INTENDED, next=Next.RECONCILE)
    return _run_again(evidence, Why.INTENDED)


def _unless_living(evidence: DispatchEvidence, why: Why) -> DispatchVerdict:
    if evidence.incarnation is Incarnation.LIVING:
        return InFlight(evidence=evidence, why=why, next=Next.RETRY)
    return Park(evidence=evidence, why=why, next=Next.RECONCILE)
