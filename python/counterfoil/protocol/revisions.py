"""What each MCP revision can do; no other module names one.

It is a table of facts from the specification and decides nothing.  Everyone else asks for a capability.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a revision of the streamable HTTP transport has.

    `has_resumption`: event ids, and a GET with `Last-Event-ID` that replays.
    `has_priming`: a stream may begin with an event that has an id and empty data.
    `has_retry`: a server may close a stream early after `retry`, and the client comes back.
    `has_batches`: one POST may carry several requests.
    `has_revision_header`: every request after the first carries `MCP-Protocol-Version`.
    `has_input_rounds`: a result may ask for input, and the call is repeated with the answer.
    `disconnect_cancels`: closing a call's response stream is how a client cancels it.
    """

    revision: str
    has_sessions: bool
    has_resumption: bool
    has_priming: bool
    has_retry: bool
    has_batches: bool
    has_revision_header: bool
    has_input_rounds: bool
    disconnect_cancels: bool


FIRST_WITH_STREAMABLE_HTTP = Capabilities(
    revision="2025-03-26",
    has_sessions=True,
    has_resumption=True,
    has_priming=False,
    has_retry=False,
    has_batches=True,
    has_revision_header=False,
    has_input_rounds=False,
    disconnect_cancels=False,
)
WITHOUT_BATCHES = msgspec.structs.replace(
    FIRST_WITH_STREAMABLE_HTTP, revision="2025-06-18", has_batches=False, has_revision_header=True
)
LAST_WITH_SESSIONS = msgspec.structs.replace(
    WITHOUT_BATCHES, revision="2025-11-25", has_priming=True, has_retry=True
)
WITHOUT_SESSIONS = Capabilities(
    revision="2026-07-28",
    has_sessions=False,
    has_resumption=False,
    has_priming=False,
    has_retry=False,
    has_batches=False,
    has_revision_header=True,
    has_input_rounds=True,
    disconnect_cancels=True,
)

#: Every revision that Counterfoil knows, oldest first.
REVISIONS: Mapping[str, Capabilities] = {
    known.revision: known
    for known in (FIRST_WITH_STREAMABLE_HTTP, WITHOUT_BATCHES, LAST_WITH_SESSIONS, WITHOUT_SESSIONS)
}


def capabilities_of(revision: str | None) -> Capabilities | None:
    """Return what a negotiated revision can do; None for one that is not known, which is relayed without ids.

    A request without `MCP-Protocol-Version` (`revision=None`) speaks the first revision of the transport,
    as the later ones say.
    """
    if revision is None:
        return FIRST_WITH_STREAMABLE_HTTP
    return REVISIONS.get(revision)


def with_grace(knows: Capabilities) -> Capabilities:
    """Return what a revision can do where a closed stream may be resumed for a while (`resume_grace_s`).

    That goes beyond a revision without resumption; its clients resume when they have seen an event ID.
    """
    return msgspec.structs.replace(knows, has_resumption=True, has_priming=True, has_retry=True)


def is_at_most(revision: str, *, limit: str) -> bool:
    """Return whether a revision is not newer than a limit; both are dates, so their text has their order."""
    return revision <= limit
