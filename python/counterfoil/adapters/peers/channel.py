"""One request to another process and its reply: HTTP/1.1 by h11 over a Unix socket or TCP, a connection each.

Connections are not kept: a peer that died in between could not be told from one that took the request.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.abc import ByteStream

from counterfoil.adapters.peers.wire import Hold, Line, read_line
from counterfoil.errors import PeerAbsent, PeerBroken

#: A listener says at least once a second that it is there.
INTERIM_S = 1.0
#: How long it may be silent before its head, and after it (streams beat every 15 s by default).
SILENCE_S = 3.0
_LINE_BYTES = 256 << 10
_PIECE_BYTES = 256 << 10
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
    """The reply of a peer: lines, and the body behind the last one."""

    def __init__(self, stream: ByteStream) -> None:
        import h11

        self._h11 = h11
        self._stream = stream
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=64 << 10)
        self._ahead = b""
        self._has_begun = False

    async def send(self, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        h11 = self._h11
        fields = [(b"host", b"peer"), (b"content-length", b"%d" % len(body)), *headers]
        head = self._parser.send(h11.Request(method="POST", target="/", headers=fields)) or b""
        data = self._parser.send(h11.Data(body)) or b""
        end = self._parser.send(h11.EndOfMessage()) or b""
        try:
            await self._stream.send(head + data + end)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise PeerBroken("a peer closed the connection before it had the request") from error

    async def line(self, *, within_s: float = SILENCE_S, silence_s: float = SILENCE_S) -> Line:
        """Return the next line that decides something; raises `PeerBroken` after a silence.

        `within_s` bounds the time to the first word.
        """
        while True:
            while b"\n" not in self._ahead:
                if len(self._ahead) > _LINE_BYTES:
                    raise PeerBroken("a peer's line has no end")
                piece = await self._receive_within(within_s)
                if not piece:
                    raise PeerBroken("a peer ended its reply before it had said anything")
                self._ahead += piece
            text, _, self._ahead = self._ahead.partition(b"\n")
            line = read_line(text)
            if not isinstance(line, Hold):
                return line
            within_s = silence_s

    async def receive(self, *, silence_s: float) -> bytes:
        """Return the next piece of the body, `b""` once it has ended; raises `PeerBroken`."""
        if self._ahead:
            piece, self._ahead = self._ahead, b""
            return piece
        return await self._receive_within(silence_s)

    async def _receive_within(self, seconds: float) -> bytes:
        with anyio.move_on_after(seconds) as scope:
            piece = await self._receive()
        if scope.cancelled_caught:
            raise PeerBroken("a peer fell silent")
        return piece

    async def _receive(self) -> bytes:
        h11 = self._h11
        try:
            while True:
                event = self._parser.next_event()
                if event is h11.NEED_DATA:
                    self._parser.receive_data(await self._read())
                elif isinstance(event, h11.Response):
                    if event.status_code != 200:
                        raise PeerBroken(f"a peer refused a request with status {event.status_code}")
                    self._has_begun = True
                elif isinstance(event, h11.Data):
                    if event.data:
                        return bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    return b""
                elif isinstance(event, h11.InformationalResponse):
                    continue
                else:
                    raise PeerBroken("a peer closed the connection in the middle of its reply")
        except h11.RemoteProtocolError as error:
            raise PeerBroken("a peer does not speak HTTP, or broke off") from error

    async def _read(self) -> bytes:
        try:
            return await self._stream.receive(_PIECE_BYTES)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise PeerBroken("a peer's connection broke") from error


@asynccontextmanager
async def open_reply(
    address: Address,
    body: bytes,
    *,
    headers: list[tuple[bytes, bytes]],
    connect_s: float,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Reply]:
    """Send one request; leaving the block closes the connection, which cancels what runs at the other end.

    Raises `PeerAbsent` where nothing listens, `PeerBroken` for everything else.
    """
    stream = await _connect(address, connect_s, tls)
    try:
        reply = Reply(stream)
        await reply.send(body, headers)
        yield reply
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(stream)


async def _connect(address: Address, connect_s: float, tls: ssl.SSLContext | None) -> ByteStream:
    try:
        with anyio.fail_after(connect_s):
            if address.path:
                return await anyio.connect_unix(address.path)
            if tls is None:
                return await anyio.connect_tcp(address.host, address.port)
            return await anyio.connect_tcp(
                address.host, address.port, ssl_context=tls, tls_standard_compatible=False
            )
    except TimeoutError as error:
        raise PeerBroken("a peer does not take connections") from error
    except OSError as error:
        causes = [error, error.__cause__]
        if isinstance(error.__cause__, BaseExceptionGroup):
            causes += error.__cause__.exceptions
        if any(isinstance(cause, OSError) and cause.errno in _ABSENT for cause in causes):
            raise PeerAbsent("nothing listens at a peer's address") from error
        raise PeerBroken("no connection to a peer could be opened") from error
