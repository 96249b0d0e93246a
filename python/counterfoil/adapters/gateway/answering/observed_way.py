"""Answers what comes where a gateway only observes: all of it passes as it is, and is stored and judged."""

from __future__ import annotations

from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.new_session import NewSession
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.operation.observing import Observer, Tap
from counterfoil.adapters.gateway.wire.messages import MessageHead, MessageKind


class ObservedWay:
    """Passes requests, and keeps what their answers say."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._observer = Observer(shared.log, shared.limits, shared.verdicts)

    async def answer(self, exchange: Exchange, message: MessageHead | None) -> None:
        """Pass everything as it is; store what calls answer, and judge what resumes would get."""
        inbound = exchange.inbound
        if message is not None and message.method == "initialize":
            new = NewSession(exchange, self._shared)
            await exchange.pass_on(new.note, new.take)
            return
        tap: Tap | None = None
        scope = exchange.scope(inbound.session)
        if exchange.has_scope and inbound.method == "GET" and inbound.cursor is not None:
            tap = await self._observer.judge(scope, inbound.cursor.decode("latin-1"))
        elif exchange.has_scope and message is not None and message.kind is MessageKind.REQUEST:
            assert message.request_id is not None
            tap = await self._observer.watch_call(scope, message.request_id)
        await exchange.pass_on(on_piece=tap.take if tap is not None else None)
