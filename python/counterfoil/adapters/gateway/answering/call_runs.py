"""Runs a call that was let in, apart from the connection that it came on, and learns from how it went.

Started by the way of a call in a task of its own; it writes to no connection.
"""

from __future__ import annotations

from counterfoil.adapters.gateway.adoption.entries import AdoptableCall
from counterfoil.adapters.gateway.calls.calls import Call
from counterfoil.adapters.gateway.calls.open_calls import OpenCalls
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.session_ends import SessionEnds
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.keyed.keyed_calls import KeyedCall, KeyedCalls
from counterfoil.adapters.gateway.wire.headers import cors_of
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.errors import LedgerError
from counterfoil.model.ledger_verdicts import ClaimAnswer


class CallRuns:
    """Runs calls: under their key, for adopters, or as they are."""

    def __init__(
        self, shared: Shared, keyed: KeyedCalls | None, open_calls: OpenCalls, ends: SessionEnds
    ) -> None:
        self._shared = shared
        self._keyed = keyed
        self._open_calls = open_calls
        self._ends = ends

    def has_keyed(self, key: bytes) -> bool:
        """Whether the run under a stored key is in flight here."""
        return self._keyed is not None and self._keyed.has_run(key)

    async def judge(self, keyed: KeyedCall) -> ClaimAnswer | LedgerError | None:
        """Ask the ledger for a call before it runs, where another process may have it already."""
        if self._keyed is None or self._shared.across is None:
            return None
        return await self._keyed.claim(keyed)

    async def run(
        self,
        exchange: Exchange,
        call: Call,
        request_ids: tuple[RequestId, ...],
        entry: AdoptableCall | None,
        keyed: KeyedCall | None,
        judged: ClaimAnswer | LedgerError | None = None,
    ) -> None:
        """Run a call to its end; a server that does not know its session any more ends that here too.

        `judged` is what the ledger said of a keyed one, if it was asked.
        """

        def note_head() -> None:
            self._note_head(exchange, call)

        adoption, across = self._shared.adoption, self._shared.across
        self._open_calls.add(request_ids, call.stream)
        try:
            if keyed is not None and self._keyed is not None:
                await self._keyed.run(keyed, call, note_head, judged)
            elif entry is None:
                await call.run(note_head)
            else:
                await adoption.run(entry, call, note_head)
        finally:
            self._open_calls.remove(request_ids, call.stream)
        learnt = adoption.learn(exchange.inbound, call.stream.scope, call)
        if learnt is not None and across is not None:
            across.tell_tools(learnt[0], call.stream.scope, learnt[1])
        if call.whole is not None and call.whole.status == 404:
            await self._ends.end(exchange)

    def _note_head(self, exchange: Exchange, call: Call) -> None:
        """Learn from the head of an answer whether the caller is let in."""
        facts = self._shared.facts_of(exchange)
        whole = call.whole
        headers = whole.headers if whole is not None else call.stream_headers
        status = whole.status if whole is not None else 200
        if headers is not None and status < 300:
            facts.trust(exchange.inbound, cors_of(headers))
        elif status in (401, 403, 404):
            facts.distrust()
            if self._shared.across is not None:
                self._shared.across.tell_distrusted(call.stream.scope)
