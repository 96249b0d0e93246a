"""What other processes of the gateway reach: connections on a listener that no client can.

It reads one request after another, hands each to the inbox, and says every second that it is still there.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import anyio
import anyio.lowlevel
import sniffio
from anyio.abc import ByteStream, SocketListener, TaskGroup
from anyio.streams.tls import TLSStream

from counterfoil.adapters.connections import accept
from counterfoil.adapters.gateway.wire.asgi import Message, Receive, Send
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.adapters.peers.channel import INTERIM_S
from counterfoil.adapters.peers.frames import (
    REFUSED,
    FrameReader,
    Kind,
    read_request,
    start_body,
    write_frame,
)
from counterfoil.adapters.peers.owners import Owner
from counterfoil.adapters.peers.seals import SealRefused, Seals
from counterfoil.adapters.peers.wire import (
    Envelope,
    Forwarded,
    Full,
    Gone,
    Head,
    Hold,
    Line,
    Request,
    read_envelope,
    write_line,
)
from counterfoil.errors import PeerBroken

_LOGGER = logging.getLogger("counterfoil.gateway")
#: How long a connection has for its first request, and how long it may rest: longer than peers let it.
_FIRST_S = 10.0
_REST_S = 60.0
_HANDSHAKE_S = 10.0
#: How long a refused connection has to read why.
_FAREWELL_S = 1.0
_ACCEPT_AGAIN_S = 0.1
#: Large requests that are read at once: whoever sends them has not shown a seal yet.
_LARGE_AT_ONCE = 64
#: A body of so much is not copied to be written in one piece.
_MOST_JOINED = 16 << 10
#: What an envelope adds to the body and the header fields of the request in it.
_ENVELOPE_BYTES = 128 << 10
_HOLD = write_frame(Kind.LINE, write_line(Hold()))
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class Inbox(Protocol):
    """What a gateway does for its peers."""

    async def answer_forwarded(self, request: Forwarded, receive: Receive, send: Send) -> None:
        """Answer a client's request in the place of the process that it reached; raises nothing."""

    async def take(self, request: Request) -> Line:
        """Take news, or reply to a question."""


