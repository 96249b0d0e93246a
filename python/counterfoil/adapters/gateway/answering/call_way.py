"""Answers a POST that is a call, or a batch: let in, given a stream, sent on, and written as it comes.

A batch is one call with a stream of another kind.  `call_runs` runs what was let in.
"""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.adoption.entries import AdoptableCall
from counterfoil.adapters.gateway.answering.asking import Asking, check_key
from counterfoil.adapters.gateway.answering.call_runs import CallRuns
from counterfoil.adapters.gateway.calls.calls import Call
from counterfoil.adapters.gateway.calls.closing import Closing, Closings
from counterfoil.adapters.gateway.calls.connection import Watcher
from counterfoil.adapters.gateway.calls.open_calls import OpenCalls
from counterfoil.adapters.gateway.calls.posts import answer_post
from counterfoil.adapters.gateway.calls.settlements import refused_unrecorded
from counterfoil.adapters.gateway.calls.unresumable import relay_unresumable
from counterfoil.adapters.gateway.exchanges.elsewhere import Elsewhere
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.gate import Gate
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.exchanges.terms import call_settings, post_terms
from counterfoil.adapters.gateway.keyed.keyed_calls import KeyedCall
from counterfoil.adapters.gateway.keyed.keyed_stream import Following, KeyedParty, KeyedStream
from counterfoil.adapters.gateway.sessions.session_news import note_requests
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.messages import MessageHead
from counterfoil.errors import (
    CallElsewhere,
    CallLeft,
    RequestOverLimit,
    RequestRefused,
    SessionEnded,
    StoreFull,
)
from counterfoil.model.ledger_verdicts import Running
from counterfoil.protocol.call_facts import CallFacts, GivenKey
from counterfoil.protocol.revisions import Capabilities

#: How often, and after what time, a call is looked for that a dead process has left.
_LOOKS = 40
_LOOK_S = 0.02


