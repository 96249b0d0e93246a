"""Match a call with what its idempotency key already stands for.

The key names one intended effect and the fingerprint its arguments; it never compares JSON-RPC ids, and never
looks at the ledger itself.
"""

from __future__ import annotations

from typing import assert_never

from counterfoil.model.dispatch import (
    Dispatch,
    Honours,
    Incarnation,
    InFlight,
    KeyConflict,
    KeyExpired,
    Match,
    Park,
    RequestEvidence,
    RequestVerdict,
    ReturnQuestion,
    ReturnRecorded,
    Row,
)
from counterfoil.model.tokens import Next, Why


def match_request(evidence: RequestEvidence) -> RequestVerdict:
    """Return whether the call is the first under its key, a retry, in flight, in conflict, or expired.

    Other arguments under a used key are a conflict whatever became of it.  `not_applied` is the one outcome
    that frees the key.  An intent of an earlier process is sent again only to a peer that has acknowledged
    our keys.
    """
    row = evidence.row
    if row is Row.NONE:
        return _run(evidence, Why.NO_ROW)
    if evidence.fingerprint is Match.DIFFERENT:
        return KeyConflict(evidence=evidence, why=Why.FINGERPRINT, next=Next.STOP)
    match row:
        case Row.COMPLETED | Row.FAILED | Row.INDETERMINATE:
            return ReturnRecorded(evidence=evidence, why=Why.SETTLED, next=Next.DONE)
        case Row.NOT_APPLIED:
            return _run(evidence, Why.NOT_APPLIED)
        case Row.RELEASED:
            return _run(evidence, Why.RELEASED)
        case Row.AWAITING_INPUT:
            if evidence.input_round is Match.EQUAL:
                return ReturnQuestion(evidence=evidence, why=Why.AWAITING_INPUT, next=Next.DONE)
            return _run(evidence, Why.AWAITING_INPUT)
        case Row.INTENDED:
            return _after_intent(evidence)
        case Row.CANCELLING:
            if evidence.incarnation is Incarnation.LIVING:
                return InFlight(evidence=evidence, why=Why.CANCELLING, next=Next.RETRY)
            return Park(evidence=evidence, why=Why.CANCELLING, next=Next.RECONCILE)
        case Row.TOMBSTONE:
            return KeyExpired(evidence=evidence, why=Why.EXPIRED, next=Next.RECONCILE)
        case _:
            assert_never(row)


def _run(evidence: RequestEvidence, why: Why) -> Dispatch:
    return Dispatch(evidence=evidence, why=why, next=Next.CONTINUE, attempt=evidence.attempt + 1)


def _after_intent(evidence: RequestEvidence) -> RequestVerdict:
    if evidence.incarnation is Incarnation.LIVING:
        return InFlight(evidence=evidence, why=Why.INTENDED, next=Next.RETRY)
    if evidence.honours is Honours.KEYS:
        return _run(evidence, Why.INTENDED)
    return Park(evidence=evidence, why=Why.INTENDED, next=Next.RECONCILE)
