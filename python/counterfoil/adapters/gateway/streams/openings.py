"""Builds what a connection begins with: header fields, the claim as a comment, the echo, the notices.

All of it leaves in one send, so that no cut falls between the head and the first id.
"""

from __future__ import annotations

from counterfoil.adapters.gateway.streams.claims import STREAM_FIELDS, claim_field
from counterfoil.adapters.gateway.wire.headers import let_browsers_see
from counterfoil.adapters.gateway.wire.upstream_port import Headers
from counterfoil.native import encode_event
from counterfoil.protocol.continuity import ContinuityClaim, write_comment
from counterfoil.protocol.revisions import Capabilities


def make_headers(claim: ContinuityClaim, passed: Headers = ()) -> Headers:
    """Return the fields of an answer that opens a stream; `passed` are those of the upstream's answer."""
    ours = (*STREAM_FIELDS, claim_field(claim))
    names = {name for name, _ in ours}
    return (*let_browsers_see(field for field in passed if field[0] not in names), *ours)


def make_lead(
    claim: ContinuityClaim, *, echo: str | None, retry_ms: int, knows: Capabilities, notices: bytes = b""
) -> bytes:
    """Return the first bytes of the body.

    `echo` is the position of the echo event, if there is one; `retry` goes to clients that know it.
    """
    lead = write_comment(claim)
    if echo is not None:
        lead += encode_event("", id=echo, retry=retry_ms if knows.has_retry else None)
    return lead + notices
