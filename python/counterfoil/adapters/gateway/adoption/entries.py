"""A call that may be adopted, and the work upstream behind it; the work changes hands, the call does not.

State only: who may take what is decided in `decisions.adoption`, and done in `adopting`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from counterfoil.adapters.gateway.adoption.eligibility import Identity
from counterfoil.adapters.gateway.calls.calls import Call
from counterfoil.adapters.gateway.calls.connection import Connection
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamRequest
from counterfoil.model.adoption import Caller, Delivery, Work
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.protocol.inband_error import InbandError

if TYPE_CHECKING:
    from counterfoil.adapters.gateway.calls.closing import Closing


class CallWork:
    """One call as it runs upstream, in the session that it was made in.

    `stream` is where its events go, whoever holds it.  `doubt` is what its caller was told where its outcome
    is indeterminate.
    """

    __slots__ = (
        "call",
        "claimed",
        "copying",
        "doubt",
        "holder",
        "is_running",
        "origin",
        "settled_at",
        "state",
    )

    def __init__(self, call: Call | None, origin: AdoptableCall) -> None:
        #: None for the call of a former life, of which only the outcome is known.
        self.call = call
        self.origin = origin
        self.holder = origin
        self.state = Work.RUNNING
        self.doubt: InbandError | None = None
        self.settled_at: float | None = None
        self.is_running = True
        #: Its row in the ledger, where there is one.
        self.claimed: Claimed | None = None
        #: Stops what copies its events to the holder's stream.
        self.copying: anyio.CancelScope | None = None

    @property
    def stream(self) -> CallStream:
        return self.origin.stream


class AdoptableCall:
    """One caller's call: its stream, its connection, and the work that answers it.

    `work` is None while it waits for an identical call to become free; then nothing of it was sent.
    """

    #: What is not so for nearly every call stands here, and with a call for which it is so.
    work: CallWork | None = None
    connection: Connection | None = None
    has_id = False
    session_ended = False
    delivery = Delivery.NONE
    #: Since when nobody is attached.
    away_since: float | None = None
    is_forgotten = False
    is_withdrawn = False
    #: Whether an identical call, a cursor or a cancellation can find it.
    is_listed = False
    held_cancellation: bytes | None = None
    #: What closes the upstream leg when its client goes, where a close cancels.
    closing: Closing | None = None

    def __init__(
        self,
        *,
        identity: Identity,
        tool: str,
        target: bytes,
        stream: CallStream,
        request_id: RequestId,
        upstream: Upstream,
        request: UpstreamRequest,
        facts: SessionFacts,
        crosses_sessions: bool,
    ) -> None:
        self.identity = identity
        self.tool = tool
        self.stream = stream
        self.scope = stream.scope
        self.request_id = request_id
        self.upstream = upstream
        self.request = request
        self.facts = facts
        #: Whether its principal may take it over from another session.
        self.crosses_sessions = crosses_sessions
        self._target = target

    @property
    def route(self) -> str:
        """The path that it came on, without a query."""
        return self._target.partition(b"?")[0].decode("latin-1")

    @property
    def is_attached(self) -> bool:
        return self.away_since is None

    def state_of_work(self) -> Work:
        return Work.UNSENT if self.work is None else self.work.state

    def where_caller_is(
        self, now: float, *, return_s: float, window_s: float, has_left: bool = False
    ) -> Caller:
        """Say where the client is; `return_s` is how long one with an id is waited for.

        `has_left`: it has closed its session's standalone stream as well.
        """
        work = self.work
        if work is not None and work.state is Work.INDETERMINATE and work.settled_at is not None:
            return Caller.FORGOTTEN if now >= work.settled_at + window_s else Caller.GONE
        if self.is_forgotten:
            return Caller.FORGOTTEN
        if self.away_since is None:
            return Caller.ATTACHED
        if now >= self.away_since + window_s:
            return Caller.FORGOTTEN
        may_return = self.has_id and not (self.session_ended or has_left) and now < self.away_since + return_s
        return Caller.RETURNING if may_return else Caller.GONE
