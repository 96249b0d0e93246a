"""What the gateway claims of a stream, in `Stream-Continuity`: the same text in header and first comment.

Builds values only; the codec is `protocol.continuity`.
"""

from __future__ import annotations

from counterfoil.adapters.gateway.wire.upstream_port import Headers
from counterfoil.model.tokens import Next, VerdictToken, Why
from counterfoil.protocol.continuity import HEADER, CallToken, ContinuityClaim, write_claim

_NAME = HEADER.lower().encode("ascii")

#: Fields of every answer that opens a stream: no cache may keep it, no proxy hold it back.
STREAM_FIELDS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)

#: Fields of every JSON answer of ours.
JSON_FIELDS: Headers = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))

UNRESUMABLE = ContinuityClaim(verdict=VerdictToken.NEW, why=Why.UNRESUMABLE, next=Next.CONTINUE)


def claim_new(
    epoch: str, *, window: int, why: Why = Why.FIRST, call: CallToken | None = None
) -> ContinuityClaim:
    """Claim a stream that begins on this connection; `why=adopted` if another call's answer comes on it."""
    return ContinuityClaim(
        verdict=VerdictToken.NEW, why=why, next=Next.CONTINUE, call=call, after=0, window=window, epoch=epoch
    )


def claim_without_ids(*, why: Why, call: CallToken | None) -> ContinuityClaim:
    """Claim a stream that cannot be resumed; `why=adopted` if another call's answer comes on it."""
    why = why if why is Why.ADOPTED else Why.UNRESUMABLE
    return ContinuityClaim(verdict=VerdictToken.NEW, why=why, next=Next.CONTINUE, call=call)


def claim_field(claim: ContinuityClaim) -> tuple[bytes, bytes]:
    """Return the header field of a claim."""
    return _NAME, write_claim(claim).encode("ascii")