class PeerCounts:
    """What peers asked of this process."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.open = 0


class PeerServer:
    """Takes requests of peers.  `seals` are checked; without them it must not listen on a network."""

    def __init__(
        self,
        inbox: Inbox,
        own: Owner,
        counts: PeerCounts,
        *,
        max_body_bytes: int,
        seals: Seals | None = None,
        at_once: int = 4_096,
    ) -> None:
        self._inbox = inbox
        self._own = own
        self._counts = counts
        self._max_bytes = max_body_bytes + _ENVELOPE_BYTES
        self._seals = seals
        self._at_once = at_once
        self._large = anyio.Semaphore(_LARGE_AT_ONCE)
        self._connections = 0
        self._is_stopping = False
        self._resting: set[anyio.CancelScope] = set()
        self._replies: set[_Reply] = set()

    @asynccontextmanager
    async def serving(
        self, listener: socket.socket, *, tls: ssl.SSLContext | None = None, grace_s: float
    ) -> AsyncIterator[None]:
        """Serve a listening socket while the block is open, and close it; what runs has `grace_s` to end."""
        running, taking = anyio.CancelScope(shield=True), anyio.CancelScope()

        async def serve() -> None:
            with running:
                async with anyio.create_task_group() as connections:
                    with taking:
                        connections.start_soon(self._say_it_is_here)
                        await self._take_connections(listener, tls, connections)

        with listener:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve)
                try:
                    yield
                finally:
                    self._is_stopping = True
                    running.deadline = anyio.current_time() + grace_s
                    for scope in (taking, *self._resting):
                        scope.cancel()

    async def _take_connections(
        self, listener: socket.socket, tls: ssl.SSLContext | None, connections: TaskGroup
    ) -> None:
        listener.setblocking(False)
        take = _accepting(listener)
        while True:
            try:
                stream = await take()
            except _BROKEN as error:  # too many files are open, or the connection is gone already
                _LOGGER.warning('{"event":"peer-not-accepted","why":"%s"}', type(error).__name__)
                await anyio.sleep(_ACCEPT_AGAIN_S)
                continue
            if self._connections >= 2 * self._at_once:
                await anyio.aclose_forcefully(stream)
                continue
            self._connections += 1
            connections.start_soon(self._serve, stream, tls)

    async def _say_it_is_here(self) -> None:
        """Say every second to whoever waits for a line that it may still come."""
        with anyio.CancelScope() as saying:
            self._resting.add(saying)
            async with anyio.create_task_group() as tasks:
                while True:
                    await anyio.sleep(INTERIM_S)
                    for reply in self._replies:
                        if reply.is_waited_for:
                            tasks.start_soon(reply.hold)

    async def _serve(self, stream: ByteStream, tls: ssl.SSLContext | None) -> None:
        try:
            if tls is not None:
                with anyio.fail_after(_HANDSHAKE_S):
                    stream = await TLSStream.wrap(
                        stream, ssl_context=tls, server_side=True, standard_compatible=False
                    )
            await self._answer_each(stream)
        except (TimeoutError, PeerBroken, *_BROKEN) as error:
            self._counts.refused["broken"] += 1
            _LOGGER.debug('{"event":"peer-broken","why":"%s"}', type(error).__name__)
        except Exception:
            _LOGGER.exception('{"event":"peer-failed"}')
        finally:
            self._connections -= 1
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    async def _answer_each(self, stream: ByteStream) -> None:
        frames, within_s = FrameReader(stream, self._large), _FIRST_S
        while not self._is_stopping and await self._answer_next(stream, frames, within_s):
            within_s = _REST_S
        await anyio.lowlevel.checkpoint()  # what was written leaves at the end of the loop's turn

    async def _answer_next(self, stream: ByteStream, frames: FrameReader, within_s: float) -> bool:
        """Answer the next request; return whether the connection can carry another."""
        found = await self._next_frame(frames, within_s)
        if found is None:
            return False
        envelope = self._read(*found)
        if isinstance(envelope, int):
            await _refuse(stream, envelope)
            return False
        reply = _Reply(stream, frames)
        await self._answer(envelope, reply)
        return reply.is_whole

    async def _next_frame(self, frames: FrameReader, within_s: float) -> tuple[int, bytes] | None:
        """Return the next frame; None once there is none, or none came in time."""
        with anyio.move_on_after(within_s) as resting:
            self._resting.add(resting)
            try:
                return await frames.frame(max_bytes=self._max_bytes)
            except PeerBroken:
                return 0, b""  # no frame of ours
            finally:
                self._resting.discard(resting)
        return None

    def _read(self, kind: int, payload: bytes) -> Envelope | int:
        """Return a request, or the status that refuses it."""
        seal, body = read_request(payload) if kind == Kind.REQUEST else (None, b"")
        try:
            if self._seals is not None:
                self._seals.check(seal, body)
            return read_envelope(body)
        except SealRefused as refused:
            self._counts.refused[refused.why] += 1
            return 401
        except PeerBroken as refusal:
            self._counts.refused["unreadable"] += 1
            _LOGGER.warning('{"event":"peer-refused","why":"%s"}', type(refusal).__name__)
            return 400

    async def _answer(self, envelope: Envelope, reply: _Reply) -> None:
        own = self._own
        if (envelope.replica, envelope.worker) != (own.place.replica, own.place.worker) or (
            envelope.incarnation not in (None, own.incarnation)
        ):
            await reply.say(Gone())
            return
        if self._counts.open >= self._at_once:
            await reply.say(Full())
            return
        self._counts.requests[type(envelope.request).__name__] += 1
        self._counts.open += 1
        self._replies.add(reply)
        try:
            if isinstance(envelope.request, Forwarded):
                await self._inbox.answer_forwarded(envelope.request, reply.receive, reply.send)
                if not reply.is_decided:
                    await reply.say(Gone())  # it does not run any more, or not yet
            else:
                await self._reply(envelope.request, reply)
        finally:
            self._counts.open -= 1
            self._replies.discard(reply)

    async def _reply(self, request: Request, reply: _Reply) -> None:
        said: Line | None = None

        async def take() -> None:
            nonlocal said
            said = await self._inbox.take(request)

        if await run_while_present(reply.receive, take) and said is not None:
            await reply.say(said)


class _Reply:
    """One reply, to which nothing was written yet, or its line, or all of it."""

    def __init__(self, stream: ByteStream, frames: FrameReader) -> None:
        self._stream = stream
        self._frames = frames
        self._sending = anyio.Lock(fast_acquire=True)
        #: A line that leaves with what follows it.
        self._head = b""
        self.is_decided = False
        self.is_whole = False

    @property
    def is_waited_for(self) -> bool:
        """Whether the asker has no line yet."""
        return not self.is_decided or bool(self._head)

    async def receive(self) -> Message:
        """ASGI's `receive` for the part that answers, behind the body: waits for the asker to leave."""
        await self._frames.wait_end()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """ASGI's `send` for the part that answers: its head becomes a line, and leaves with what follows."""
        if message["type"] == "http.response.start":
            headers = tuple((bytes(name), bytes(value)) for name, value in message["headers"])
            self.is_decided = True
            self._head = write_frame(Kind.LINE, write_line(Head(message["status"], headers)))
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        await self._write(start_body(body, is_last=not more) if body or not more else b"", body)
        self.is_whole = not more

    async def say(self, line: Line) -> None:
        """Give a reply that is its line."""
        self.is_decided = True
        await self._write(write_frame(Kind.LINE, write_line(line)))
        self.is_whole = True

    async def hold(self) -> None:
        """Say that the line may still come, or send the one that waits for what follows it."""
        if not self.is_waited_for:
            return
        with anyio.move_on_after(INTERIM_S, shield=True) as scope:
            await self._write(b"" if self.is_decided else _HOLD)
        if scope.cancelled_caught:  # half of it may have been sent
            await anyio.aclose_forcefully(self._stream)

    async def _write(self, start: bytes, body: bytes = b"") -> None:
        """Write, to whoever is still there: that somebody has left is told by `receive` alone."""
        async with self._sending:
            start, self._head = self._head + start, b""
            with suppress(*_BROKEN):
                if len(body) < _MOST_JOINED:
                    await self._stream.send(start + body)
                else:
                    await self._stream.send(start)
                    await self._stream.send(body)


def _accepting(listener: socket.socket) -> Callable[[], Awaitable[ByteStream]]:
    """Return what takes the next connection."""
    if sniffio.current_async_library() != "trio":
        return lambda: accept(listener)

    made: list[SocketListener] = []

    async def take() -> ByteStream:
        if not made:
            made.append(await SocketListener.from_socket(listener))
        return await made[0].accept()

    return take


async def _refuse(stream: ByteStream, status: int) -> None:
    """Say why, and wait until it was read: a connection that is closed at once may lose its last words."""
    with suppress(*_BROKEN), anyio.move_on_after(_FAREWELL_S):
        await stream.send(REFUSED[status])
        if not isinstance(stream, TLSStream):
            await stream.send_eof()
        while True:
            await stream.receive()
