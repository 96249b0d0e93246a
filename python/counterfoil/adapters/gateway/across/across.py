"""What one process of a gateway asks and tells the others, so that nothing depends on which one was reached.

Where there is one process there is none of this.  Nothing here decides on a stream: its owner does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.across.offers import Offers
from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.arrival.scopes import Identity
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.adapters.gateway.wire.upstream_port import (
    Headers,
    Take,
    Upstream,
    UpstreamAnswer,
    UpstreamRequest,
)
from counterfoil.adapters.peers.carrying import Reached
from counterfoil.adapters.peers.owners import Owner, Place, choose_home
from counterfoil.adapters.peers.peers import Peers
from counterfoil.adapters.peers.wire import (
    Forwarded,
    NeedsSession,
    Offer,
    Offered,
    Request,
    RunsCall,
    RunsKey,
    Said,
    SessionEnd,
    SessionNews,
    TakesAnswer,
    ToolsNews,
    WantsOffers,
    Wish,
    parts_of,
)
from counterfoil.errors import ForeignEventId, MalformedEventId, UnknownEventIdVersion
from counterfoil.native import EventId, KeyCheck, Scope, StreamToken

#: Words of replies.
YES, NO = "yes", "no"
MINE, SETTLED, PASS = "mine", "settled", "pass"


class Passing(msgspec.Struct, frozen=True):
    """A request that may be passed on to another process."""

    inbound: Inbound
    identity: Identity
    body: bytes
    receive: Receive
    send: Send
    scope: Scope


class Across:
    """The other processes as the part that answers requests sees them."""

    def __init__(self, peers: Peers, *, sessions: int) -> None:
        self.peers = peers
        #: Who has the session itself, where each process has a server of its own.
        self.holders = Holders(sessions)
        #: What news is told in; set while the gateway runs.
        self.tasks: TaskGroup | None = None
        #: What others have that an identical call may take over.
        self.offers = Offers()

    async def forward_session(self, passing: Passing) -> bool:
        """Have the process answer whose server has the session; False where it is this one, or gone."""
        owner = self.holders.find(passing.scope)
        if owner is None or owner == self.peers.own:
            return False
        return await self._forward(passing, owner, None) in (Reached.ANSWERED, Reached.LEFT)

    # --- adoption

    def has_identical(self, identity: bytes) -> bool:
        """Whether another process may have a call of that identity."""
        return self._who_has(identity) is not None

    async def forward_identical(self, passing: Passing, identity: bytes) -> bool:
        """Have the process answer that has a call of that identity: undelivered, or with its caller yet.

        Whether the caller of the first one has gone is seen there first, and waited for as among its own.
        """
        board = self.peers.board
        while (owner := self._who_has(identity)) is not None:
            reached = await self._forward(passing, owner, None)
            if reached in (Reached.ANSWERED, Reached.LEFT):
                return True
            self.offers.forget(identity, owner)
            if board is not None and reached is Reached.GONE:
                board.pass_over(owner)
            elif board is not None:
                return False
        return False

    def _who_has(self, identity: bytes) -> Owner | None:
        board = self.peers.board
        return self.offers.find(identity) or (board.find(identity) if board is not None else None)

    def note_call(self, identity: bytes, is_here: bool) -> None:
        """Let the neighbours see that a call of that identity is here, or that none is any more."""
        if self.peers.board is not None:
            self.peers.board.note(identity, is_here=is_here)

    def tell_offers(self, within_s: float) -> Callable[[bytes, bool], None]:
        """Return what tells the others of undelivered calls here."""

        def tell(identity: bytes, is_open: bool) -> None:
            number = self.peers.own.number
            self._tell_later(Offer(identity=identity, owner=number, within_s=within_s if is_open else 0.0))

        return tell

    async def learn_offers(self) -> None:
        """Learn what the others have that may be taken over: they told it before this process was there."""
        for line in (await self.peers.ask_all(WantsOffers())).values():
            owner = Owner.of(line.owner) if isinstance(line, Offered) else None
            if isinstance(line, Offered) and owner is not None:
                for identity in line.identities:
                    self.offers.note(identity, owner, within_s=line.within_s)

    # --- resumes

    def is_home(self, scope: Scope, cursor: str | None) -> bool:
        """Whether the standalone stream of a session lives here, or did when the cursor was given."""
        if self.peers.home_of(scope) == self.peers.own.place:
            return True
        try:
            owner = EventId.parse(cursor).stream.owner if cursor is not None else 0
        except (ForeignEventId, MalformedEventId, UnknownEventIdVersion):
            return False
        return owner == self.peers.own.number

    async def forward_get(
        self, passing: Passing, cursor: str | None, *, stops_foreign: bool
    ) -> Reached | None:
        """Have the owner of a stream answer its resume; None where this process decides.

        Only a cursor that is verified here leaves this process.  A standalone stream whose owner is gone, or
        that was asked for without a cursor that counts, is answered at its session's home.
        """
        try:
            event_id = EventId.parse(cursor) if cursor is not None else None
        except MalformedEventId:
            return None
        except (ForeignEventId, UnknownEventIdVersion):
            if stops_foreign:
                return None
            event_id = None
        if event_id is None or self.peers.keys.check(passing.scope, event_id) != KeyCheck.VERIFIED:
            if event_id is not None and event_id.stream.kind == "call":
                return None
            return await self._forward_home(_without_cursor(passing))
        stream = event_id.stream
        owner = Owner.of(stream.owner)
        if owner == self.peers.own:
            return None
        reached = Reached.GONE
        if owner is not None and owner.place != self.peers.own.place:
            reached = await self._forward(passing, owner, stream)
        if reached is Reached.GONE and stream.kind == "standalone":
            return await self._forward_home(passing)
        return reached

    async def _forward_home(self, passing: Passing) -> Reached | None:
        home = self.peers.home_of(passing.scope)
        if home == self.peers.own.place:
            return None
        return await self._forward(passing, home, None)

    async def forward(self, passing: Passing, place: Place) -> bool:
        """Have another process answer a POST; False if it was not reached, and nothing arrived there."""
        return await self._forward(passing, place, None) in (Reached.ANSWERED, Reached.LEFT)

    async def _forward(self, passing: Passing, to: Owner | Place, stream: StreamToken | None) -> Reached:
        request = Forwarded(
            via=self.peers.members.name,
            tenant=passing.identity.tenant,
            principal=passing.identity.principal,
            inbound=passing.inbound,
            body=passing.body,
        )
        return await self.peers.forward(
            request, passing.scope, to, passing.receive, passing.send, stream=stream
        )

    # --- what sessions are

    async def tell_opened(self, scope: Scope, facts: SessionFacts) -> None:
        """Tell of a new session: its home is waited for, so that no GET overtakes the news."""
        news = news_of(scope, facts, is_opened=True)
        if self.peers.members.keeps_sessions:
            # Nothing of the session can be answered by a process that does not know who has it.
            self.holders.note(scope, self.peers.own)
            await self.peers.ask_all(msgspec.structs.replace(news, holder=self.peers.own.number))
            return
        home = self.peers.home_of(scope)
        self._tell_later(news, (place for place in self.peers.members.others() if place != home))
        if home != self.peers.own.place:
            await self.peers.ask(home, news)

    def tell_facts(self, scope: Scope, facts: SessionFacts) -> None:
        self._tell_later(news_of(scope, facts))

    def tell_distrusted(self, scope: Scope) -> None:
        self._tell_later(SessionNews(scope=parts_of(scope), is_distrusted=True))

    def tell_left(self, scope: Scope, has_left: bool) -> None:
        """Tell that a session's client closed its standalone stream here, or is back."""
        self._tell_later(SessionNews(scope=parts_of(scope), has_left=has_left))

    def tell_wish(self, scope: Scope, body: bytes) -> None:
        """Tell the home of a session what its client wants to be told there."""
        home = self.peers.home_of(scope)
        if home != self.peers.own.place:
            self._tell_later(Wish(scope=parts_of(scope), body=body), (home,))

    def tell_tools(self, route: str, scope: Scope, answers: Iterable[bytes]) -> None:
        for answer in answers:
            self._tell_later(ToolsNews(route=route, scope=parts_of(scope), answer=answer))

    def _tell_later(self, request: Request, places: Iterable[Place] | None = None) -> None:
        if self.tasks is not None:
            told = None if places is None else list(places)
            self.tasks.start_soon(self.peers.ask_all, request, told)

    # --- what clients say

    async def who_runs(self, scope: Scope, request_id: RequestId) -> Place | None:
        """Return who knows the call that a client cancels."""
        return await self._find(RunsCall(scope=parts_of(scope), request_id=request_id), YES)

    async def who_runs_key(self, key: bytes) -> Place | None:
        """Return who on this host runs the call under a stored key."""
        members = self.peers.members
        places = [place for place in members.others() if members.is_own_replica(place)]
        return await self._find(RunsKey(key=key), YES, places)

    def home_of_key(self, key: bytes) -> Place | None:
        """Return where a key belongs among several hosts; None where that is here, or there is one host."""
        if not self.peers.members.has_replicas:
            return None
        home = choose_home((key.hex(),), self.peers.members.places())
        return home if home != self.peers.own.place else None

    async def who_asked(self, scope: Scope, request_id: RequestId) -> Place | str:
        """Say what becomes of an answer: whose it is, `SETTLED` if it comes too late, else `PASS`.

        Everybody notes that it has passed.
        """
        request = TakesAnswer(scope=parts_of(scope), request_id=request_id)
        said = await self.peers.ask_all(request)
        words = {place: line.word for place, line in said.items() if isinstance(line, Said)}
        for place, word in words.items():
            if word == MINE:
                return place
        return SETTLED if SETTLED in words.values() else PASS

    async def who_needs(self, scope: Scope) -> list[Place]:
        """Return who has calls that need their session upstream although it ends."""
        said = await self.peers.ask_all(NeedsSession(scope=parts_of(scope)))
        return [place for place, line in said.items() if isinstance(line, Said) and line.word == YES]

    async def tell_end(self, scope: Scope, *, but: Iterable[Place] = ()) -> None:
        """Tell everybody else that a session is over."""
        places = [place for place in self.peers.members.others() if place not in set(but)]
        await self.peers.ask_all(SessionEnd(scope=parts_of(scope)), places)

    def hold_end(
        self, upstream: Upstream, scope: Scope, needing: Iterable[Place], tasks: TaskGroup
    ) -> Upstream:
        """End a session at those who need it upstream; return an upstream that waits until none does."""
        request = SessionEnd(scope=parts_of(scope), holds=True)
        released = anyio.Event()

        async def wait() -> None:
            async with anyio.create_task_group() as waiting:
                for place in needing:
                    waiting.start_soon(self.peers.wait_for, place, request)
            released.set()

        tasks.start_soon(wait)
        return LateUpstream(upstream, released.wait)

    async def _find(self, request: Request, word: str, places: Iterable[Place] | None = None) -> Place | None:
        said = await self.peers.ask_all(request, places)
        for place, line in said.items():
            if isinstance(line, Said) and line.word == word:
                return place
        return None


