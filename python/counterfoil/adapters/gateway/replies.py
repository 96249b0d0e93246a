"""Turns the decision on a resume into what this client is told: status, claim, echo, in-band error.

Design §5, row by row; it reads no storage and writes to no connection.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from counterfoil.adapters.gateway.messages import RequestId
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

    A `status` other than 200 has `error` as its body and opens no stream.  With 200 and no reader attached,
    `error` is the whole stream, or `holds_open` keeps an ended one silent and open.  `tells_loss` asks for
    the notices of a lost standalone stream.
    """

    status: int = 200
    claim: ContinuityClaim
    error: InbandError | None = None
    holds_open: bool = False
    tells_loss: bool = False


def reply_to(
    verdict: ResumeVerdict, answer: ResumeAnswer, *, cursor: str | None, is_strict: bool, stops_foreign: bool
) -> Reply:
    """Return the reply to a resume; `is_strict` is `want=strict`, `stops_foreign` is `foreign_ids="stop"`."""
    claim = claim_of(verdict, answer, cursor=cursor)
    request_id = answer.stream.request_id if answer.stream is not None else None
    error = error_of(verdict, answer, request_id)
    if verdict.why is Why.MALFORMED or (verdict.why is Why.FOREIGN_ID and stops_foreign):
        return Reply(status=400, claim=claim, error=error_of(verdict, answer, None))
    if answer.attached != "nothing":
        is_lost = answer.attached == "events" and not isinstance(verdict, New | Resumed)
        return Reply(claim=claim, tells_loss=is_lost)
    if verdict.why is Why.ENDED:
        return (
            Reply(status=405, claim=claim, error=error) if is_strict else Reply(claim=claim, holds_open=True)
        )
    if is_strict:
        return Reply(status=409, claim=claim, error=error)
    if request_id is None:
        return Reply(status=400, claim=claim, error=error)
    return Reply(claim=claim, error=error)


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
    """Return the in-band error that settles the call a refused cursor belongs to."""
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
