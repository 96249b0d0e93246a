"""Lets in who comes back with a token, once its server has; calls that may get an earlier answer, and GETs.

What the server says against it is passed on.
"""

from __future__ import annotations

from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.sessions.admission import Admission, Admitted
from counterfoil.adapters.gateway.upstream.standalone import Refusal
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.asgi import Send
from counterfoil.adapters.gateway.wire.headers import pass_answer_headers
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.protocol.revisions import Capabilities


class Gate:
    """Asks the upstream about who reads, where nothing else says who it is."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._admission = Admission(shared.settings.vouch_s)

    async def admit(self, exchange: Exchange, knows: Capabilities) -> Admitted | None:
        """Say whether the caller is let in; None once it was refused, or has gone."""
        inbound = exchange.inbound
        if not knows.has_sessions or inbound.authorization is None or exchange.identity.principal is not None:
            return Admitted.YES
        facts = self._shared.facts_of(exchange)
        judged: Admitted | Refusal = Admitted.YES

        async def judge() -> None:
            nonlocal judged
            judged = await self._admission.judge(facts, inbound, exchange.upstream, exchange.request)

        if not await run_while_present(exchange.receive, judge):
            return None
        if isinstance(judged, Refusal):
            await pass_refusal(exchange.send, judged)
            return None
        return judged


async def pass_refusal(send: Send, refusal: Refusal) -> None:
    """Pass on what the upstream said instead of letting somebody in."""
    headers = tuple(field for field in pass_answer_headers(refusal.headers) if field[0] != b"content-length")
    await send_answer(send, refusal.status, headers, refusal.body)
