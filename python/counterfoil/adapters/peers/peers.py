"""This process among the others of its gateway: forwards, asks, tells, and listens.

Every way out is bounded in time and in number; a peer that says nothing is never waited for longer.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager

import anyio
import msgspec

from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.adapters.peers.call_board import CallBoard
from counterfoil.adapters.peers.carrying import AnswerCut, Reached, carry_answer
from counterfoil.adapters.peers.channel import SILENCE_S, Channels, Reply
from counterfoil.adapters.peers.checking import StreamCheck
from counterfoil.adapters.peers.frames import write_request
from counterfoil.adapters.peers.listener import Inbox, PeerCounts, PeerServer
from counterfoil.adapters.peers.members import Members, Replica
from counterfoil.adapters.peers.owners import Owner, Place, choose_home
from counterfoil.adapters.peers.seals import Seals
from counterfoil.adapters.peers.tls import ServerTls
from counterfoil.adapters.peers.wire import (
    Envelope,
    Forwarded,
    Line,
    Request,
    TakesAnswer,
    parts_of,
    write_envelope,
)
from counterfoil.adapters.serving import listen_unix
from counterfoil.errors import ConfigError, PeerAbsent, PeerBroken, PeerError
from counterfoil.native import KeyRing, Scope, StreamToken

_LOGGER = logging.getLogger("counterfoil.gateway")
_PAUSE_S = 0.1
#: How long what runs for peers may go on when this process ends.
_END_S = 0.2
_LINGER_STEP_S = 0.02


class PeerPace(msgspec.Struct, frozen=True, kw_only=True):
    """How patient this process is with others, and how much it takes of them."""

    hold_s: float = 4.0
    """How long a peer that is not reached is tried."""
    ask_s: float = 1.0
    """How long the reply to a question is waited for."""
    stream_silence_s: float = 35.0
    """How long a forwarded stream may be silent: more than two beats."""
    linger_s: float = 0.0
    """How long a process that drains waits for calls that clients read through others."""
    forwards_at_once: int = 2_048
    questions_at_once: int = 256


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """How other hosts reach this process, and where they are looked up.

    `listener` takes their connections.  `find` returns who the other replicas are now; it is asked every
    `every_s`, so that they may come and go.
    """

    listener: socket.socket
    tls: ServerTls | None = None
    find: Callable[[], Awaitable[Mapping[str, Replica]]] | None = None
    every_s: float = 2.0


class Peers:
    """The other processes.  `running()` listens for them; asking and telling needs no listener."""

    def __init__(
        self,
        members: Members,
        keys: KeyRing,
        *,
        pace: PeerPace | None = None,
        network: Network | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._network = network
        self.members = members
        self.keys = keys
        self.pace = pace or PeerPace()
        self.seals = Seals(keys, clock)
        self.counts: Counter[str] = Counter()
        self.taken = PeerCounts()
        self._asking = anyio.Semaphore(self.pace.questions_at_once)
        #: The calls of this host's processes, while this one runs, where any of them may run any call.
        self.board: CallBoard | None = None
        self._channels = Channels()
        self._forwards = 0
        self._drains_since = 0.0

    @property
    def own(self) -> Owner:
        return self.members.own

    def home_of(self, scope: Scope) -> Place:
        """Return where the standalone stream of a session lives."""
        return choose_home(parts_of(scope), self.members.places())

    # --- listening

    @asynccontextmanager
    async def running(self, inbox: Inbox, *, max_body_bytes: int) -> AsyncIterator[None]:
        """Listen on this life's socket, and for other hosts, while the block is open."""
        own = self.own
        listener = listen_unix(self.members.directory.socket_of(own.place.worker, own.incarnation))
        self.members.directory.remove_others(own.place.worker, own.incarnation)

        def server(seals: Seals | None) -> PeerServer:
            return PeerServer(inbox, own, self.taken, max_body_bytes=max_body_bytes, seals=seals)

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(server(None).serving(listener, grace_s=_END_S))
            if self._network is not None:
                network = self._network
                tls = network.tls.context() if network.tls is not None else None
                sealed = server(self.seals).serving(network.listener, tls=tls, grace_s=_END_S)
                await stack.enter_async_context(sealed)
                tasks = await stack.enter_async_context(anyio.create_task_group())
                stack.callback(tasks.cancel_scope.cancel)
                tasks.start_soon(self._look_up, network)
            with self._seen_by_neighbours():
                async with self._channels.keeping():
                    yield

    @contextmanager
    def _seen_by_neighbours(self) -> Iterator[None]:
        if not self.members.shares_calls:
            yield
            return
        board = self.board = CallBoard(self.members.directory, self.own)
        try:
            yield
        finally:
            self.board = None
            board.close()

    def note_drain(self) -> None:
        """Note that this process drains from now on."""
        self._drains_since = anyio.current_time()

    async def linger(self, has_calls: Callable[[], bool]) -> None:
        """Wait, `linger_s` from the beginning of the drain at most, until nothing here is waited for.

        A call whose client has gone is read through another process when that client comes back.
        """
        until = self._drains_since + self.pace.linger_s
        while (has_calls() or self.taken.open) and anyio.current_time() < until:  # noqa: ASYNC110 no bell
            await anyio.sleep(_LINGER_STEP_S)

    async def _look_up(self, network: Network) -> None:
        """Follow who the other replicas are; what cannot be looked up stays as it was."""
        while network.find is not None:
            try:
                self.members.set_replicas(await network.find())
            except (OSError, ConfigError) as error:
                self.counts["lookup-failed"] += 1
                _LOGGER.warning('{"event":"peers-unknown","why":"%s"}', type(error).__name__)
            await anyio.sleep(network.every_s)

    # --- forwarding

    async def forward(
        self,
        request: Forwarded,
        scope: Scope,
        to: Owner | Place,
        receive: Receive,
        send: Send,
        *,
        stream: StreamToken | None = None,
    ) -> Reached:
        """Have another process answer a request; raises `AnswerCut` when its answer broke off.

        A GET is tried again until `hold_s` is over; anything else that may have arrived raises `PeerBroken`.
        """
        if self._forwards >= self.pace.forwards_at_once:
            self.counts["full"] += 1
            return Reached.UNREACHABLE
        reached = Reached.LEFT

        def note_head() -> None:
            nonlocal reached
            reached = Reached.ANSWERED  # a client may leave as soon as it has everything

        async def carry() -> None:
            nonlocal reached
            reached = await self._carry(request, scope, to, send, stream, note_head)

        self._forwards += 1
        try:
            await run_while_present(receive, carry)
        except AnswerCut:
            self.counts["cut"] += 1
            raise
        finally:
            self._forwards -= 1
        self.counts[reached.name.lower()] += 1
        return reached

    async def _carry(
        self,
        request: Forwarded,
        scope: Scope,
        to: Owner | Place,
        send: Send,
        stream: StreamToken | None,
        on_head: Callable[[], None],
    ) -> Reached:
        began = anyio.current_time()
        is_get = request.inbound.method == "GET"
        while True:
            left_s = began + self.pace.hold_s - anyio.current_time()
            try:
                async with self._open(
                    request,
                    to,
                    repeats=is_get,
                    connect_s=max(0.05, left_s),
                    within_s=max(0.05, min(left_s, SILENCE_S)),
                ) as reply:
                    return await carry_answer(
                        reply,
                        send,
                        silence_s=self.pace.stream_silence_s,
                        resumes=is_get,
                        make_check=lambda: StreamCheck(
                            self.keys, scope, str(stream) if stream is not None else None
                        ),
                        on_head=on_head,
                    )
            except PeerAbsent:
                if isinstance(to, Owner) and self.members.is_own_replica(to.place):
                    return Reached.GONE
            except PeerBroken:
                if not is_get:
                    raise
            if anyio.current_time() + _PAUSE_S - began >= self.pace.hold_s:
                return Reached.UNREACHABLE
            await anyio.sleep(_PAUSE_S)

    # --- asking and telling

    async def ask(self, place: Place, request: Request) -> Line | None:
        """Return what a process replies, or None if it does not in time."""
        try:
            with anyio.move_on_after(self.pace.ask_s):
                repeats = not isinstance(request, TakesAnswer)  # asked twice it says something else
                async with self._asking, self._open(request, place, repeats=repeats) as reply:
                    return reply.line
        except PeerError:
            pass
        self.counts["unanswered"] += 1
        return None

    async def wait_for(self, place: Place, request: Request) -> None:
        """Wait for a reply that may take long; returns too when whoever owes it is gone."""
        try:
            async with self._open(request, place):
                return
        except PeerError:
            return

    async def ask_all(self, request: Request, places: Iterable[Place] | None = None) -> dict[Place, Line]:
        """Ask every other process at once; those that do not reply in time are left out."""
        said: dict[Place, Line] = {}

        async def ask(place: Place) -> None:
            line = await self.ask(place, request)
            if line is not None:
                said[place] = line

        async with anyio.create_task_group() as tasks:
            for place in self.members.others() if places is None else places:
                tasks.start_soon(ask, place)
        return said

    def _open(
        self,
        request: Request,
        to: Owner | Place,
        *,
        repeats: bool = True,
        connect_s: float | None = None,
        within_s: float = SILENCE_S,
    ) -> AbstractAsyncContextManager[Reply]:
        """Send a request and wait for its line; raises `PeerError`."""
        place, incarnation = (to.place, to.incarnation) if isinstance(to, Owner) else (to, None)
        address = self.members.address_of(place, incarnation)
        if address is None:
            if self.members.is_own_replica(place):
                raise PeerAbsent("no process has that place now")
            raise PeerBroken("no such replica is known here")
        body = write_envelope(
            Envelope(replica=place.replica, worker=place.worker, incarnation=incarnation, request=request)
        )

        def make() -> bytes:  # each seal passes once
            return write_request(b"" if address.is_local else self.seals.make(body), body)

        return self._channels.open(
            address,
            make,
            repeats=repeats,
            connect_s=self.pace.ask_s if connect_s is None else connect_s,
            within_s=within_s,
            tls=self.members.tls_of(place),
        )
