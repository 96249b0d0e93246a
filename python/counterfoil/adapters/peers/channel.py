"""One request to another process and its reply, over a Unix socket or TCP, on a connection that is kept.

A connection rests between two requests and is bounded in that.  One that turns out to have ended is replaced
where the request may be sent twice; any other request gets a connection of its own.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
import sniffio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSStream

from counterfoil.adapters.connections import Connection, connect_tcp, connect_unix
from counterfoil.adapters.peers.frames import FrameReader, Kind, Piece
from counterfoil.adapters.peers.wire import Head, Hold, Line, read_line
from counterfoil.errors import PeerAbsent, PeerBroken

#: A listener says at least once a second that it is there.
INTERIM_S = 1.0
#: How long it may be silent before its line.
SILENCE_S = 3.0
#: How long a connection rests before it is closed, and how many rest to one address.
REST_S = 30.0
MOST_AT_REST = 32
_LINE_BYTES = 256 << 10
_PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT
#: What a connect answers where the other end cannot be there.
_ABSENT = (errno.ENOENT, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOTSOCK)


class Address(msgspec.Struct, frozen=True):
    """Where a process listens: a Unix socket, or host and port."""

    path: str = ""
    host: str = ""
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether the kernel itself says that nobody is there any more."""
        return bool(self.path)


class Reply:
    """The reply of a peer: the line that decides something, and the body behind it."""

    def __init__(self, channel: Channel, line: Line) -> None:
        self._channel = channel
        self.line = line
        #: Whether all of it was read, so that the connection may carry another.
        self.is_whole = not isinstance(line, Head)

    async def receive(self, *, silence_s: float) -> Piece:
        """Return the next piece of the body, with which it may be whole; raises `PeerBroken`."""
        with anyio.move_on_after(silence_s):
            while (piece := await self._channel.piece()).end == piece.begin and not self.is_whole:
                kind, _ = await self._channel.frame()
                if kind not in (Kind.BODY, Kind.LAST):
                    raise PeerBroken("a peer sent something else than its answer's body")
                self.is_whole = self._channel.has_last
            self.is_whole = self._channel.has_last
            return piece
        raise PeerBroken("a peer fell silent")


class Channel:
    """One connection to a peer, on which one request runs at a time."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._frames = FrameReader(stream)

    @property
    def has_news(self) -> bool:
        """Whether something came while it rested: its end, or what nobody asked for."""
        below = self._stream.transport_stream if isinstance(self._stream, TLSStream) else self._stream
        if not self._frames.is_at_rest:
            return True
        if isinstance(below, Connection):
            return below.has_news
        try:
            below.extra(SocketAttribute.raw_socket).recv(1, _PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    async def ask(self, request: bytes, *, within_s: float) -> Reply:
        """Send the frame of a request, and wait for the line that decides something.

        Raises `PeerBroken`, after a silence too; `within_s` bounds the time to the first word.
        """
        try:
            await self._stream.send(request)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise PeerBroken("a peer closed the connection before it had the request") from error
        while True:
            with anyio.move_on_after(within_s) as scope:
                kind, payload = await self.frame()
            if scope.cancelled_caught:
                raise PeerSilent("a peer fell silent")
            if kind != Kind.LINE:
                raise PeerBroken("a peer sent something else than its line")
            line = read_line(payload)
            if not isinstance(line, Hold):
                return Reply(self, line)
            within_s = SILENCE_S

    async def frame(self) -> tuple[int, bytes]:
        """Return the next frame, a body's without what is in it; raises `PeerBroken`."""
        found = await self._frames.frame(max_bytes=_LINE_BYTES)
        if found is None:
            raise PeerBroken("a peer closed the connection in the middle of its reply")
        return found

    @property
    def has_last(self) -> bool:
        """Whether all of an answer's body was given out."""
        return self._frames.has_last

    async def piece(self) -> Piece:
        """Return more of a body's frame; none once it is given out."""
        return await self._frames.piece()

    async def aclose(self) -> None:
        """Close the connection, which cancels what runs at the other end."""
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._stream)


