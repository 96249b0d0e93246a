"""Decides which way a request is answered: a call, a resume, an end of session, or a plain passage.

One instance serves all requests of a gateway; what it remembers of sessions is facts, never promises.
"""

from __future__ import annotations

import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.across.across import Across
from counterfoil.adapters.gateway.adoption.front import Adoption
from counterfoil.adapters.gateway.answering.ways import Ways, make_ways
from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.calls.open_calls import OpenCalls
from counterfoil.adapters.gateway.exchanges.connections import Connections
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.keyed.offering import offer_keys
from counterfoil.adapters.gateway.operation.metrics import Metrics
from counterfoil.adapters.gateway.operation.verdict_log import VerdictLog
from counterfoil.adapters.gateway.sessions.principals import Principals
from counterfoil.adapters.gateway.sessions.sessions import Sessions
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.gateway.streams.draining import Draining
from counterfoil.adapters.gateway.streams.sse_out import Pace
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.messages import MessageHead, MessageKind, read_message, write_error
from counterfoil.limits import Limits
from counterfoil.native import Scope
from counterfoil.protocol.revisions import Capabilities, capabilities_of, is_at_most, with_grace
from counterfoil.stores.interface import ReplayLog
from counterfoil.stores.ledger_interface import Ledger

#: JSON-RPC: what a server of an older revision says to a method of a newer one.
_METHOD_NOT_FOUND = -32_601
#: How a client of a revision without sessions asks what a server can do.
DISCOVER = "server/discover"


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
        self._settings = settings
        self._principals = Principals(settings.principal_sessions, limits.window_age_s)
        self.draining = Draining()
        self.open_calls = OpenCalls()
        self.sessions = Sessions(settings.known_sessions)
        self.adoption = Adoption(log, settings, limits, ledger) if log is not None else None
        self._ways: Ways | None = None
        if log is None or self.adoption is None:
            return
        if across is not None:
            self.adoption.listen_to_offers(across.tell_offers(settings.adopt_s))
            self.adoption.listen_to_calls(across.note_call)
            self.adoption.on_left = across.tell_left
        shared = Shared(
            settings=settings,
            limits=limits,
            log=log,
            adoption=self.adoption,
            sessions=self.sessions,
            across=across,
            connections=Connections(settings.reads_at_once, metrics.note_limit),
            pace=Pace(settings.send_bytes, settings.beat_s, settings.write_deadline_s),
            metrics=metrics,
            verdicts=verdicts,
        )
        self._ways = make_ways(shared, ledger, self._principals, self.open_calls, self.draining)

    async def answer(self, exchange: Exchange, tasks: TaskGroup) -> None:
        """Answer one request.  Calls that go on without their client run in `tasks`."""
        inbound, ways = exchange.inbound, self._ways
        exchange.note_session(self._principals, inbound.session)
        knows = capabilities_of(inbound.revision)
        if knows is not None and not knows.has_resumption and self._settings.resume_grace_s:
            knows = with_grace(knows)
        message = read_message(exchange.request.body) if inbound.method == "POST" else None
        if self._is_too_new(inbound):
            await _refuse_revision(exchange, message)
        elif ways is None:
            await exchange.pass_on()
        elif await ways.elsewhere.answered_by_holder(exchange):
            return
        elif knows is None:
            await exchange.pass_on()
        elif ways.observed is not None:
            await (ways.observed.answer(exchange, message) if knows.has_resumption else exchange.pass_on())
        elif not knows.has_sessions:
            await self._answer_without_session(ways, exchange, message, knows, tasks)
        elif inbound.method == "GET":
            await ways.get.answer(exchange, knows, tasks)
        elif inbound.method == "DELETE":
            await ways.delete.answer(exchange, tasks)
        elif message is None:
            await exchange.pass_on()
        else:
            await self._answer_post(ways, exchange, message, knows, tasks)

    async def _answer_post(
        self, ways: Ways, exchange: Exchange, message: MessageHead, knows: Capabilities, tasks: TaskGroup
    ) -> None:
        if knows.has_batches and message.batch:
            left = await ways.note.take_answers(exchange, message)
            if left is None:
                return
            exchange, message = left
        if message.request_ids and (knows.has_batches or not message.batch):
            if message.method == "initialize":
                await ways.initialize.answer(exchange, message, tasks)
            elif exchange.has_scope:
                await ways.call.answer(exchange, message, knows, tasks)
            else:
                await exchange.pass_on()  # nothing tells its caller from others: not resumable
        elif message.method == "notifications/cancelled":
            await ways.note.answer_cancellation(exchange, tasks)
        elif message.kind is MessageKind.ANSWER:
            await ways.note.answer_answer(exchange, message)
        else:
            await exchange.pass_on()

    async def _answer_without_session(
        self,
        ways: Ways,
        exchange: Exchange,
        message: MessageHead | None,
        knows: Capabilities,
        tasks: TaskGroup,
    ) -> None:
        """Answer a request of a revision without sessions; what needs none of us passes as it is."""
        inbound = exchange.inbound
        if message is not None and message.method == DISCOVER:
            if ways.honours_keys:
                exchange = msgspec.structs.replace(exchange, send=offer_keys(exchange.send))
            await exchange.pass_on()
        elif message is not None and message.kind is MessageKind.REQUEST:
            if knows.has_resumption or ways.asking.is_wanted(exchange, message):
                await ways.call.answer(exchange, message, knows, tasks)
            else:
                await exchange.pass_on()
        elif knows.has_resumption and inbound.method == "GET" and inbound.cursor is not None:
            await ways.get.answer(exchange, knows, tasks)
        else:
            await exchange.pass_on()

    def has_keyed_run(self, key: bytes) -> bool:
        """Whether the run under a stored key is in flight here."""
        return self._ways is not None and self._ways.runs.has_keyed(key)

    async def end_scope(self, scope: Scope) -> None:
        """End a session here: its readers, its streams, what is remembered of it."""
        if self._ways is not None:
            await self._ways.ends.end_scope(scope)

    def _is_too_new(self, inbound: Inbound) -> bool:
        limit = self._settings.max_revision
        return (
            limit is not None
            and inbound.revision is not None
            and not is_at_most(inbound.revision, limit=limit)
        )


async def _refuse_revision(exchange: Exchange, message: MessageHead | None) -> None:
    request_id = message.request_id if message is not None else None
    body = write_error(request_id, _METHOD_NOT_FOUND, "Method not found")
    await send_answer(exchange.send, 400, ((b"content-type", b"application/json"),), body)