class CallWay:
    """Answers calls."""

    def __init__(
        self,
        shared: Shared,
        runs: CallRuns,
        open_calls: OpenCalls,
        closings: Closings,
        asking: Asking,
        gate: Gate,
        elsewhere: Elsewhere,
    ) -> None:
        self._shared = shared
        self._runs = runs
        self._open_calls = open_calls
        self._closings = closings
        self._asking = asking
        self._gate = gate
        self._elsewhere = elsewhere

    async def answer(
        self,
        exchange: Exchange,
        message: MessageHead,
        knows: Capabilities,
        tasks: TaskGroup,
        looks: int = _LOOKS,
    ) -> None:
        """Answer one call.  Raises `RequestRefused`, and what `answer_post` raises.

        A client that goes away leaves the call running in `tasks`.
        """
        self._check_bounds(exchange, message)
        shared, inbound = self._shared, exchange.inbound
        asked, identity = self._asking.read(exchange, message), None
        facts = shared.facts_of(exchange)
        is_known = facts.has_let_in(inbound)
        if asked is not None:
            # It may be answered from an earlier call: a token that is new here is asked about first.
            if not is_known:
                if await self._gate.admit(exchange, knows) is None:
                    return
                is_known = facts.has_let_in(inbound)
            scope, request, upstream = exchange.scope_under(knows), exchange.request, exchange.upstream
            identity = shared.adoption.identify(inbound, request, upstream, scope, knows, asked)
            if shared.across is not None and identity is not None:  # noqa: SIM102 nothing is awaited alone
                if await self._elsewhere.adopted(exchange, scope, identity):
                    return
        given = self._asking.given(asked)
        if given is not None:
            check_key(exchange, knows, given)
            if await self._elsewhere.kept_at_home(exchange, exchange.scope_under(knows), given, message):
                return
        stream = await self._open_stream(exchange, message, knows, asked, given)
        if stream is None:
            return
        upstream = shared.adoption.listen(message, exchange.upstream)
        call = Call(upstream, exchange.request, message.request_ids, stream, call_settings(shared, knows))
        others: list[Watcher] = []
        closing = self._close_with_client(call, knows, given, tasks)
        if closing is not None:
            others.append(closing)
        keyed: KeyedCall | None = None
        if isinstance(stream, KeyedStream) and asked is not None and given is not None:
            party = KeyedParty(stream, facts, exchange.upstream, exchange.request)
            keyed = self._under_key(exchange, asked, given, call, party, closing)
            others.append(keyed.following)
        judged = await self._runs.judge(keyed) if keyed is not None else None
        away = judged.key if isinstance(judged, Running) and not self._runs.has_keyed(judged.key) else None
        if away is not None and await self._elsewhere.joined(exchange, stream.scope, away):
            self._closings.drop(call)
            await stream.end()
            return
        entry = shared.adoption.enter(inbound, message, identity, asked, call, facts, tasks, closing)
        is_recorded = True
        if entry is not None and shared.adoption.records:
            try:
                is_recorded = await shared.adoption.record(entry)
            except CallLeft as left:
                self._closings.drop(call)
                shared.adoption.abandon(entry)
                await stream.end()
                if not isinstance(left, CallElsewhere):
                    await shared.adoption.restore(tasks)
                await self._answer_left(exchange, message, knows, tasks, looks)
                return
        if entry is not None and not is_recorded:
            await self._answer_unrecorded(exchange, call, entry)
            return
        tasks.start_soon(self._runs.run, exchange, call, message.request_ids, entry, keyed, judged)
        if note_requests(facts, message, exchange.request.body) and shared.across is not None:
            shared.across.tell_wish(call.stream.scope, exchange.request.body)
        is_early = knows.has_priming and not message.batch and inbound.accepts_sse
        is_early = is_early and is_known and facts.trusts_origin(inbound)
        terms = post_terms(shared, exchange, knows, opens_early=is_early)
        pace, on_end = shared.pace, shared.metrics.note_reader_end
        if entry is None and not others:
            with shared.connections.counted():
                await answer_post(call, terms, pace, exchange.receive, exchange.send, on_end)
            return
        watched = shared.adoption.watch(entry, others, call, exchange.receive, exchange.send)
        try:
            with shared.connections.counted():
                await answer_post(
                    call, terms, pace, watched.receive, watched.send, on_end, watched.plain_send
                )
        finally:
            shared.adoption.unwatch(call, watched)

    async def _answer_left(
        self, exchange: Exchange, message: MessageHead, knows: Capabilities, tasks: TaskGroup, looks: int
    ) -> None:
        """Answer a call whose like a dead process has left, once that is taken in here or elsewhere."""
        if not looks:
            assert message.request_id is not None
            refusal = refused_unrecorded(message.request_id)
            await send_answer(exchange.send, refusal.status, refusal.headers, refusal.body)
            return
        await anyio.sleep(_LOOK_S)  # who has it tells so now
        await self.answer(exchange, message, knows, tasks, looks - 1)

    def _check_bounds(self, exchange: Exchange, message: MessageHead) -> None:
        """Refuse a call where its session has too many without an answer, or everybody has."""
        session, limit = exchange.inbound.session, self._shared.settings.session_requests
        if session is not None:
            running = self._open_calls.count(exchange.scope(session))
            if running + len(message.request_ids) > limit:
                reason = f"more than {limit} requests wait for answers"
                raise RequestOverLimit(429, "session_requests", reason)
        self._shared.connections.check()

    async def _open_stream(
        self,
        exchange: Exchange,
        message: MessageHead,
        knows: Capabilities,
        asked: CallFacts | None,
        given: GivenKey | None,
    ) -> CallStream | None:
        """Open what keeps the answer; None once the call was relayed without, as the log takes no more."""
        kind, scope = self._asking.kind_of(message, asked, given), exchange.scope_under(knows)
        try:
            return await kind.open(self._shared.log, scope, message.request_ids)
        except StoreFull as full:
            if self._shared.settings.on_budget == "refuse":
                raise RequestOverLimit(503, full.bound, "the gateway takes no new calls now") from full
            self._shared.metrics.note_limit(full.bound)
            await self._relay_unresumable(exchange)
            return None
        except SessionEnded:
            raise RequestRefused(404, "mcp-session-id", "the session has ended") from None

    def _close_with_client(
        self, call: Call, knows: Capabilities, given: GivenKey | None, tasks: TaskGroup
    ) -> Closing | None:
        """Return what closes the upstream leg when the client goes; None where a close cancels nothing."""
        if not knows.disconnect_cancels or (given is not None and given.on_disconnect == "detach"):
            return None
        call.stream.notes_answer = True
        is_explicit = given is not None and given.on_disconnect == "cancel"
        has_grace = knows.has_resumption and not is_explicit
        grace_s = self._shared.settings.resume_grace_s if has_grace else 0.0
        return self._closings.add(call, tasks, grace_s=grace_s)

    def _under_key(
        self,
        exchange: Exchange,
        asked: CallFacts,
        given: GivenKey,
        call: Call,
        party: KeyedParty,
        closing: Closing | None,
    ) -> KeyedCall:
        """Return the call as its key knows it; its POST waits until the ledger has judged it."""
        call.judged = anyio.Event()
        return KeyedCall(
            facts=asked,
            key=given.key,
            route=exchange.route,
            request_id=call.request_id,
            party=party,
            following=Following(party, self._shared.adoption.questions),
            closing=closing,
        )

    async def _answer_unrecorded(self, exchange: Exchange, call: Call, entry: AdoptableCall) -> None:
        """Refuse a call whose intent the ledger does not take, or relay it with nothing promised."""
        self._shared.adoption.abandon(entry)
        await call.stream.end()
        if self._shared.settings.on_ledger_failure == "refuse":
            refusal = refused_unrecorded(call.request_id)
            await send_answer(exchange.send, refusal.status, refusal.headers, refusal.body)
        else:
            await self._relay_unresumable(exchange)

    async def _relay_unresumable(self, exchange: Exchange) -> None:
        await relay_unresumable(
            exchange.upstream, exchange.request, self._shared.limits, exchange.receive, exchange.send
        )
