"""Leaves a request to the process of this gateway that has what it is about; where there is one, nothing.

What another process passed on is answered here: it goes no further.
"""

from __future__ import annotations

from contextlib import suppress

from counterfoil.adapters.gateway.across.across import SETTLED
from counterfoil.adapters.gateway.adoption.front import CallIdentity
from counterfoil.adapters.gateway.calls.open_calls import OpenCalls, cancelled_id
from counterfoil.adapters.gateway.calls.settlements import refused_away
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.messages import MessageHead, RequestId
from counterfoil.adapters.peers.carrying import Reached
from counterfoil.adapters.peers.owners import Place
from counterfoil.errors import PeerBroken
from counterfoil.model.ledger_keys import CallKey, encode_key
from counterfoil.native import Scope
from counterfoil.protocol.call_facts import GivenKey


class Elsewhere:
    """Finds the process that a request belongs to; each method says whether the request was answered."""

    def __init__(self, shared: Shared, open_calls: OpenCalls) -> None:
        self._shared = shared
        self._across = shared.across
        self._open_calls = open_calls

    async def answered_by_holder(self, exchange: Exchange) -> bool:
        """Leave a request to the process whose server has its session, where each has one of its own."""
        if self._across is None or not self._across.peers.members.keeps_sessions or exchange.via is not None:
            return False
        if exchange.inbound.session is None:
            return False
        scope = exchange.scope(exchange.inbound.session)
        return await self._across.forward_session(exchange.passing(scope))

    async def answered_by_asker(self, exchange: Exchange, request_id: RequestId) -> bool:
        """Leave an answer to the process whose stream asked for it; False where it is passed on here."""
        if self._across is None or exchange.via is not None:
            return False
        passing = exchange.passing(exchange.scope(exchange.inbound.session))
        found = await self._across.who_asked(passing.scope, request_id)
        if found == SETTLED:
            await send_answer(exchange.send, 202, ())
            return True
        return isinstance(found, Place) and await self._across.forward(passing, found)

    async def adopted(self, exchange: Exchange, scope: Scope, found: CallIdentity) -> bool:
        """Leave a call to the process that has an identical one, perhaps undelivered; False if none has."""
        if self._across is None or exchange.via is not None:
            return False
        identity = found.identity
        assert isinstance(identity, bytes), "other processes know digests"
        if self._shared.adoption.has_offer(identity) or not self._across.has_identical(identity):
            return False
        return await self._across.forward_identical(exchange.passing(scope), identity)

    async def kept_at_home(
        self, exchange: Exchange, scope: Scope, given: GivenKey, message: MessageHead
    ) -> bool:
        """Leave a keyed call to the one place among all hosts that its key belongs to.

        Each host has a ledger of its own: where the key's cannot be reached, it is refused, not made.
        """
        if self._across is None or exchange.via is not None or message.request_id is None:
            return False
        home = self._across.home_of_key(encode_key(scope, CallKey(route=exchange.route, key=given.key)))
        if home is None:
            return False
        if await self._across.forward(exchange.passing(scope), home):
            return True
        if self._across.peers.members.is_own_replica(home):
            return False  # its ledger is ours too
        refusal = refused_away(message.request_id)
        await send_answer(exchange.send, refusal.status, refusal.headers, refusal.body)
        return True

    async def joined(self, exchange: Exchange, scope: Scope, key: bytes) -> bool:
        """Leave a keyed call to the process that runs it under the same key; False where none says so."""
        if self._across is None or exchange.via is not None:
            return False
        place = await self._across.who_runs_key(key)
        return place is not None and await self._across.forward(exchange.passing(scope), place)

    async def cancelled(self, exchange: Exchange, scope: Scope) -> bool:
        """Leave a cancellation to the process that runs the call; False where nobody else does."""
        request_id = cancelled_id(exchange.request.body)
        if self._across is None or exchange.via is not None or request_id is None:
            return False
        if self._open_calls.has(scope, request_id) or self._shared.adoption.knows_call(scope, request_id):
            return False
        place = await self._across.who_runs(scope, request_id)
        if place is None:
            return False
        with suppress(PeerBroken):  # said twice it means the same
            return await self._across.forward(exchange.passing(scope), place)
        return False

    async def resumed(self, exchange: Exchange, scope: Scope, cursor: str | None) -> Reached | None:
        """Leave a resume to the process that has its stream; None where this one decides."""
        if self._across is None or exchange.via is not None or self._shared.connections.is_full():
            return None
        stops_foreign = self._shared.settings.foreign_ids == "stop"
        with self._shared.connections.counted():
            return await self._across.forward_get(
                exchange.passing(scope), cursor, stops_foreign=stops_foreign
            )

    def is_home(self, exchange: Exchange, scope: Scope, cursor: str | None) -> bool:
        """Whether the standalone stream of a session is read here."""
        if self._across is None or exchange.via is not None:
            return True
        return self._across.is_home(scope, cursor)
