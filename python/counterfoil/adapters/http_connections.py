"""Connections for httpx2's pool under asyncio that cost little per piece: no timer, no call to the poller.

Anyio stops reading after every piece and begins anew for the next, and httpcore2 opens a scope for a time-out
that nobody asked for; on a stream of small events that is a quarter of a relay's work.  The HTTP transport
makes them; on trio it takes httpcore2's own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, cast

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.streams.tls
import httpcore2
from anyio.streams.tls import TLSAttribute, TLSStream

from counterfoil.adapters.joined_writes import JoinedWrites

#: Bytes that may wait to be read; at it the connection is read no further until they are.
MOST_WAITING = 256 << 10
#: How long an address has before the next one is tried beside it.
ATTEMPT_S = 0.25


async def connect(
    host: str,
    port: int,
    *,
    timeout: float | None = None,
    local_address: str | None = None,
    socket_options: Iterable[Any] | None = None,
) -> NetworkStream:
    """Open a TCP connection; raises httpcore2's `ConnectError` and `ConnectTimeout`."""
    with _errors(httpcore2.ConnectError, httpcore2.ConnectTimeout), anyio.fail_after(timeout):
        own = await _open_socket(host, port, local_address)
        transport, connection = await asyncio.get_running_loop().create_connection(Connection, sock=own)
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
    return NetworkStream(connection, connection)


async def _open_socket(host: str, port: int, local_address: str | None) -> socket.socket:
    """Connect to the first of a host's addresses that answers (RFC 8305, in short).

    Asyncio's own race leaves the winner open where it is cancelled at the moment of the win.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    won: list[socket.socket] = []
    errors: list[OSError] = []

    async def attempt(family: int, protocol: int, address: Any, failed: anyio.Event) -> None:
        try:
            own = socket.socket(family, socket.SOCK_STREAM, protocol)
            try:
                own.setblocking(False)
                if local_address is not None:
                    own.bind((local_address, 0))
                await loop.sock_connect(own, address)
            except BaseException:
                own.close()
                raise
        except OSError as error:
            errors.append(error)
            failed.set()
        else:
            won.append(own)
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            for family, _, protocol, _, address in _interleave(found):
                failed = anyio.Event()
                tasks.start_soon(attempt, family, protocol, address, failed)
                with anyio.move_on_after(ATTEMPT_S):
                    await failed.wait()
        if not won:
            raise errors[0] if len(errors) == 1 else OSError(f"no address of {host!r} could be connected to")
    except BaseException:
        for own in won:
            own.close()
        raise
    for late in won[1:]:
        late.close()
    return won[0]


_Found = tuple[int, int, int, str, Any]


def _interleave(found: Sequence[_Found]) -> list[_Found]:
    """The families in turn, that of the first address first."""
    first = [one for one in found if one[0] == found[0][0]]
    second = [one for one in found if one[0] != found[0][0]]
    pairs = zip_longest(first, second)
    return [one for pair in pairs for one in pair if one is not None]


class Connection(asyncio.Protocol, anyio.abc.ByteStream):
    """One TCP connection: read all the time into a bounded store of pieces, from which one task reads."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._has_ended = False
        self._is_closed = False
        self._broken: Exception | None = None
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._may_write = True

    @property
    def has_news(self) -> bool:
        """Whether something waits to be read, an end included: a connection that rests has none."""
        return bool(self._pieces) or self._has_ended

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """See `anyio.abc.ByteReceiveStream.receive`; what a cancelled wait was for is not lost."""
        while not self._pieces:
            if self._is_closed:
                raise anyio.ClosedResourceError
            if self._broken is not None:
                raise anyio.BrokenResourceError from self._broken
            if self._has_ended:
                raise anyio.EndOfStream
            self._reading = asyncio.get_running_loop().create_future()
            try:
                await self._reading
            finally:
                self._reading = None
        piece = self._pieces.popleft()
        if len(piece) > max_bytes:
            self._pieces.appendleft(piece[max_bytes:])
            piece = piece[:max_bytes]
        self._waiting_bytes -= len(piece)
        if self._transport is not None and self._waiting_bytes < MOST_WAITING:
            self._transport.resume_reading()
        return piece

    async def send(self, item: bytes) -> None:
        """See `anyio.abc.ByteSendStream.send`."""
        while True:
            if self._is_closed:
                raise anyio.ClosedResourceError
            if self._transport is None or self._transport.is_closing():
                raise anyio.BrokenResourceError from self._broken
            if self._may_write:
                break
            self._writing = asyncio.get_running_loop().create_future()
            try:
                await self._writing
            finally:
                self._writing = None
        self._transport.write(item)

    async def send_eof(self) -> None:
        """See `anyio.abc.ByteStream.send_eof`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    async def aclose(self) -> None:
        """Give the connection up, with what was not sent yet; a reader gets `ClosedResourceError`."""
        self._is_closed = True
        _wake(self._reading)
        _wake(self._writing)
        if self._transport is not None:
            self._transport.abort()
        await anyio.lowlevel.checkpoint()  # the transport closes its socket in a call of the loop

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The raw socket, for whoever wraps this stream."""
        return {anyio.abc.SocketAttribute.raw_socket: lambda: self.extra_info("socket")}

    def extra_info(self, name: str) -> Any:
        """Return what asyncio knows of its transport."""
        return self._transport.get_extra_info(name) if self._transport is not None else None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A request's head and its body are two writes for httpcore2, and one send for the kernel.
        self._transport = cast(asyncio.Transport, JoinedWrites(cast(asyncio.Transport, transport)))

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= MOST_WAITING and self._transport is not None:
            self._transport.pause_reading()
        _wake(self._reading)

    def eof_received(self) -> bool:
        self._has_ended = True
        _wake(self._reading)
        return True  # what is being written may still go out

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._has_ended:
            self._has_ended, self._broken = True, exc
        _wake(self._reading)
        _wake(self._writing)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        _wake(self._writing)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class NetworkStream(httpcore2.AsyncNetworkStream):
    """A connection as httpcore2's pool takes it, in the clear or behind TLS."""

    def __init__(self, connection: Connection, stream: anyio.abc.ByteStream) -> None:
        self._connection = connection
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the next piece, nothing at the end; raises `ReadError` and `ReadTimeout`."""
        try:
            if timeout is None:
                return await self._stream.receive(max_bytes)
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore2.ReadTimeout(str(error)) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore2.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of it; raises `WriteError` and `WriteTimeout`."""
        if buffer:
            with _errors(httpcore2.WriteError, httpcore2.WriteTimeout), anyio.fail_after(timeout):
                await self._stream.send(buffer)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> NetworkStream:
        """Go on behind TLS; raises `ConnectError` and `ConnectTimeout`, with the connection closed."""
        try:
            with _errors(httpcore2.ConnectError, httpcore2.ConnectTimeout), anyio.fail_after(timeout):
                stream = await TLSStream.wrap(
                    self._stream,
                    ssl_context=ssl_context,
                    hostname=server_hostname,
                    standard_compatible=False,
                    server_side=False,
                )
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise
        return NetworkStream(self._connection, stream)

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore2 asks for: the addresses, the socket, TLS, and whether there is news."""
        match info:
            case "is_readable":
                return self._connection.has_news
            case "ssl_object":
                return self._stream.extra(TLSAttribute.ssl_object, None)
            case "client_addr":
                return self._connection.extra_info("sockname")
            case "server_addr":
                return self._connection.extra_info("peername")
            case "socket":
                return self._connection.extra_info("socket")
            case _:
                return None


@contextmanager
def _errors(broken: type[Exception], late: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
        raise broken(str(error)) from error
