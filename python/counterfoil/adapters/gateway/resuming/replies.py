"""Turns the decision on a resume into what this client is told: status, claim, echo, in-band error.

Design §5, row by row; it reads no storage and writes to no connection.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.model.evidence import StoreEvidence
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.model.verdicts import (
    Forged,
    Gap,
    New,
    NotResumable,
    Reoriginated,
    Resumed,
    ResumeVerdict,
    Unverifiable,
)
from counterfoil.native import ResumeAnswer
from counterfoil.protocol.continuity import ContinuityClaim
from counterfoil.protocol.inband_error import InbandError, InbandEvidence


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """How a GET is answered.

    A `status` other than 200 has `errors` as its body and opens no stream.  With 200 and no reader attached,
    `errors` are the whole stream, or `holds_open` keeps one silent and open that has nothing more to say.
    `tells_loss` asks for the notices of a lost standalone stream.
    """

    status: int = 200
    claim: ContinuityClaim
    errors: tuple[InbandError, ...] = ()
    holds_open: bool = False
    tells_loss: bool = False


def reply_to(
    verdict: ResumeVerdict, answer: ResumeAnswer, *, cursor: str | None, is_strict: bool, stops_foreign: bool
) -> Reply:
    """Return the reply to a resume; `is_strict` is `want=strict`, `stops_foreign` is `foreign_ids="stop"`."""
    claim = claim_of(verdict, answer, cursor=cursor)
    if verdict.why is Why.MALFORMED or (verdict.why is Why.FOREIGN_ID and stops_foreign):
        return Reply(status=400, claim=claim, errors=(error_of(verdict, answer, None),))
    if answer.attached != "nothing":
        is_lost = answer.attached == "events" and not isinstance(verdict, New | Resumed)
        return Reply(claim=claim, tells_loss=is_lost)
    errors = tuple(error_of(verdict, answer, request_id) for request_id in _waiting_for(answer))
    if verdict.why is Why.ENDED and is_strict:
        return Reply(status=405, claim=claim, errors=errors)
    if is_strict:
        return Reply(status=409, claim=claim, errors=errors or (error_of(verdict, answer, None),))
    if errors or verdict.why is Why.ENDED or _is_call(answer):
        # Nobody can be told by name whose id has no room in a cursor; any other status ends more than a call.
        return Reply(claim=claim, errors=errors, holds_open=not errors)
    return Reply(status=400, claim=claim, errors=(error_of(verdict, answer, None),))


def _waiting_for(answer: ResumeAnswer) -> tuple[RequestId, ...]:
    """Return the requests that wait for an answer which this stream, or this process, cannot give."""
    if answer.settle != "nothing":
        return answer.request_ids
    if answer.ended is not None or answer.stream is None or answer.stream.request_id is None:
        return ()
    return (answer.stream.request_id,)


def _is_call(answer: ResumeAnswer) -> bool:
    return answer.stream is not None and answer.stream.kind == "call"


def claim_of(verdict: ResumeVerdict, answer: ResumeAnswer, *, cursor: str | None) -> ContinuityClaim:
    """Return the claim; rows that read no storage disclose no epoch, position or digest."""
    first, last = answer.gap or (None, None)
    return ContinuityClaim(
        verdict=token_of(verdict),
        why=verdict.why,
        next=verdict.next,
        executed=Executed.UNKNOWN if verdict.next is Next.RECONCILE else None,
        after=answer.after,
        first=first,
        last=last,
        epoch=answer.epoch,
        digest=answer.digest,
        echo=cursor if cursor is not None and cursor.startswith("cf1.") and len(cursor) <= 128 else None,
    )


def error_of(verdict: ResumeVerdict, answer: ResumeAnswer, request_id: RequestId | None) -> InbandError:
    """Return the in-band error that settles the call a cursor belongs to."""
    if isinstance(verdict, Resumed) and answer.ended is not None:
        # Nothing is wrong with the cursor: the call ended without its answer.
        return InbandError(
            request_id=request_id,
            why=Why(answer.ended),
            executed=Executed.UNKNOWN,
            evidence=InbandEvidence(row=answer.row),
        )
    evidence = verdict.evidence
    if isinstance(evidence, StoreEvidence) and evidence.asked is not None:
        facts = InbandEvidence(
            row=evidence.row,
            epoch=answer.epoch,
            asked=evidence.asked,
            first=evidence.first,
            last=evidence.last,
        )
    else:
        facts = InbandEvidence(row=answer.row)
    return InbandError(
        request_id=request_id,
        why=verdict.why,
        executed=Executed.UNKNOWN,
        verdict=token_of(verdict),
        next=verdict.next,
        evidence=facts,
    )


def token_of(verdict: ResumeVerdict) -> VerdictToken:
    """Return the token of a verdict on the wire."""
    match verdict:
        case New():
            return VerdictToken.NEW
        case Resumed():
            return VerdictToken.RESUMED
        case Gap():
            return VerdictToken.GAP
        case Reoriginated():
            return VerdictToken.REORIGINATED
        case Forged():
            return VerdictToken.FORGED
        case Unverifiable() | NotResumable():
            return VerdictToken.UNVERIFIABLE
        case _:
            assert_never(verdict)
