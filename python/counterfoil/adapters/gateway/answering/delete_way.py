"""Answers a DELETE: the session ends here, and upstream once nobody needs it there any more."""

from __future__ import annotations

from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.adoption.held import send_end
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.session_ends import SessionEnds
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.upstream_port import UpstreamAnswer
from counterfoil.adapters.peers.owners import Place


class DeleteWay:
    """Answers ends of sessions."""

    def __init__(self, shared: Shared, ends: SessionEnds) -> None:
        self._shared = shared
        self._ends = ends

    async def answer(self, exchange: Exchange, tasks: TaskGroup) -> None:
        """Answer one DELETE; an end that is held upstream is sent from `tasks`."""
        scope = exchange.scope(exchange.inbound.session)
        across, upstream = self._shared.across, exchange.upstream
        needing: list[Place] = []
        if across is not None and (needing := await across.who_needs(scope)):
            upstream = across.hold_end(upstream, scope, needing, tasks)
        is_held = self._shared.adoption.holds_end(scope, upstream, exchange.request, tasks)
        if is_held or needing:
            if not is_held:
                tasks.start_soon(send_end, upstream, exchange.request)
            await self._ends.end(exchange, but=needing)
            await send_answer(exchange.send, 200, ())
            return

        async def note(answer: UpstreamAnswer) -> None:
            if answer.status < 300 or answer.status == 404:
                await self._ends.end(exchange)

        await exchange.pass_on(note)
