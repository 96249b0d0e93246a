"""The door to adoption for the part that answers requests: one method for each kind of message it touches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import anyio
import sniffio
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.adoption.adopting import Adopting, WatchedCall
from counterfoil.adapters.gateway.adoption.adoption_log import AdoptionCounts
from counterfoil.adapters.gateway.adoption.eligibility import (
    AdoptPolicy,
    Identity,
    ReadOnlyTools,
    digest_identity,
    identify_call,
    judge_eligibility,
)
from counterfoil.adapters.gateway.adoption.entries import AdoptableCall
from counterfoil.adapters.gateway.adoption.held import Cancellation, Held
from counterfoil.adapters.gateway.adoption.journal import Journal
from counterfoil.adapters.gateway.adoption.listing import ListeningUpstream
from counterfoil.adapters.gateway.adoption.questions import Questions
from counterfoil.adapters.gateway.adoption.restoring import restore
from counterfoil.adapters.gateway.adoption.table import OnOffer
from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.arrival.scopes import ANONYMOUS
from counterfoil.adapters.gateway.calls.calls import Call, OnHead
from counterfoil.adapters.gateway.calls.closing import Closing
from counterfoil.adapters.gateway.calls.connection import Connection, Watcher, watchers_of
from counterfoil.adapters.gateway.calls.open_calls import cancelled_id
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.gateway.streams.sse_out import OnEnd
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.messages import MessageHead, RequestId
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamRequest
from counterfoil.errors import CallElsewhere, ForeignEventId, MalformedEventId, UnknownEventIdVersion
from counterfoil.limits import Limits
from counterfoil.model.adoption import Eligible
from counterfoil.native import EventId, Scope, StreamToken
from counterfoil.protocol.call_facts import CallFacts
from counterfoil.protocol.revisions import Capabilities
from counterfoil.stores.interface import ReplayLog
from counterfoil.stores.ledger_interface import Ledger

#: Sessions whose clients have left, of which others were told.
_REMEMBERED = 10_000


class CallIdentity(NamedTuple):
    """What identical calls have in common, and whether one of another session may be among them."""

    identity: Identity
    crosses_sessions: bool


class Adoption:
    """Adoption in one gateway."""

    def __init__(
        self, log: ReplayLog, settings: GatewaySettings, limits: Limits, ledger: Ledger | None = None
    ) -> None:
        self._policy = AdoptPolicy(settings)
        self._read_only = ReadOnlyTools()
        #: What former lives left, which is settled though adoption is off in this one.
        self._former = Journal(ledger) if ledger is not None else None
        self._journal = self._former if self._policy.is_on else None
        self._adopting = Adopting(log, settings, limits, self._journal)
        self._log = log
        self._settings = settings
        #: Whether identities leave this process, to the ledger or to others.
        self._digests = self._journal is not None
        self._held = Held(self._adopting, settings.cancel_settle_s)
        self._standalone: dict[Scope, int] = {}
        self._left: OrderedDict[Scope, None] = OrderedDict()
        #: Told when the client of a session that is read here has left it, and when it is back.
        self.on_left: Callable[[Scope, bool], None] | None = None
        self._is_on_asyncio: bool | None = None
        #: Held while calls of former lives are taken in: some are this process's already, and not yet here.
        self._taking_in = anyio.Lock()

    @property
    def is_on(self) -> bool:
        """Whether any call may be adopted."""
        return self._policy.is_on

    @property
    def counts(self) -> AdoptionCounts:
        return self._adopting.told.counts

    @property
    def offered(self) -> list[bytes]:
        """What identical calls have in common that may take one over here, the latest last."""
        return self._adopting.table.offered

    @property
    def window_s(self) -> float:
        """How long an undelivered call may be taken over."""
        return self._settings.adopt_s

    async def restore(self, tasks: TaskGroup) -> None:
        """Take in what former lives left in the ledger, and nobody alive has taken in."""
        self._is_on_asyncio = sniffio.current_async_library() == "asyncio"
        if self._former is not None:
            limit = self._settings.adopt_calls if self.is_on else 0
            window_s = self._settings.adopt_s
            async with self._taking_in:
                await restore(self._adopting, self._former, self._log, tasks, window_s=window_s, limit=limit)

    def stop(self) -> None:
        """Start nothing any more: connections outlive the gateway, and tell that their clients are gone."""
        self._adopting.stop()
        self._held.stop()

    # --- calls

    @property
    def records(self) -> bool:
        """Whether calls without a key are kept in a ledger."""
        return self._journal is not None

    async def record(self, entry: AdoptableCall) -> bool:
        """Write the intent of a call that is sent now; False if the ledger does not take it.

        Raises CallLeft where an identical one is to be looked for first.
        """
        if entry.work is None:
            return True
        if self._taking_in.locked():
            async with self._taking_in:
                pass
            raise CallElsewhere("an identical call may have been taken in here: look for it")
        return await self._adopting.record(entry)

    def abandon(self, entry: AdoptableCall) -> None:
        """Forget a call that was entered, and is not sent by us after all."""
        self._adopting.abandon(entry)

    def enter(
        self,
        inbound: Inbound,
        message: MessageHead,
        identity: CallIdentity | None,
        asked: CallFacts | None,
        call: Call,
        facts: SessionFacts,
        tasks: TaskGroup,
        closing: Closing | None = None,
    ) -> AdoptableCall | None:
        """Take a call in, before it runs; None if it takes no part."""
        if asked is None or identity is None or message.request_id is None:
            return None
        entry = AdoptableCall(
            identity=identity.identity,
            tool=asked.tool,
            target=inbound.target,
            stream=call.stream,
            request_id=message.request_id,
            upstream=call.upstream,
            request=call.request,
            facts=facts,
            crosses_sessions=identity.crosses_sessions,
        )
        if closing is not None:
            entry.closing = closing
            closing.on_cancel.append(lambda: self._adopting.note_cancelled(entry))
        self._adopting.enter(entry, call, tasks)
        return entry

    def has_offer(self, identity: bytes) -> bool:
        """Whether an undelivered call or a doubt of that identity is here."""
        return self._adopting.table.has_offer(identity)

    def listen_to_offers(self, listener: Callable[[bytes, bool], None]) -> None:
        """Have `listener` told when an identity can be adopted here, and when it cannot any more."""
        self._adopting.table.on_offer = self._in_digests(listener)

    def listen_to_calls(self, listener: Callable[[bytes, bool], None]) -> None:
        """Have `listener` told when the first call of an identity comes here, and when the last one goes."""
        self._adopting.table.on_identity = self._in_digests(listener)

    def _in_digests(self, listener: Callable[[bytes, bool], None]) -> OnOffer:
        self._digests = True

        def tell(identity: Identity, is_open: bool) -> None:
            assert isinstance(identity, bytes), "other processes know digests"
            listener(identity, is_open)

        return tell

    def identify(
        self,
        inbound: Inbound,
        request: UpstreamRequest,
        upstream: Upstream,
        scope: Scope,
        knows: Capabilities,
        asked: CallFacts,
    ) -> CallIdentity | None:
        """Return what identical calls have in common, before there is a stream; None if it takes no part."""
        route = route_of(inbound, request)
        policy = self._policy.scope_of(route, asked.tool)
        is_read_only = self._read_only.has(route, scope, asked.tool)
        crosses = policy == "principal" and scope.principal not in (None, ANONYMOUS)
        eligible = judge_eligibility(policy, asked, is_read_only=is_read_only)
        if eligible is not Eligible.YES or (not crosses and scope.session is None):
            return None
        place = (route, getattr(upstream, "name", ""), request.target)
        parts = identify_call(place, scope, knows, asked, crosses=crosses)
        return CallIdentity(digest_identity(parts) if self._digests else parts, crosses)

    def run(self, entry: AdoptableCall, call: Call, on_head: OnHead) -> Awaitable[None]:
        """Make the call, or take over an identical one."""
        return self._adopting.run(entry, call, on_head)

    def watch(
        self,
        entry: AdoptableCall | None,
        others: Sequence[Watcher],
        call: Call,
        receive: Receive,
        send: Send,
    ) -> Connection:
        """Watch the connection that a call came on until `unwatch`; `others` want to know of it too."""
        watcher = self._watchers(entry, others)
        connection = Connection(watcher, receive, send, is_on_asyncio=self._is_on_asyncio)
        if entry is not None:
            self._adopting.connect(entry, connection)
        for other in others:
            other.note_attached(connection)
        call.stream.watch = connection.watch
        return connection

    def unwatch(self, call: Call, connection: Connection) -> None:
        """Stop watching the connection that a call came on: it is over."""
        call.stream.watch = None
        connection.release()

    # --- resumes

    def taken(self, scope: Scope, cursor: str | None) -> RequestId | None:
        """Return the request id of the call that a cursor names, if its answer goes to an identical one."""
        token = _token_of(cursor)
        return self._adopting.table.taken_of_stream(scope, token) if token is not None else None

    def find(self, scope: Scope, cursor: str | None) -> AdoptableCall | None:
        """Return the open or undelivered call that a cursor names."""
        token = _token_of(cursor)
        return self._adopting.table.of_stream(scope, token) if token is not None else None

    def watch_resume(
        self, entry: AdoptableCall | None, others: Sequence[Watcher], receive: Receive, send: Send
    ) -> Connection:
        """Watch a connection that resumes a call; without anybody who wants to know it is not watched."""
        return Connection(self._watchers(entry, others), receive, send)

    def _watchers(self, entry: AdoptableCall | None, others: Sequence[Watcher]) -> Watcher | None:
        # A close is judged first: what it cancels is not undelivered.
        if entry is not None and not others:
            return WatchedCall(self._adopting, entry)
        return watchers_of(*others, WatchedCall(self._adopting, entry) if entry is not None else None)

    @property
    def questions(self) -> Questions:
        """What servers asked callers who have not made the call."""
        return self._adopting.questions

    @contextmanager
    def watching_standalone(self, scope: Scope | None, on_end: OnEnd) -> Iterator[OnEnd]:
        """Watch a connection of a session's standalone stream: a client that closes it has left.

        `scope` is None for any other connection.
        """
        if scope is None:
            yield on_end
            return
        self._standalone[scope] = self._standalone.get(scope, 0) + 1
        self._note_left(scope, has_left=False)
        reasons: list[str] = []

        def note_end(reason: str) -> None:
            reasons.append(reason)
            on_end(reason)

        try:
            yield note_end
        finally:
            left = self._standalone[scope] = self._standalone[scope] - 1
            if not left:
                del self._standalone[scope]
                self._note_left(scope, has_left=reasons == ["client-gone"])

    def _note_left(self, scope: Scope, *, has_left: bool) -> None:
        """Note it here, and tell those who run the session's calls; only what changes is told."""
        self.note_session(scope, has_left=has_left)
        if self.on_left is None or has_left == (scope in self._left):
            return
        if has_left:
            self._left[scope] = None
            if len(self._left) > _REMEMBERED:
                self._left.popitem(last=False)
        else:
            del self._left[scope]
        self.on_left(scope, has_left)

    def note_session(self, scope: Scope, *, has_left: bool) -> None:
        """Note that a session's client closed its standalone stream, or has one again, whoever reads it."""
        self._adopting.table.note_session(scope, has_left=has_left)

    # --- what else clients say

    async def take_answer(self, scope: Scope, message: MessageHead, body: bytes) -> bool:
        """Send a client's answer to the server that asked an adopted call; False if it is no such answer."""
        return await self._adopting.questions.take_answer(scope, message.request_id, body)

    async def takes_cancellation(self, scope: Scope, body: bytes, tasks: TaskGroup) -> bool:
        """Hold a cancellation, or send it where its call runs; False to pass it on."""
        request_id = cancelled_id(body)
        if request_id is None:
            return False
        taken = await self._held.take_cancellation(scope, request_id, body, tasks)
        return taken is Cancellation.TAKEN

    def knows_call(self, scope: Scope, request_id: RequestId) -> bool:
        """Whether a call of this id is open, undelivered, or taken over here."""
        table = self._adopting.table
        return table.of_request(scope, request_id) is not None or table.is_taken(scope, request_id)

    def asked(self, scope: Scope, request_id: RequestId) -> bool:
        """Whether an adopter was asked with this id here."""
        return self._adopting.questions.has(scope, request_id)

    def needs_session(self, scope: Scope) -> bool:
        """Whether `holds_end` would hold the end of a session."""
        return self._held.needs_session(scope)

    def holds_end(self, scope: Scope, upstream: Upstream, request: UpstreamRequest, tasks: TaskGroup) -> bool:
        """Hold the end of a session upstream; False to pass it on."""
        return self._held.holds_end(scope, upstream, request, tasks)

    def leave_session(self, scope: Scope) -> list[StreamToken]:
        """Note that a session is over; return the streams to keep for adopters."""
        return self._held.leave_session(scope)

    # --- what servers say

    def listen(self, message: MessageHead, upstream: Upstream) -> Upstream:
        """Read along where a server lists its tools."""
        return ListeningUpstream(upstream) if message.method == "tools/list" else upstream

    def learn_tools(self, route: str, scope: Scope, answer: bytes) -> None:
        """Note an answer to `tools/list` that another process has seen."""
        self._read_only.learn(route, scope, answer)

    def learn(self, inbound: Inbound, scope: Scope, call: Call) -> tuple[str, list[bytes]] | None:
        """Note which tools are read-only, once an answer that was listened to has passed.

        Returns the route and what was said, for others to note; None for any other call.
        """
        if not isinstance(call.upstream, ListeningUpstream):
            return None
        route, answers = route_of(inbound, call.request), list(call.upstream.messages())
        for answer in answers:
            self._read_only.learn(route, scope, answer)
        return route, answers


def route_of(inbound: Inbound, request: UpstreamRequest) -> str:
    """The path prefix that chose the upstream: the target is what is left behind it."""
    length = len(inbound.target) - len(request.target)
    return inbound.target[:length].decode("latin-1") if length else ""


def _token_of(cursor: str | None) -> StreamToken | None:
    try:
        return EventId.parse(cursor).stream if cursor is not None else None
    except (ForeignEventId, MalformedEventId, UnknownEventIdVersion):
        return None
