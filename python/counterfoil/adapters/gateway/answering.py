"""Decides which part answers a request: a call, a resume, an end of session, or a plain passage.

One instance serves all requests of a gateway; what it remembers of sessions is facts, never promises.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress

import anyio
import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.across.across import SETTLED, Across, Passing
from counterfoil.adapters.gateway.adoption.entries import AdoptableCall
from counterfoil.adapters.gateway.adoption.front import Adoption
from counterfoil.adapters.gateway.adoption.held import send_end
from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.arrival.scopes import ANONYMOUS, Identity
from counterfoil.adapters.gateway.calls.calls import Call, CallSettings
from counterfoil.adapters.gateway.calls.closing import Closing, Closings
from counterfoil.adapters.gateway.calls.connection import Watcher
from counterfoil.adapters.gateway.calls.initializing import Initializing
from counterfoil.adapters.gateway.calls.open_calls import OpenCalls, cancelled_id, end_cancelled
from counterfoil.adapters.gateway.calls.posts import PostTerms, answer_post
from counterfoil.adapters.gateway.calls.settlements import refused_unrecorded
from counterfoil.adapters.gateway.calls.unresumable import relay_unresumable
from counterfoil.adapters.gateway.keyed.keyed_calls import KeyedCall, KeyedCalls
from counterfoil.adapters.gateway.keyed.keyed_stream import Following, KeyedParty, KeyedStream
from counterfoil.adapters.gateway.keyed.offering import offer_keys
from counterfoil.adapters.gateway.operation.metrics import Metrics
from counterfoil.adapters.gateway.operation.observing import Observer, Tap
from counterfoil.adapters.gateway.operation.verdict_log import VerdictLog
from counterfoil.adapters.gateway.resuming.gets import GetTerms, answer_get
from counterfoil.adapters.gateway.resuming.holds import Holds
from counterfoil.adapters.gateway.resuming.patience import Patience
from counterfoil.adapters.gateway.resuming.settled import tell_settled
from counterfoil.adapters.gateway.sessions.admission import Admission, Admitted
from counterfoil.adapters.gateway.sessions.lost_requests import settle_lost
from counterfoil.adapters.gateway.sessions.notices import make_notices
from counterfoil.adapters.gateway.sessions.principals import Principals
from counterfoil.adapters.gateway.sessions.session_news import InitializeNews, note_client, note_requests
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts, Sessions
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.gateway.streams.batches import BatchStream
from counterfoil.adapters.gateway.streams.draining import Draining
from counterfoil.adapters.gateway.streams.recorded_stream import RecordedStream
from counterfoil.adapters.gateway.streams.sse_out import Interruption, Pace
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.upstream.passthrough import OnHead, OnPiece, pass_through
from counterfoil.adapters.gateway.upstream.standalone import Refusal, StandaloneLegs
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.headers import cors_of, pass_answer_headers
from counterfoil.adapters.gateway.wire.messages import (
    MessageHead,
    MessageKind,
    RequestId,
    read_message,
    write_error,
)
from counterfoil.adapters.gateway.wire.upstream_port import (
    Headers,
    Upstream,
    UpstreamAnswer,
    UpstreamRequest,
    header_of,
    is_stream,
)
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.adapters.peers.carrying import Reached
from counterfoil.adapters.peers.owners import Place
from counterfoil.errors import (
    ContinuityError,
    ForeignEventId,
    MalformedCallKey,
    MalformedEventId,
    PeerBroken,
    RequestOverLimit,
    RequestRefused,
    SessionEnded,
    StoreFull,
    UnknownEventIdVersion,
)
from counterfoil.limits import Limits
from counterfoil.model.tokens import Why
from counterfoil.native import EventId, Scope, StreamToken
from counterfoil.protocol.call_facts import KEY_MEMBER, METHOD, CallFacts, read_call
from counterfoil.protocol.continuity import CallToken, ContinuityRequest, read_request
from counterfoil.protocol.revisions import (
    FIRST_WITH_STREAMABLE_HTTP,
    Capabilities,
    capabilities_of,
    is_at_most,
    with_grace,
)
from counterfoil.stores.interface import ReplayLog
from counterfoil.stores.ledger_interface import Ledger

#: JSON-RPC: what a server of an older revision says to a method of a newer one.
_METHOD_NOT_FOUND = -32_601
#: How a client of a revision without sessions asks what a server can do.
DISCOVER = "server/discover"
#: A key that nobody else chooses: 128 bits in base64.
_ANONYMOUS_KEY_CHARS = 22


class Exchange(msgspec.Struct, frozen=True):
    """One request on its way: what was read of it, whose it is, where it goes, and how to answer."""

    inbound: Inbound
    identity: Identity
    upstream: Upstream
    request: UpstreamRequest
    receive: Receive
    send: Send
    via: str | None = None
    """Which process passed it on: then it is answered here, and goes no further."""

    def scope(self, session: str | None) -> Scope:
        """Return whose request it is.  Callers that nothing tells apart are one principal, `ANONYMOUS`."""
        if session is None and self.identity.principal is None:
            return Scope(tenant=self.identity.tenant, principal=ANONYMOUS)
        return Scope(tenant=self.identity.tenant, principal=self.identity.principal, session=session)

    @property
    def owner(self) -> Scope | None:
        """Whose sessions are counted together; None where no principal is configured."""
        principal = self.identity.principal
        return Scope(tenant=self.identity.tenant, principal=principal) if principal is not None else None


class Answering:
    """Answers requests with a replay log behind it; without one everything passes as it is."""

    def __init__(
        self,
        settings: GatewaySettings,
        log: ReplayLog | None,
        limits: Limits,
        verdicts: VerdictLog,
        metrics: Metrics,
        ledger: Ledger | None = None,
        across: Across | None = None,
    ) -> None:
        self._across = across
        self._settings = settings
        self._log = log
        self._limits = limits
        self._verdicts = verdicts
        self._metrics = metrics
        self._observer = Observer(log, limits, verdicts) if log is not None and settings.observe else None
        self.adoption = Adoption(log, settings, limits, ledger) if log is not None else None
        if across is not None and self.adoption is not None:
            self.adoption.listen_to_offers(across.tell_offers(settings.adopt_s))
        self._keyed = KeyedCalls(ledger, settings.cancel_settle_s) if ledger is not None else None
        self._closings = Closings()
        self._holds = Holds(settings.holds_at_once, metrics.note_limit)
        self._principals = Principals(settings.principal_sessions, limits.window_age_s)
        self._patience = Patience()
        self._admission = Admission(settings.vouch_s)
        self.draining = Draining()
        self._connections = 0
        self.open_calls = OpenCalls()
        self.sessions = Sessions(settings.known_sessions)
        self._legs = (
            StandaloneLegs(
                log,
                limits,
                head_s=settings.prime_after_ms / 1000,
                linger_s=settings.standalone_linger_s,
            )
            if log is not None
            else None
        )
        self._pace = Pace(settings.send_bytes, settings.beat_s, settings.write_deadline_s)

    async def answer(self, exchange: Exchange, tasks: TaskGroup) -> None:
        """Answer one request.  Calls that go on without their client run in `tasks`."""
        inbound = exchange.inbound
        self._note_session(exchange, inbound.session)
        knows = capabilities_of(inbound.revision)
        if knows is not None and not knows.has_resumption and self._settings.resume_grace_s:
            knows = with_grace(knows)
        message = read_message(exchange.request.body) if inbound.method == "POST" else None
        if self._is_too_new(inbound):
            await self._refuse_revision(exchange, message)
        elif await self._answered_by_holder(exchange):
            return
        elif self._log is None or knows is None:
            await self._pass(exchange)
        elif self._observer is not None and knows.has_resumption:
            await self._observe(exchange, self._log, self._observer, message)
        elif self._observer is not None:
            await self._pass(exchange)
        elif not knows.has_sessions:
            await self._answer_without_session(exchange, self._log, message, knows, tasks)
        elif inbound.method == "GET":
            await self._answer_get(exchange, self._log, knows, tasks)
        elif inbound.method == "DELETE":
            await self._answer_delete(exchange, self._log, tasks)
        elif message is not None and message.request_ids and (knows.has_batches or not message.batch):
            await self._answer_request(exchange, self._log, message, knows, tasks)
        elif message is not None and message.method == "notifications/cancelled":
            await self._answer_cancellation(exchange, tasks)
        elif message is not None and message.kind is MessageKind.ANSWER:
            await self._answer_answer(exchange, message)
        else:
            await self._pass(exchange)

    async def _answer_without_session(
        self,
        exchange: Exchange,
        log: ReplayLog,
        message: MessageHead | None,
        knows: Capabilities,
        tasks: TaskGroup,
    ) -> None:
        """Answer a request of a revision without sessions; what needs none of us passes as it is."""
        inbound = exchange.inbound
        if message is not None and message.method == DISCOVER:
            if self._keyed is not None:
                exchange = msgspec.structs.replace(exchange, send=offer_keys(exchange.send))
            await self._pass(exchange)
        elif message is not None and message.kind is MessageKind.REQUEST:
            if knows.has_resumption or self._is_wanted(exchange, message):
                await self._answer_call(exchange, log, message, knows, tasks)
            else:
                await self._pass(exchange)
        elif knows.has_resumption and inbound.method == "GET" and inbound.cursor is not None:
            await self._answer_get(exchange, log, knows, tasks)
        else:
            await self._pass(exchange)

    def _is_wanted(self, exchange: Exchange, message: MessageHead) -> bool:
        """Whether a call without resumption has a key, or an answer that somebody else may want."""
        if message.method != METHOD:
            return False
        if self._keyed is not None and KEY_MEMBER.encode() in exchange.request.body:
            return True
        has_adopters = exchange.identity.principal is not None
        return has_adopters and self.adoption is not None and self.adoption.is_on

    async def _observe(
        self, exchange: Exchange, log: ReplayLog, observer: Observer, message: MessageHead | None
    ) -> None:
        """Pass everything as it is; store what calls answer, and judge what resumes would get."""
        tap: Tap | None = None
        scope = exchange.scope(exchange.inbound.session)
        if message is not None and message.method == "initialize":
            opening = _Opening(exchange, log, self.sessions, self._across)
            await self._pass(exchange, opening.note, opening.take)
            return
        if _has_scope(exchange) and exchange.inbound.method == "GET" and exchange.inbound.cursor is not None:
            tap = await observer.judge(scope, exchange.inbound.cursor.decode("latin-1"))
        elif _has_scope(exchange) and message is not None and message.kind is MessageKind.REQUEST:
            assert message.request_id is not None
            tap = await observer.watch_call(scope, message.request_id)
        await self._pass(exchange, on_piece=tap.take if tap is not None else None)

    async def _answer_answer(self, exchange: Exchange, message: MessageHead) -> None:
        """Pass a client's answer to its server, unless the request was settled in the client's stead."""
        facts = self._facts(exchange)
        scope = exchange.scope(exchange.inbound.session)
        if self.adoption is not None and await self.adoption.take_answer(
            scope, message, exchange.request.body
        ):
            await send_answer(exchange.send, 202, ())
        elif message.request_id is not None and await self._answered_elsewhere(exchange, message.request_id):
            return
        elif message.request_id is None or facts.server_requests.note_answer(message.request_id):
            await self._pass(exchange)
        else:
            await send_answer(exchange.send, 202, ())

    async def _answered_elsewhere(self, exchange: Exchange, request_id: RequestId) -> bool:
        """Leave an answer to the process whose stream asked for it; False where it is passed on here."""
        if self._across is None or exchange.via is not None:
            return False
        passing = self._passing(exchange, exchange.scope(exchange.inbound.session))
        found = await self._across.who_asked(passing.scope, request_id)
        if found == SETTLED:
            await send_answer(exchange.send, 202, ())
            return True
        return isinstance(found, Place) and await self._across.forward(passing, found)

    async def _answered_by_holder(self, exchange: Exchange) -> bool:
        """Leave a request to the process whose server has its session, where each has one of its own."""
        if self._across is None or not self._across.peers.members.keeps_sessions or exchange.via is not None:
            return False
        if exchange.inbound.session is None:
            return False
        scope = exchange.scope(exchange.inbound.session)
        return await self._across.forward_session(self._passing(exchange, scope))

    async def _adopted_elsewhere(self, exchange: Exchange, knows: Capabilities, asked: CallFacts) -> bool:
        """Leave a call to the process that has an identical one undelivered; False where nobody else has."""
        if self._across is None or exchange.via is not None or not self._across.offers:
            return False
        assert self.adoption is not None
        scope = exchange.scope(exchange.inbound.session if knows.has_sessions else None)
        request, upstream = exchange.request, exchange.upstream
        identity = self.adoption.identity_of(exchange.inbound, request, upstream, scope, knows, asked)
        if identity is None or self.adoption.has_offer(identity):
            return False
        return await self._across.forward_identical(self._passing(exchange, scope), identity)

    async def _cancelled_elsewhere(self, exchange: Exchange, scope: Scope, body: bytes) -> bool:
        """Leave a cancellation to the process that runs the call; False where nobody else does."""
        request_id = cancelled_id(body)
        if self._across is None or exchange.via is not None or request_id is None:
            return False
        if self.open_calls.has(scope, request_id):
            return False
        if self.adoption is not None and self.adoption.knows_call(scope, request_id):
            return False
        place = await self._across.who_runs(scope, request_id)
        if place is None:
            return False
        with suppress(PeerBroken):  # said twice it means the same
            return await self._across.forward(self._passing(exchange, scope), place)
        return False

    async def _answer_cancellation(self, exchange: Exchange, tasks: TaskGroup) -> None:
        """Pass a cancellation on; a call that it stopped gets no answer, and ends a little later."""
        scope = exchange.scope(exchange.inbound.session)
        body = exchange.request.body
        if await self._cancelled_elsewhere(exchange, scope, body):
            return
        if self.adoption is not None and await self.adoption.takes_cancellation(scope, body, tasks):
            await send_answer(exchange.send, 202, ())
            return
        request_id = cancelled_id(body)
        stream = self.open_calls.find(scope, request_id) if request_id is not None else None
        await self._pass(exchange)
        if stream is not None:
            tasks.start_soon(end_cancelled, stream, self._settings.cancel_settle_s, request_id)

    async def _answer_request(
        self, exchange: Exchange, log: ReplayLog, message: MessageHead, knows: Capabilities, tasks: TaskGroup
    ) -> None:
        if message.method == "initialize":
            await self._answer_initialize(exchange, log, message, tasks)
        elif _has_scope(exchange):
            await self._answer_call(exchange, log, message, knows, tasks)
        else:
            await self._pass(exchange)  # nothing tells its caller from others: not resumable

    async def _answer_initialize(
        self, exchange: Exchange, log: ReplayLog, message: MessageHead, tasks: TaskGroup
    ) -> None:
        """Pass a JSON answer as it is; a stream gets ids from the head on, which names its session."""
        if exchange.owner is not None:
            self._principals.check(exchange.owner, time.monotonic())
        opening = _Opening(exchange, log, self.sessions, self._across)
        offering = exchange.send if self._keyed is None else offer_keys(exchange.send)

        async def begin(answer: UpstreamAnswer, upstream: Upstream) -> Call | None:
            await opening.note(answer)
            self._note_session(exchange, opening.session or None)
            if not opening.streams or message.request_id is None:
                return None
            try:
                stream = await CallStream.open(log, exchange.scope(opening.session), message.request_ids)
            except StoreFull as full:
                raise RequestOverLimit(503, full.bound, "the gateway takes no new calls now") from full
            settings = self._call_settings(FIRST_WITH_STREAMABLE_HTTP)
            call = Call(upstream, exchange.request, message.request_ids, stream, settings)
            call.token = CallToken.OFFERED if self._keyed is not None else None
            return call

        initializing = Initializing(exchange.upstream, exchange.request, offering, begin, opening.take)
        call = await initializing.wait(exchange.receive, tasks)
        if call is not None:
            terms = self._post_terms(exchange, FIRST_WITH_STREAMABLE_HTTP, opens_early=False)
            on_end = self._metrics.note_reader_end
            with self._counted():
                await answer_post(call, terms, self._pace, exchange.receive, exchange.send, on_end)

    def _call_settings(self, knows: Capabilities) -> CallSettings:
        return CallSettings(
            answer_bytes=self._settings.answer_bytes,
            error_bytes=self._settings.error_bytes,
            sse=self._limits,
            revision=knows.revision,
            on_relay=self._metrics.note_relay,
            on_indeterminate=self._metrics.note_indeterminate,
            on_limit=self._metrics.note_limit,
            lost_s=self._settings.beat_s * 2 / 3,
        )

    def _post_terms(self, exchange: Exchange, knows: Capabilities, *, opens_early: bool) -> PostTerms:
        return PostTerms(
            knows=knows,
            is_aware=self._read_asked(exchange.inbound) is not None,
            opens_early=opens_early,
            prime_after_s=self._settings.prime_after_ms / 1000,
            retry_ms=self._settings.retry_ms,
            window=self._limits.window_events,
            cors=self._facts(exchange).cors.get(exchange.inbound.origin or "", ()),
        )

    async def _answer_call(
        self, exchange: Exchange, log: ReplayLog, message: MessageHead, knows: Capabilities, tasks: TaskGroup
    ) -> None:
        inbound = exchange.inbound
        request_ids = message.request_ids
        self._check_requests(exchange, request_ids)
        if self._connections >= self._settings.reads_at_once:
            raise RequestOverLimit(503, "reads_at_once", "the gateway has as many connections as it takes")
        asked = self._read_call(exchange, message)
        # What is asked may be answered from an earlier call: a token that is new here is asked about first.
        is_known = asked is None or self._facts(exchange).has_let_in(inbound)
        if not is_known and await self._admit(exchange, knows) is None:
            return
        if asked is not None and await self._adopted_elsewhere(exchange, knows, asked):
            return
        try:
            is_keyed = self._keyed is not None and asked is not None and asked.given is not None
            if is_keyed and asked is not None:
                _check_key(exchange, knows, asked)
            kind = self._kind_of(message, asked, is_keyed=is_keyed)
            session = inbound.session if knows.has_sessions else None
            stream = await kind.open(log, exchange.scope(session), request_ids)
        except StoreFull as full:
            if self._settings.on_budget == "refuse":
                raise RequestOverLimit(503, full.bound, "the gateway takes no new calls now") from full
            self._metrics.note_limit(full.bound)
            await relay_unresumable(
                exchange.upstream, exchange.request, self._limits, exchange.receive, exchange.send
            )
            return
        except SessionEnded:
            raise RequestRefused(404, "mcp-session-id", "the session has ended") from None
        adoption = self.adoption
        assert adoption is not None
        upstream = adoption.listen(message, exchange.upstream)
        call = Call(upstream, exchange.request, request_ids, stream, self._call_settings(knows))
        facts = self._facts(exchange)
        others: list[Watcher] = []
        closing = self._closing(call, knows, asked, tasks)
        if closing is not None:
            others.append(closing)
        keyed: KeyedCall | None = None
        if isinstance(stream, KeyedStream) and asked is not None:
            keyed = self._keyed_call(exchange, stream, asked, facts, call, closing)
            others.append(keyed.following)
        entry = adoption.enter(inbound, message, knows, asked, call, facts, tasks, closing)
        if entry is not None and not await adoption.record(entry):
            await self._answer_unrecorded(exchange, call, entry)
            return
        tasks.start_soon(self._run_call, exchange, log, call, request_ids, entry, keyed)
        if note_requests(facts, message, exchange.request.body) and self._across is not None:
            self._across.tell_wish(call.stream.scope, exchange.request.body)
        is_early = knows.has_priming and not message.batch and inbound.accepts_sse and facts.trusts(inbound)
        terms = self._post_terms(exchange, knows, opens_early=is_early)
        on_end = self._metrics.note_reader_end
        if entry is None and not others:
            with self._counted():
                await answer_post(call, terms, self._pace, exchange.receive, exchange.send, on_end)
            return
        watching = adoption.watching(entry, others, call, exchange.receive, exchange.send)
        with watching as watched, self._counted():
            await answer_post(
                call, terms, self._pace, watched.receive, watched.send, on_end, watched.plain_send
            )

    def _kind_of(self, message: MessageHead, asked: CallFacts | None, *, is_keyed: bool) -> type[CallStream]:
        if message.batch:
            return BatchStream
        if is_keyed:
            return KeyedStream
        records = asked is not None and self.adoption is not None and self.adoption.records
        return RecordedStream if records else CallStream

    async def _answer_unrecorded(self, exchange: Exchange, call: Call, entry: AdoptableCall) -> None:
        """Refuse a call whose intent the ledger does not take, or relay it with nothing promised."""
        assert self.adoption is not None
        self.adoption.abandon(entry)
        await call.stream.end()
        if self._settings.on_ledger_failure == "refuse":
            refusal = refused_unrecorded(call.request_id)
            await send_answer(exchange.send, refusal.status, refusal.headers, refusal.body)
        else:
            await relay_unresumable(
                exchange.upstream, exchange.request, self._limits, exchange.receive, exchange.send
            )

    async def _run_call(
        self,
        exchange: Exchange,
        log: ReplayLog,
        call: Call,
        request_ids: tuple[RequestId, ...],
        entry: AdoptableCall | None,
        keyed: KeyedCall | None,
    ) -> None:
        def note_head() -> None:
            self._note_head(exchange, call)

        assert self.adoption is not None
        self.open_calls.add(request_ids, call.stream)
        try:
            if keyed is not None and self._keyed is not None:
                await self._keyed.run(keyed, call, note_head)
            elif entry is None:
                await call.run(note_head)
            else:
                await self.adoption.run(entry, call, note_head)
        finally:
            self.open_calls.remove(request_ids, call.stream)
        learnt = self.adoption.learn(exchange.inbound, call.stream.scope, call)
        if learnt is not None and self._across is not None:
            self._across.tell_tools(learnt[0], call.stream.scope, learnt[1])
        if call.whole is not None and call.whole.status == 404:
            await self._end_session(exchange)

    def _note_head(self, exchange: Exchange, call: Call) -> None:
        """Learn from the head of an answer whether the caller is let in."""
        facts = self._facts(exchange)
        whole = call.whole
        headers = whole.headers if whole is not None else call.stream_headers
        status = whole.status if whole is not None else 200
        if headers is not None and status < 300:
            facts.trust(exchange.inbound, cors_of(headers))
        elif status in (401, 403, 404):
            facts.distrust()
            if self._across is not None:
                self._across.tell_distrusted(call.stream.scope)

    async def _answer_get(
        self, exchange: Exchange, log: ReplayLog, knows: Capabilities, tasks: TaskGroup
    ) -> None:
        inbound = exchange.inbound
        cursor = inbound.cursor.decode("latin-1") if inbound.cursor is not None else None
        token = _call_of(cursor)
        is_call = token is not None
        if not (_has_scope(exchange) if knows.has_sessions else is_call):
            await self._pass(exchange)
            return
        scope = exchange.scope(inbound.session if knows.has_sessions else None)
        reached, is_home = None, True
        if self._across is not None and exchange.via is None:
            reached = await self._forward_get(exchange, scope, cursor)
            is_home = self._across.is_home(scope, cursor)
            if reached in (Reached.ANSWERED, Reached.LEFT):
                return
        admitted = await self._admit(exchange, knows)
        if admitted is None:
            return
        if admitted is Admitted.UNKNOWN:
            reached = Reached.UNREACHABLE
        closing = self._closings.find(scope, token) if token is not None else None
        if not is_call and is_home:
            assert self._legs is not None
            refusal = await self._legs.ensure(tasks, scope, exchange.upstream, exchange.request)
            if refusal is not None:
                await send_answer(
                    exchange.send, refusal.status, _without_length(refusal.headers), refusal.body
                )
                return
        facts = self._facts(exchange)
        assert self.adoption is not None
        entry = self.adoption.find(scope, cursor) if is_call else None
        taken = self.adoption.taken(scope, cursor) if is_call else None
        terms = GetTerms(
            cursor=cursor,
            asked=self._read_asked(inbound),
            knows=knows,
            retry_ms=self._settings.retry_ms,
            hold_s=self._settings.hold_s,
            grace_s=self._limits.grace_s,
            attaches_lost=self._settings.on_standalone_gap != "refuse",
            stops_foreign=self._settings.foreign_ids == "stop",
            cors=facts.cors.get(inbound.origin or "", ()),
            holds=self._holds,
            draining=self.draining,
            patience=self._patience,
            is_full=self._is_full(),
            is_out_of_reach=reached is Reached.UNREACHABLE,
            via=exchange.via,
        )

        def settle(request_ids: Sequence[object]) -> None:
            lost = facts.server_requests.take_lost(request_ids)
            tasks.start_soon(settle_lost, exchange.upstream, exchange.request, lost)

        if taken is not None:
            await tell_settled(taken, terms, exchange.send, self._verdicts.tell)
            return
        if not knows.has_sessions and closing is None and token is not None and token.request_id is not None:
            # Without a session the token is the capability, and it lives no longer than the grace.
            await tell_settled(
                token.request_id, terms, exchange.send, self._verdicts.tell, why=Why.UNKNOWN_STREAM
            )
            return
        others = [closing] if closing is not None else []
        watched = self.adoption.watch_resume(entry, others, exchange.receive, exchange.send)
        presence = self.adoption.watching_standalone(
            None if is_call else scope, self._metrics.note_reader_end
        )
        reading = (
            self._legs.reading(tasks, scope) if self._legs is not None and not is_call else nullcontext()
        )
        try:
            with presence as note_end, reading, self._counted():
                await answer_get(
                    log,
                    scope,
                    terms,
                    self._pace,
                    watched.receive,
                    watched.send,
                    notices=lambda: make_notices(facts, self._settings),
                    interruption=self._interruption(scope, facts)
                    if not is_call and not terms.is_aware
                    else None,
                    on_lost_requests=settle,
                    tell=self._verdicts.tell,
                    on_end=note_end,
                    watch=watched.watch,
                )
        except SessionEnded:
            raise RequestRefused(404, "mcp-session-id", "the session has ended") from None
        finally:
            watched.release()

    async def _admit(self, exchange: Exchange, knows: Capabilities) -> Admitted | None:
        """Ask the upstream about who reads, where nothing else says who it is; None once it was refused."""
        inbound = exchange.inbound
        if not knows.has_sessions or inbound.authorization is None or exchange.identity.principal is not None:
            return Admitted.YES
        facts = self._facts(exchange)
        judged: Admitted | Refusal = Admitted.YES

        async def judge() -> None:
            nonlocal judged
            judged = await self._admission.judge(facts, inbound, exchange.upstream, exchange.request)

        if not await run_while_present(exchange.receive, judge):
            return None
        if isinstance(judged, Refusal):
            await send_answer(exchange.send, judged.status, _without_length(judged.headers), judged.body)
            return None
        return judged

    async def _forward_get(self, exchange: Exchange, scope: Scope, cursor: str | None) -> Reached | None:
        assert self._across is not None
        if self._is_full():
            return None
        with self._counted():
            return await self._across.forward_get(
                self._passing(exchange, scope), cursor, stops_foreign=self._settings.foreign_ids == "stop"
            )

    def _passing(self, exchange: Exchange, scope: Scope) -> Passing:
        return Passing(
            exchange.inbound,
            exchange.identity,
            exchange.request.body,
            exchange.receive,
            exchange.send,
            scope,
        )

    def _interruption(self, scope: Scope, facts: SessionFacts) -> Interruption | None:
        """What tells an unaware client of a loss while it reads its standalone stream."""
        losses = self._legs.losses_of(scope) if self._legs is not None else None
        if losses is None:
            return None

        async def next_notice() -> bytes:
            await losses.wait()
            return make_notices(facts, self._settings)

        return next_notice

    async def _answer_delete(self, exchange: Exchange, log: ReplayLog, tasks: TaskGroup) -> None:
        scope = exchange.scope(exchange.inbound.session)
        assert self.adoption is not None
        upstream, needing = exchange.upstream, []
        if self._across is not None and (needing := await self._across.who_needs(scope)):
            upstream = self._across.hold_end(upstream, scope, needing, tasks)
        is_held = self.adoption.holds_end(scope, upstream, exchange.request, tasks)
        if is_held or needing:
            if not is_held:
                tasks.start_soon(send_end, upstream, exchange.request)
            await self._end_session(exchange, but=needing)
            await send_answer(exchange.send, 200, ())
            return

        async def note(answer: UpstreamAnswer) -> None:
            if answer.status < 300 or answer.status == 404:
                await self._end_session(exchange)

        await self._pass(exchange, note)

    def _check_requests(self, exchange: Exchange, request_ids: tuple[RequestId, ...]) -> None:
        """Refuse a request of a session that has too many without an answer."""
        session, limit = exchange.inbound.session, self._settings.session_requests
        if session is None:
            return
        if self.open_calls.count(exchange.scope(session)) + len(request_ids) > limit:
            raise RequestOverLimit(429, "session_requests", f"more than {limit} requests wait for answers")

    def _note_session(self, exchange: Exchange, session: str | None) -> None:
        owner = exchange.owner
        if owner is not None and session is not None:
            self._principals.note(owner, session, time.monotonic())

    def _is_full(self) -> bool:
        if self._connections < self._settings.reads_at_once:
            return False
        self._metrics.note_limit("reads_at_once")
        return True

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._connections += 1
        try:
            yield
        finally:
            self._connections -= 1

    async def _end_session(self, exchange: Exchange, *, but: Sequence[Place] = ()) -> None:
        session = exchange.inbound.session
        if session is None:
            return
        scope = exchange.scope(session)
        await self.end_scope(scope)
        if self._across is not None:
            await self._across.tell_end(scope, but=but)

    async def end_scope(self, scope: Scope) -> None:
        """End a session here: its readers, its streams, what is remembered of it."""
        if scope.session is not None and scope.principal is not None:
            owner = Scope(tenant=scope.tenant, principal=scope.principal)
            self._principals.forget(owner, scope.session)
        kept = self.adoption.leave_session(scope) if self.adoption is not None else ()
        if self._log is not None:
            await self._log.delete_session(scope, keep=kept)
        if self._legs is not None:
            self._legs.stop(scope)
        if scope.session is not None:
            self.sessions.forget(scope.session)

    async def _pass(
        self,
        exchange: Exchange,
        on_head: OnHead | None = None,
        on_piece: OnPiece | None = None,
    ) -> None:
        await pass_through(
            exchange.upstream,
            exchange.request,
            exchange.receive,
            exchange.send,
            on_head=on_head,
            on_piece=on_piece,
        )

    def _is_too_new(self, inbound: Inbound) -> bool:
        limit = self._settings.max_revision
        return (
            limit is not None
            and inbound.revision is not None
            and not is_at_most(inbound.revision, limit=limit)
        )

    async def _refuse_revision(self, exchange: Exchange, message: MessageHead | None) -> None:
        request_id = message.request_id if message is not None else None
        body = write_error(request_id, _METHOD_NOT_FOUND, "Method not found")
        await send_answer(exchange.send, 400, ((b"content-type", b"application/json"),), body)

    def _read_call(self, exchange: Exchange, message: MessageHead) -> CallFacts | None:
        """Read a tool call; a key that nobody can read is refused where keys are honoured."""
        is_wanted = self._keyed is not None or (self.adoption is not None and self.adoption.is_on)
        if message.method != METHOD or not is_wanted:
            return None
        try:
            return read_call(exchange.request.body)
        except MalformedCallKey as malformed:
            if self._keyed is None:
                return None
            raise RequestRefused(400, "_meta", str(malformed)) from None

    def _closing(
        self, call: Call, knows: Capabilities, asked: CallFacts | None, tasks: TaskGroup
    ) -> Closing | None:
        """Return what closes the upstream leg when the client goes; None where a close cancels nothing."""
        given = asked.given if asked is not None and self._keyed is not None else None
        if not knows.disconnect_cancels or (given is not None and given.on_disconnect == "detach"):
            return None
        call.stream.notes_answer = True
        is_explicit = given is not None and given.on_disconnect == "cancel"
        grace_s = 0.0 if is_explicit or not knows.has_resumption else self._settings.resume_grace_s
        return self._closings.add(call, tasks, grace_s=grace_s)

    def _keyed_call(
        self,
        exchange: Exchange,
        stream: KeyedStream,
        asked: CallFacts,
        facts: SessionFacts,
        call: Call,
        closing: Closing | None,
    ) -> KeyedCall:
        assert asked.given is not None
        assert self.adoption is not None
        party = KeyedParty(stream, facts, exchange.upstream, exchange.request)
        call.judged = anyio.Event()
        return KeyedCall(
            facts=asked,
            key=asked.given.key,
            route=exchange.inbound.target.partition(b"?")[0].decode("latin-1"),
            request_id=call.request_id,
            party=party,
            following=Following(party, self.adoption.questions),
            closing=closing,
        )

    def _facts(self, exchange: Exchange) -> SessionFacts:
        """Return what is remembered of a session, or where there is none of a principal."""
        identity, session = exchange.identity, exchange.inbound.session
        if session is not None:
            return self.sessions.of(session)
        if identity.principal is None:
            return SessionFacts()
        return self.sessions.of(f"\0{identity.tenant}\0{identity.principal}")

    def _read_asked(self, inbound: Inbound) -> ContinuityRequest | None:
        """What an aware client asks for; a text that nobody can read makes no client aware."""
        if inbound.continuity is None:
            return None
        with suppress(ContinuityError):
            return read_request(inbound.continuity)
        return None


class _Opening:
    """What an `initialize` says of the session that it opens."""

    def __init__(self, exchange: Exchange, log: ReplayLog, sessions: Sessions, across: Across | None) -> None:
        self._news = InitializeNews()
        self._across = across
        self.session = ""
        #: Whether the answer is a stream of a session.
        self.streams = False
        self._exchange = exchange
        self._log = log
        self._sessions = sessions

    async def note(self, answer: UpstreamAnswer) -> None:
        """Note the head of the answer; raises `RequestRefused` where there is no room for a session."""
        session = header_of(answer.headers, b"mcp-session-id")
        if session is None or answer.status >= 300:
            return
        self.session, self.streams = session.decode("latin-1"), is_stream(answer)
        try:
            await self._log.open_session(self._exchange.scope(self.session))
        except StoreFull as full:
            raise RequestOverLimit(503, full.bound, "the gateway takes no new sessions now") from full
        facts = self._sessions.of(self.session)
        facts.trust(self._exchange.inbound, cors_of(answer.headers))
        note_client(facts, self._exchange.request.body)
        if self._across is not None:
            await self._across.tell_opened(self._exchange.scope(self.session), facts)

    async def take(self, piece: bytes) -> None:
        """Note what the answer declares, before it is passed on."""
        if not self.session:
            return
        facts = self._sessions.of(self.session)
        if self._news.take(piece, facts, is_stream=self.streams) and self._across is not None:
            self._across.tell_facts(self._exchange.scope(self.session), facts)


def _has_scope(exchange: Exchange) -> bool:
    return exchange.inbound.session is not None or exchange.identity.principal is not None


def _check_key(exchange: Exchange, knows: Capabilities, asked: CallFacts) -> None:
    """Refuse a key that another caller may have chosen too, where nothing tells the two apart."""
    has_caller = exchange.identity.principal is not None or (
        knows.has_sessions and exchange.inbound.session is not None
    )
    if not has_caller and asked.given is not None and len(asked.given.key) < _ANONYMOUS_KEY_CHARS:
        raise RequestRefused(
            400,
            "_meta",
            f"without a session or a principal a key needs {_ANONYMOUS_KEY_CHARS} random characters",
        )


def _call_of(cursor: str | None) -> StreamToken | None:
    """Return the call's stream that a cursor names, if it names one."""
    if cursor is None:
        return None
    with suppress(ForeignEventId, MalformedEventId, UnknownEventIdVersion):
        token = EventId.parse(cursor).stream
        return token if token.kind == "call" else None
    return None


def _without_length(headers: Headers) -> Headers:
    return tuple(field for field in pass_answer_headers(headers) if field[0] != b"content-length")