class PeerSilent(PeerBroken):
    """A peer took a request, and says nothing: it is not sent again."""


_Key = tuple[Address, ssl.SSLContext | None]


class Channels:
    """The connections to peers; none rests but while they are kept."""

    def __init__(self) -> None:
        self._resting: dict[_Key, deque[tuple[Channel, float]]] = {}
        self._keeps = False

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Keep connections while the block is open."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False
            for resting in self._resting.values():
                for channel, _ in resting:
                    await channel.aclose()
            self._resting.clear()

    @asynccontextmanager
    async def open(
        self,
        address: Address,
        make_request: Callable[[], bytes],
        *,
        repeats: bool,
        connect_s: float,
        within_s: float = SILENCE_S,
        tls: ssl.SSLContext | None = None,
    ) -> AsyncIterator[Reply]:
        """Send a request and wait for its line; leaving the block before all is read cancels it over there.

        One that `repeats` may be sent twice, so it may take a connection that has rested.  Raises
        `PeerAbsent` where nothing listens, `PeerBroken` for everything else.
        """
        key = address, tls
        channel = await self._take(key) if repeats else None
        reply: Reply | None = None
        try:
            if channel is not None:
                try:
                    reply = await channel.ask(make_request(), within_s=within_s)
                except PeerSilent:
                    raise
                except PeerBroken:  # it may have ended while it rested
                    await channel.aclose()
            if channel is None or reply is None:
                channel = Channel(await _connect(address, connect_s, tls))
                reply = await channel.ask(make_request(), within_s=within_s)
            yield reply
        finally:
            if channel is not None:
                if reply is not None and reply.is_whole:
                    await self._rest(key, channel)
                else:
                    await channel.aclose()

    async def _take(self, key: _Key) -> Channel | None:
        """Return the connection that has rested shortest, if it may still be used."""
        resting = self._resting.get(key)
        while resting:
            channel, since = resting.pop()
            if anyio.current_time() - since <= REST_S and not channel.has_news:
                return channel
            await channel.aclose()
        return None

    async def _rest(self, key: _Key, channel: Channel) -> None:
        now = anyio.current_time()
        resting = self._resting.setdefault(key, deque())
        if self._keeps and len(resting) < MOST_AT_REST and not channel.has_news:
            resting.append((channel, now))
        else:
            await channel.aclose()
        await self._close_old(now)

    async def _close_old(self, now: float) -> None:
        for key, resting in list(self._resting.items()):
            while resting and now - resting[0][1] > REST_S:
                await resting.popleft()[0].aclose()
            if not resting:
                del self._resting[key]


async def _connect(address: Address, connect_s: float, tls: ssl.SSLContext | None) -> ByteStream:
    try:
        with anyio.fail_after(connect_s):
            stream = await _connect_plain(address)
            if tls is None:
                return stream
            return await _wrap(stream, address.host, tls)
    except TimeoutError as error:
        raise PeerBroken("a peer does not take connections") from error
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        causes = [error, error.__cause__]
        if isinstance(error.__cause__, BaseExceptionGroup):
            causes += error.__cause__.exceptions
        if any(isinstance(cause, OSError) and cause.errno in _ABSENT for cause in causes):
            raise PeerAbsent("nothing listens at a peer's address") from error
        raise PeerBroken("no connection to a peer could be opened") from error


async def _connect_plain(address: Address) -> ByteStream:
    is_trio = sniffio.current_async_library() == "trio"
    if address.path:
        return await (anyio.connect_unix if is_trio else connect_unix)(address.path)
    return await (anyio.connect_tcp if is_trio else connect_tcp)(address.host, address.port)


async def _wrap(stream: ByteStream, host: str, tls: ssl.SSLContext) -> ByteStream:
    try:
        return await TLSStream.wrap(stream, hostname=host, ssl_context=tls, standard_compatible=False)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(stream)
        raise
