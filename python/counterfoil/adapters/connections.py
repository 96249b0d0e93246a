"""Byte streams under asyncio that cost little per piece: no timer, no call to the poller, one send a turn.

Anyio stops reading after every piece and begins anew for the next; on a stream of small events that is a
quarter of a relay's work.  The upstream's HTTP and the channel between workers are made of them.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

import anyio
import anyio.abc
import anyio.lowlevel

from counterfoil.adapters.joined_writes import JoinedWrites

#: Bytes that may wait to be read; at it the connection is read no further until they are.
MOST_WAITING = 256 << 10
#: How long an address has before the next one is tried beside it.
ATTEMPT_S = 0.25
#: When a Unix socket whose queue is full is tried again.
_QUEUE_FULL_S = 0.005


async def connect_tcp(host: str, port: int, *, local_address: str | None = None) -> Connection:
    """Connect to the first of a host's addresses that answers; raises `OSError`, which may be of several."""
    return await _connection_of(await _open_socket(host, port, local_address))


async def connect_unix(path: str) -> Connection:
    """Connect to a Unix socket, and wait while its queue is full; raises `OSError`."""
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        own.setblocking(False)
        while True:
            try:
                own.connect(path)
                break
            except BlockingIOError:  # no sign of progress, as it is for TCP
                await anyio.sleep(_QUEUE_FULL_S)
    except BaseException:
        own.close()
        raise
    return await _connection_of(own)


async def accept(listener: socket.socket) -> Connection:
    """Return the next connection of a listening socket that does not block; raises `OSError`."""
    own, _ = await asyncio.get_running_loop().sock_accept(listener)
    if own.family != socket.AF_UNIX:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _, connection = await asyncio.get_running_loop().connect_accepted_socket(Connection, own)
    return connection


async def _connection_of(own: socket.socket) -> Connection:
    try:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, sock=own)
    except BaseException:
        own.close()
        raise
    return connection


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
            if len(errors) == 1:
                raise errors[0]
            raise OSError(f"no address of {host!r} could be connected to") from ExceptionGroup(
                "tried", errors
            )
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
