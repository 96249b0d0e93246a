"""Ends a session here: its readers, its streams, and what is remembered of it.

Called for a DELETE, for a server that does not know the session any more, and for peers.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.sessions.principals import Principals
from counterfoil.adapters.gateway.upstream.standalone import StandaloneLegs
from counterfoil.adapters.peers.owners import Place
from counterfoil.native import Scope


class SessionEnds:
    """Ends sessions, and tells the other processes of it."""

    def __init__(self, shared: Shared, legs: StandaloneLegs, principals: Principals) -> None:
        self._shared = shared
        self._legs = legs
        self._principals = principals

    async def end(self, exchange: Exchange, *, but: Sequence[Place] = ()) -> None:
        """End the session of a request everywhere; those in `but` were told already."""
        session = exchange.inbound.session
        if session is None:
            return
        scope = exchange.scope(session)
        await self.end_scope(scope)
        if self._shared.across is not None:
            await self._shared.across.tell_end(scope, but=but)

    async def end_scope(self, scope: Scope) -> None:
        """End a session in this process."""
        if scope.session is not None and scope.principal is not None:
            owner = Scope(tenant=scope.tenant, principal=scope.principal)
            self._principals.forget(owner, scope.session)
        kept = self._shared.adoption.leave_session(scope)
        await self._shared.log.delete_session(scope, keep=kept)
        self._legs.stop(scope)
        if scope.session is not None:
            self._shared.sessions.forget(scope.session)
