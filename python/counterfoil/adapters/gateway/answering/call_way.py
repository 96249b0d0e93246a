"""Answers a POST that is a call, or a batch: let in, made, sent on, and written as it comes.

A batch is one call with a stream of another kind.  `call_making` makes what was let in, `call_runs` runs it.
"""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.adoption.entries import AdoptableCall
from counterfoil.adapters.gateway.answering.asking import Asking, check_key
from counterfoil.adapters.gateway.answering.call_making import Asked, CallMaking, Made, Post
from counterfoil.adapters.gateway.answering.call_runs import CallRuns
from counterfoil.adapters.gateway.calls.calls import Call
from counterfoil.adapters.gateway.calls.open_calls import OpenCalls
from counterfoil.adapters.gateway.calls.posts import PostTerms, answer_post
from counterfoil.adapters.gateway.calls.settlements import refused_unrecorded
from counterfoil.adapters.gateway.exchanges.elsewhere import Elsewhere
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.gate import Gate
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.exchanges.terms import post_terms
from counterfoil.adapters.gateway.sessions.session_news import note_requests
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.messages import MessageHead
from counterfoil.errors import CallElsewhere, CallLeft, LedgerError, RequestOverLimit
from counterfoil.model.ledger_verdicts import ClaimAnswer, Running
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
        making: CallMaking,
        asking: Asking,
        gate: Gate,
        elsewhere: Elsewhere,
    ) -> None:
        self._shared = shared
        self._runs = runs
        self._open_calls = open_calls
        self._making = making
        self._asking = asking
        self._gate = gate
        self._elsewhere = elsewhere

    async def answer(
        self, exchange: Exchange, message: MessageHead, knows: Capabilities, tasks: TaskGroup
    ) -> None:
        """Answer one call.  Raises `RequestRefused`, and what `answer_post` raises.

        A client that goes away leaves the call running in `tasks`.
        """
        post = Post(exchange, message, knows, self._shared.facts_of(exchange), tasks)
        for look in range(_LOOKS + 1):
            if look:
                await anyio.sleep(_LOOK_S)  # who has it tells so now
            self._check_bounds(exchange, message)
            if await self._has_answered(post):
                return
        await self._refuse_unrecorded(post)

    async def _has_answered(self, post: Post) -> bool:
        """Answer a call; False if a dead process has left one like it, which is to be taken in first."""
        asked = await self._let_in(post)
        made = await self._making.make(post, asked) if asked is not None else None
        if asked is None or made is None:
            return True
        judged = await self._runs.judge(made.keyed) if made.keyed is not None else None
        if await self._is_joined(post, made, judged):
            return True
        exchange, message, adoption = post.exchange, post.message, self._shared.adoption
        entry = adoption.enter(
            exchange.inbound,
            message,
            asked.identity,
            asked.facts,
            made.call,
            post.facts,
            post.tasks,
            made.closing,
        )
        if entry is not None and adoption.records:
            try:
                is_recorded = await adoption.record(entry)
            except CallLeft as left:
                await self._drop_for(left, post, made.call, entry)
                return False
            if not is_recorded:
                await self._answer_unrecorded(post, made.call, entry)
                return True
        post.tasks.start_soon(
            self._runs.run, exchange, made.call, message.request_ids, entry, made.keyed, judged
        )
        if note_requests(post.facts, message, exchange.request.body) and self._shared.across is not None:
            self._shared.across.tell_wish(made.call.stream.scope, exchange.request.body)
        await self._write(post, made, entry)
        return True

    # --- who may call, and whether it is answered here

    def _check_bounds(self, exchange: Exchange, message: MessageHead) -> None:
        """Refuse a call where its session has too many without an answer, or everybody has."""
        session, limit = exchange.inbound.session, self._shared.settings.session_requests
        if session is not None:
            running = self._open_calls.count(exchange.scope(session))
            if running + len(message.request_ids) > limit:
                reason = f"more than {limit} requests wait for answers"
                raise RequestOverLimit(429, "session_requests", reason)
        self._shared.connections.check()

    async def _let_in(self, post: Post) -> Asked | None:
        """Return what a call asks; None once it was answered without being made here."""
        exchange, knows, shared = post.exchange, post.knows, self._shared
        facts = self._asking.read(exchange, post.message)
        if facts is None:
            return Asked()
        # It may be answered from an earlier call: a token that is new here is asked about first.
        is_known = post.facts.has_let_in(exchange.inbound)
        if not is_known and await self._gate.admit(exchange, knows) is None:
            return None
        scope = exchange.scope_under(knows)
        identity = shared.adoption.identify(
            exchange.inbound, exchange.request, exchange.upstream, scope, knows, facts
        )
        # A gateway of one process awaits nothing of what several need.
        if shared.across is not None and identity is not None:
            is_answered = await self._elsewhere.adopted(exchange, scope, identity)
            if is_answered:
                return None
        given = self._asking.given(facts)
        if given is not None:
            check_key(exchange, knows, given)
            if await self._elsewhere.kept_at_home(exchange, scope, given, post.message):
                return None
        return Asked(facts, identity, given)

    async def _is_joined(self, post: Post, made: Made, judged: ClaimAnswer | LedgerError | None) -> bool:
        """Leave a keyed call to another process that runs it; False where that is not so."""
        if not isinstance(judged, Running) or self._runs.has_keyed(judged.key):
            return False
        if not await self._elsewhere.joined(post.exchange, made.call.stream.scope, judged.key):
            return False
        await self._making.drop(made.call)
        return True

    # --- what the ledger does not take

    async def _drop_for(self, left: CallLeft, post: Post, call: Call, entry: AdoptableCall) -> None:
        """Give up a call whose like a dead process has left, and take that in unless it is elsewhere."""
        self._shared.adoption.abandon(entry)
        await self._making.drop(call)
        if not isinstance(left, CallElsewhere):
            await self._shared.adoption.restore(post.tasks)

    async def _answer_unrecorded(self, post: Post, call: Call, entry: AdoptableCall) -> None:
        """Refuse a call whose intent the ledger does not take, or relay it with nothing promised."""
        self._shared.adoption.abandon(entry)
        await call.stream.end()
        if self._shared.settings.on_ledger_failure == "refuse":
            await self._refuse_unrecorded(post)
        else:
            await self._making.relay_unresumable(post.exchange)

    async def _refuse_unrecorded(self, post: Post) -> None:
        assert post.message.request_id is not None
        refusal = refused_unrecorded(post.message.request_id)
        await send_answer(post.exchange.send, refusal.status, refusal.headers, refusal.body)

    # --- the connection

    async def _write(self, post: Post, made: Made, entry: AdoptableCall | None) -> None:
        """Write the answer of a call that runs, to a connection that is watched by whom it concerns."""
        exchange, shared, call, others = post.exchange, self._shared, made.call, made.watchers
        terms, pace, on_end = self._terms(post), shared.pace, shared.metrics.note_reader_end
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

    def _terms(self, post: Post) -> PostTerms:
        """Return how the POST is answered: before the upstream's head only who is known to be let in."""
        inbound, facts = post.exchange.inbound, post.facts
        is_early = post.knows.has_priming and not post.message.batch and inbound.accepts_sse
        is_early = is_early and facts.has_let_in(inbound) and facts.trusts_origin(inbound)
        return post_terms(self._shared, post.exchange, post.knows, opens_early=is_early)
