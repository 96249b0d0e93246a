"""Check one event after the verdict: is it the next one, and may it be dispatched?

A response that answers an outstanding request settles it whatever this says of the stream.  Echoes are not
events: they must not be passed.
"""

from __future__ import annotations

from counterfoil.model.events import Body, EventEvidence, Identity, Keyed, Mode, Name, Scheme, Seen
from counterfoil.model.tokens import Next, Why
from counterfoil.model.verdicts import Duplicate, EventJudgement, Fault, Fresh, Skipped

#: What breaks a stream of our ids; every event must be the one after the last.
_FAULTS_CF1 = {
    Identity.ABSENT: Why.NO_IDS,
    Identity.EMPTY: Why.EMPTY_ID,
    Identity.OTHER_SCHEME: Why.SCHEME,
    Identity.OTHER_STREAM: Why.STREAM,
    Identity.OTHER_EPOCH: Why.EPOCH,
    Identity.NOT_ABOVE: Why.ORDER,
    Identity.JUMP: Why.JUMP,
    Identity.DIFFERENT: Why.DIVERGED,
}
#: Foreign ids may be absent or empty; an order is judged only where the caller declared one.
_FAULTS_FOREIGN = {
    Identity.OTHER_SCHEME: Why.SCHEME,
    Identity.NOT_ABOVE: Why.ORDER,
    Identity.JUMP: Why.JUMP,
    Identity.DIFFERENT: Why.OTHER_BYTES,
}


def check_event(evidence: EventEvidence) -> EventJudgement:
    """Return whether the event is dispatched (`Fresh`), passed over, suppressed, or breaks the stream.

    `Fault` with `next=retry`: close before dispatch and resume from our position.  With `next=stop`: a
    duplicate came and nothing proves that a second run is harmless, so the stream fails closed.
    """
    if evidence.mode is Mode.RESPONSE_ONLY:
        return _check_response_only(evidence)
    faults = _FAULTS_CF1 if evidence.scheme is Scheme.CF1 else _FAULTS_FOREIGN
    broken = faults.get(evidence.identity)
    if broken is not None:
        return _fault(evidence, broken)
    if evidence.name is Name.OTHER:
        return _skip(evidence, Why.NAME)
    if evidence.body is not Body.JSON_RPC:
        return _check_other_body(evidence)
    return _check_seen(evidence)


def _check_response_only(evidence: EventEvidence) -> EventJudgement:
    # Its holes are declared, so order proves nothing; a payload key speaks for itself, through the ledger.
    if evidence.keyed is Keyed.YES and evidence.body is Body.JSON_RPC:
        return Fresh(evidence=evidence, why=Why.KEY, next=Next.CONTINUE, settles=evidence.settles)
    return _skip(evidence, evidence.stream_why)


def _check_other_body(evidence: EventEvidence) -> EventJudgement:
    if evidence.body is Body.EMPTY_OBJECT:
        return _skip(evidence, Why.NOT_JSON_RPC)
    return _fault(evidence, Why.NOT_JSON_RPC)


def _check_seen(evidence: EventEvidence) -> EventJudgement:
    if evidence.seen is Seen.ANSWERED:
        return Duplicate(evidence=evidence, why=Why.REPEATED, next=Next.CONTINUE, settles=evidence.settles)
    if evidence.seen is Seen.UNPROVEN:
        return _fault(evidence, Why.UNPROVEN, Next.STOP)
    return Fresh(evidence=evidence, why=Why.NEXT_EVENT, next=Next.CONTINUE, settles=evidence.settles)


def _fault(evidence: EventEvidence, why: Why, following: Next = Next.RETRY) -> Fault:
    return Fault(evidence=evidence, why=why, next=following, settles=evidence.settles)


def _skip(evidence: EventEvidence, why: Why) -> Skipped:
    return Skipped(evidence=evidence, why=why, next=Next.CONTINUE, settles=evidence.settles)