class Holders:
    """Which process has a session, for at most `limit` sessions; the longest unused is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._owners: OrderedDict[Scope, Owner] = OrderedDict()

    def note(self, scope: Scope, owner: Owner) -> None:
        self._owners[scope] = owner
        if len(self._owners) > self._limit:
            self._owners.popitem(last=False)

    def find(self, scope: Scope) -> Owner | None:
        owner = self._owners.get(scope)
        if owner is not None:
            self._owners.move_to_end(scope)
        return owner


class LateUpstream:
    """An upstream that is called when something has happened."""

    def __init__(self, upstream: Upstream, wait: Callable[[], Awaitable[object]]) -> None:
        self._upstream = upstream
        self._wait = wait

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._upstream.running()

    @asynccontextmanager
    async def call(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        await self._wait()
        async with self._upstream.call(request) as answer:
            yield answer


class SignalUpstream:
    """Stands for the upstream of an end that another process sends: called, it only says so."""

    def __init__(self) -> None:
        self.called = anyio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def call(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        self.called.set()
        yield _NoAnswer()


class _NoAnswer:
    status = 200
    headers: Headers = ()

    async def deliver(self, take: Take) -> None:
        return

    async def receive(self) -> bytes:
        return b""


def news_of(scope: Scope, facts: SessionFacts, *, is_opened: bool = False) -> SessionNews:
    """Write what a process knows of a session."""
    return SessionNews(
        scope=parts_of(scope),
        is_opened=is_opened,
        trusted=tuple(facts.trusted),
        cors=dict(facts.cors),
        capabilities=_sorted(facts.capabilities),
        client_capabilities=_sorted(facts.client_capabilities),
    )


def learn_news(facts: SessionFacts, news: SessionNews) -> None:
    """Note what another process has seen."""
    if news.is_distrusted:
        facts.distrust()
    facts.trusted.update(list(news.trusted)[: max(0, 8 - len(facts.trusted))])
    for origin, headers in news.cors.items():
        if len(facts.cors) < 8:
            facts.cors[origin] = headers
    if news.capabilities is not None:
        facts.capabilities = frozenset(news.capabilities)
    if news.client_capabilities is not None:
        facts.client_capabilities = frozenset(news.client_capabilities)


def _sorted(names: frozenset[str] | None) -> tuple[str, ...] | None:
    return tuple(sorted(names)) if names is not None else None


def _without_cursor(passing: Passing) -> Passing:
    inbound = passing.inbound
    headers = tuple(field for field in inbound.headers if field[0] != b"last-event-id")
    return msgspec.structs.replace(
        passing, inbound=msgspec.structs.replace(inbound, cursor=None, headers=headers)
    )
