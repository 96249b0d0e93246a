"""Tells a first caller who comes back that an identical call got its answer (decision L6)."""

from __future__ import annotations

from collections.abc import Callable

from counterfoil.adapters.gateway.resuming.gets import GetTerms
from counterfoil.adapters.gateway.streams.claims import JSON_FIELDS, claim_field
from counterfoil.adapters.gateway.streams.openings import make_headers
from counterfoil.adapters.gateway.streams.sse_out import write_whole
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.asgi import Send
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.model.evidence import StoreEvidence
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.model.verdicts import ResumeVerdict, Unverifiable
from counterfoil.native import StreamToken, encode_event
from counterfoil.protocol.continuity import ContinuityClaim, Want, write_comment
from counterfoil.protocol.inband_error import InbandError, write_inband_error

#: The row of an ended stream, which this one is for its first caller.
_ROW = 12
#: The row of a stream that nobody knows.
_ROW_UNKNOWN = 7


async def tell_settled(
    request_id: RequestId,
    terms: GetTerms,
    send: Send,
    tell: Callable[[ResumeVerdict, StreamToken | None], None],
    *,
    why: Why = Why.ADOPTED,
) -> None:
    """Answer a resume of an adopted call with its in-band error, never with the answer a second time.

    `why=unknown-stream`: of one whose grace is over.
    """
    claim = ContinuityClaim(
        verdict=VerdictToken.UNVERIFIABLE, why=why, next=Next.RECONCILE, executed=Executed.UNKNOWN
    )
    verdict = Unverifiable(
        evidence=StoreEvidence(row=_ROW if why is Why.ADOPTED else _ROW_UNKNOWN),
        why=why,
        next=Next.RECONCILE,
        executed=Executed.UNKNOWN,
    )
    tell(verdict, None)
    error = write_inband_error(
        InbandError(
            request_id=request_id,
            why=why,
            executed=Executed.UNKNOWN,
            verdict=VerdictToken.UNVERIFIABLE,
            next=Next.RECONCILE,
        )
    )
    if terms.wants(Want.STRICT):
        await send_answer(send, 409, (*JSON_FIELDS, claim_field(claim)), error)
    else:
        # Without an id: a client that sees one asks again.
        await write_whole(send, make_headers(claim, terms.cors), write_comment(claim) + encode_event(error))
