"""Answers a GET: leaves it to the process that has its stream, lets its reader in, and has it resumed here.

The verdict is `resuming.gets`; here is what has to be so before one is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress

import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.calls.closing import Closing, Closings
from counterfoil.adapters.gateway.exchanges.elsewhere import Elsewhere
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.gate import Gate, pass_refusal
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.exchanges.terms import read_asked
from counterfoil.adapters.gateway.resuming.gets import GetTerms, answer_get
from counterfoil.adapters.gateway.resuming.holds import Holds
from counterfoil.adapters.gateway.resuming.patience import Patience
from counterfoil.adapters.gateway.resuming.settled import tell_settled
from counterfoil.adapters.gateway.sessions.admission import Admitted
from counterfoil.adapters.gateway.sessions.lost_requests import settle_lost
from counterfoil.adapters.gateway.sessions.notices import make_notices
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.streams.draining import Draining
from counterfoil.adapters.gateway.streams.sse_out import Interruption
from counterfoil.adapters.gateway.upstream.standalone import StandaloneLegs
from counterfoil.adapters.peers.carrying import Reached
from counterfoil.errors import (
    ForeignEventId,
    MalformedEventId,
    RequestRefused,
    SessionEnded,
    UnknownEventIdVersion,
)
from counterfoil.model.tokens import Why
from counterfoil.native import EventId, Scope, StreamToken
from counterfoil.protocol.revisions import Capabilities


class Resume(msgspec.Struct, frozen=True):
    """A GET that is answered here: whose it is, on which terms, and whether it names the stream of a call."""

    scope: Scope
    terms: GetTerms
    closing: Closing | None
    is_call: bool


class GetWay:
    """Answers resumes of calls, and connections of standalone streams."""

    def __init__(
        self,
        shared: Shared,
        legs: StandaloneLegs,
        closings: Closings,
        draining: Draining,
        gate: Gate,
        elsewhere: Elsewhere,
    ) -> None:
        self._shared = shared
        self._legs = legs
        self._closings = closings
        self._draining = draining
        self._gate = gate
        self._elsewhere = elsewhere
        self._holds = Holds(shared.settings.holds_at_once, shared.metrics.note_limit)
        self._patience = Patience()

    async def answer(self, exchange: Exchange, knows: Capabilities, tasks: TaskGroup) -> None:
        """Answer one GET; what the upstream reads for it goes on in `tasks`.  Raises `RequestRefused`."""
        resume = await self._let_in(exchange, knows, tasks)
        if resume is None:
            return
        scope, terms, is_call = resume.scope, resume.terms, resume.is_call
        shared, adoption = self._shared, self._shared.adoption
        facts = shared.facts_of(exchange)

        def settle(request_ids: Sequence[object]) -> None:
            lost = facts.server_requests.take_lost(request_ids)
            tasks.start_soon(settle_lost, exchange.upstream, exchange.request, lost)

        entry = adoption.find(scope, terms.cursor) if is_call else None
        others = [resume.closing] if resume.closing is not None else []
        watched = adoption.watch_resume(entry, others, exchange.receive, exchange.send)
        presence = adoption.watching_standalone(None if is_call else scope, shared.metrics.note_reader_end)
        reading = nullcontext() if is_call else self._legs.reading(tasks, scope)
        try:
            with presence as note_end, reading, shared.connections.counted():
                await answer_get(
                    shared.log,
                    scope,
                    terms,
                    shared.pace,
                    watched.receive,
                    watched.send,
                    notices=lambda: make_notices(facts, shared.settings),
                    interruption=None if is_call or terms.is_aware else self._interruption(scope, facts),
                    on_lost_requests=settle,
                    tell=shared.verdicts.tell,
                    on_end=note_end,
                    watch=watched.watch,
                )
        except SessionEnded:
            raise RequestRefused(404, "mcp-session-id", "the session has ended") from None
        finally:
            watched.release()

    async def _let_in(self, exchange: Exchange, knows: Capabilities, tasks: TaskGroup) -> Resume | None:
        """Say on which terms a GET is answered here; None once it was answered otherwise, or refused."""
        inbound = exchange.inbound
        cursor = inbound.cursor.decode("latin-1") if inbound.cursor is not None else None
        token = _call_of(cursor)
        if not (exchange.has_scope if knows.has_sessions else token is not None):
            await exchange.pass_on()
            return None
        scope = exchange.scope_under(knows)
        reached = await self._elsewhere.resumed(exchange, scope, cursor)
        if reached in (Reached.ANSWERED, Reached.LEFT):
            return None
        is_home = self._elsewhere.is_home(exchange, scope, cursor)
        admitted = await self._gate.admit(exchange, knows)
        if admitted is None:
            return None
        closing = self._closings.find(scope, token) if token is not None else None
        if token is None and is_home:
            refusal = await self._legs.ensure(tasks, scope, exchange.upstream, exchange.request)
            if refusal is not None:
                await pass_refusal(exchange.send, refusal)
                return None
        is_unreachable = reached is Reached.UNREACHABLE or admitted is Admitted.UNKNOWN
        terms = self._terms(exchange, cursor, knows, is_out_of_reach=is_unreachable)
        resume = Resume(scope, terms, closing, token is not None)
        if token is not None and await self._told_settled(exchange, resume, token):
            return None
        return resume

    async def _told_settled(self, exchange: Exchange, resume: Resume, token: StreamToken) -> bool:
        """Tell whoever asks for a call that nobody can resume any more; False where a verdict is due."""
        terms, send, tell = resume.terms, exchange.send, self._shared.verdicts.tell
        taken = self._shared.adoption.taken(resume.scope, terms.cursor)
        if taken is not None:
            await tell_settled(taken, terms, send, tell)
            return True
        is_known = terms.knows.has_sessions or resume.closing is not None
        if not is_known and token.request_id is not None:
            # Without a session the token is the capability, and it lives no longer than the grace.
            await tell_settled(token.request_id, terms, send, tell, why=Why.UNKNOWN_STREAM)
            return True
        return False

    def _terms(
        self, exchange: Exchange, cursor: str | None, knows: Capabilities, *, is_out_of_reach: bool
    ) -> GetTerms:
        settings, inbound = self._shared.settings, exchange.inbound
        return GetTerms(
            cursor=cursor,
            asked=read_asked(inbound),
            knows=knows,
            retry_ms=settings.retry_ms,
            hold_s=settings.hold_s,
            grace_s=self._shared.limits.grace_s,
            attaches_lost=settings.on_standalone_gap != "refuse",
            stops_foreign=settings.foreign_ids == "stop",
            cors=self._shared.facts_of(exchange).cors.get(inbound.origin or "", ()),
            holds=self._holds,
            draining=self._draining,
            patience=self._patience,
            is_full=self._shared.connections.is_full(),
            is_out_of_reach=is_out_of_reach,
            via=exchange.via,
        )

    def _interruption(self, scope: Scope, facts: SessionFacts) -> Interruption | None:
        """What tells an unaware client of a loss while it reads its standalone stream."""
        losses = self._legs.losses_of(scope)
        if losses is None:
            return None

        async def next_notice() -> bytes:
            await losses.wait()
            return make_notices(facts, self._shared.settings)

        return next_notice


def _call_of(cursor: str | None) -> StreamToken | None:
    """Return the call's stream that a cursor names, if it names one."""
    if cursor is None:
        return None
    with suppress(ForeignEventId, MalformedEventId, UnknownEventIdVersion):
        token = EventId.parse(cursor).stream
        return token if token.kind == "call" else None
    return None
