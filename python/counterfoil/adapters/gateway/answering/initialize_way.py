"""Answers a POST that is an `initialize`: JSON passes as it is, a stream is resumable from its head on.

Its head names the session; until then nothing is promised.
"""

from __future__ import annotations

import time

from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.calls.calls import Call
from counterfoil.adapters.gateway.calls.initializing import Initializing
from counterfoil.adapters.gateway.calls.posts import answer_post
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.new_session import NewSession
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.exchanges.terms import call_settings, post_terms
from counterfoil.adapters.gateway.keyed.offering import offer_keys
from counterfoil.adapters.gateway.sessions.principals import Principals
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.messages import MessageHead
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamAnswer
from counterfoil.errors import RequestOverLimit, StoreFull
from counterfoil.protocol.continuity import CallToken
from counterfoil.protocol.revisions import FIRST_WITH_STREAMABLE_HTTP


class InitializeWay:
    """Answers each `initialize`, and bounds how many sessions a principal opens."""

    def __init__(self, shared: Shared, principals: Principals, *, honours_keys: bool) -> None:
        self._shared = shared
        self._principals = principals
        self._honours_keys = honours_keys

    async def answer(self, exchange: Exchange, message: MessageHead, tasks: TaskGroup) -> None:
        """Answer one `initialize`.  Raises `RequestOverLimit`, and what the upstream's leg raises."""
        if exchange.owner is not None:
            self._principals.check(exchange.owner, time.monotonic())
        new = NewSession(exchange, self._shared)
        send = offer_keys(exchange.send) if self._honours_keys else exchange.send

        async def begin(answer: UpstreamAnswer, upstream: Upstream) -> Call | None:
            await new.note(answer)
            exchange.note_session(self._principals, new.session or None)
            if not new.streams or message.request_id is None:
                return None
            return await self._open_call(exchange, message, new.session, upstream)

        initializing = Initializing(exchange.upstream, exchange.request, send, begin, new.take)
        call = await initializing.wait(exchange.receive, tasks)
        if call is not None:
            terms = post_terms(self._shared, exchange, FIRST_WITH_STREAMABLE_HTTP, opens_early=False)
            pace, on_end = self._shared.pace, self._shared.metrics.note_reader_end
            with self._shared.connections.counted():
                await answer_post(call, terms, pace, exchange.receive, exchange.send, on_end)

    async def _open_call(
        self, exchange: Exchange, message: MessageHead, session: str, upstream: Upstream
    ) -> Call:
        """Return the call that the stream of an answer becomes."""
        scope = exchange.scope(session)
        try:
            stream = await CallStream.open(self._shared.log, scope, message.request_ids)
        except StoreFull as full:
            raise RequestOverLimit(503, full.bound, "the gateway takes no new calls now") from full
        settings = call_settings(self._shared, FIRST_WITH_STREAMABLE_HTTP)
        call = Call(upstream, exchange.request, message.request_ids, stream, settings)
        call.token = CallToken.OFFERED if self._honours_keys else None
        return call
