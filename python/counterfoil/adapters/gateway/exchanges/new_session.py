"""Learns of the session that an `initialize` opens, from the head and the body of its answer.

Used by the way of an `initialize`, and where a gateway only observes.
"""

from __future__ import annotations

from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.sessions.session_news import InitializeNews, note_client
from counterfoil.adapters.gateway.wire.headers import cors_of
from counterfoil.adapters.gateway.wire.upstream_port import UpstreamAnswer, header_of, is_stream
from counterfoil.errors import RequestOverLimit, StoreFull


class NewSession:
    """What an `initialize` says of the session that it opens."""

    def __init__(self, exchange: Exchange, shared: Shared) -> None:
        self.session = ""
        #: Whether the answer is a stream of a session.
        self.streams = False
        self._exchange = exchange
        self._shared = shared
        self._news = InitializeNews()

    async def note(self, answer: UpstreamAnswer) -> None:
        """Note the head of the answer; raises `RequestOverLimit` where there is no room for a session."""
        session = header_of(answer.headers, b"mcp-session-id")
        if session is None or answer.status >= 300:
            return
        self.session, self.streams = session.decode("latin-1"), is_stream(answer)
        scope, across = self._exchange.scope(self.session), self._shared.across
        try:
            await self._shared.log.open_session(scope)
        except StoreFull as full:
            raise RequestOverLimit(503, full.bound, "the gateway takes no new sessions now") from full
        facts = self._shared.sessions.of(self.session)
        facts.trust(self._exchange.inbound, cors_of(answer.headers))
        note_client(facts, self._exchange.request.body)
        if across is not None:
            await across.tell_opened(scope, facts)

    async def take(self, piece: bytes) -> None:
        """Note what the answer declares, before it is passed on."""
        if not self.session:
            return
        facts, across = self._shared.sessions.of(self.session), self._shared.across
        if self._news.take(piece, facts, is_stream=self.streams) and across is not None:
            across.tell_facts(self._exchange.scope(self.session), facts)
