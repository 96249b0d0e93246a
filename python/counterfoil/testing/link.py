"""A TCP link between an HTTP/1.1 client and servers that breaks connections where a plan says so.

It carries bytes and changes none; what it knows of HTTP serves to choose a target and a cut for each request.
Tests (ours and our users') and the demo open it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream, TaskGroup

from counterfoil.testing.cuts import Cut, CutPoint
from counterfoil.testing.exchanges import Exchange, RequestSplitter

#: Says where the response to a request breaks; None lets it pass whole.
CutPlan = Callable[[Exchange], Cut | None]
#: Says which port of the target host a request goes to, as a balancer without affinity would; may wait first.
Route = Callable[[Exchange], Awaitable[int]]

_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
_PIECE = 65_536
_OPENING_BYTES = 2_048
_MESSAGE = b"data: {"


class CutMade(msgspec.Struct, frozen=True):
    """A cut that happened: the request it answered, and how many bytes of the response had passed."""

    exchange: Exchange
    cut: Cut
    passed: int


class Answered(msgspec.Struct, frozen=True):
    """When the response to a request began and ended, in seconds of the event loop's clock, and what passed.

    `opening` is how it began, `messages` how many events with JSON in them it had.
    """

    number: int
    begun_s: float
    ended_s: float
    opening: bytes = b""
    messages: int = 0


class Link:
    """A listening link; open one with `open_link`."""

    def __init__(self, port: int, route: Route, plan: CutPlan, host: str) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        #: May be replaced while the link runs; the next request sees the new one.
        self.route = route
        self.plan = plan
        self.exchanges: list[Exchange] = []
        self.cuts: list[CutMade] = []
        self.answered: list[Answered] = []
        self._host = host
        self._connections: set[_Connection] = set()

    async def cut_all(self) -> None:
        """Break every connection of the link now, by RST."""
        for connection in list(self._connections):
            await connection.break_off("rst")

    def _number(self, method: str, path: str, headers: dict[str, str], body: bytes, raw: bytes) -> Exchange:
        exchange = Exchange(len(self.exchanges) + 1, method, path, headers, body, raw)
        self.exchanges.append(exchange)
        return exchange

    async def _serve(self, client: SocketStream) -> None:
        connection = _Connection(self, client)
        self._connections.add(connection)
        try:
            async with client, anyio.create_task_group() as tasks:
                await connection.carry_requests(tasks)
                tasks.cancel_scope.cancel()
        except* _BROKEN:
            pass
        finally:
            self._connections.discard(connection)
            connection.note_end()
            await connection.close_upstream()


class _Connection:
    """One client connection and the server connection that answers its present request."""

    def __init__(self, link: Link, client: SocketStream) -> None:
        self._link = link
        self._client = client
        self._server: SocketStream | None = None
        self._server_port = 0
        self._exchange: Exchange | None = None
        self._point: CutPoint | None = None
        self._passed = 0
        self._begun_s = self._last_s = 0.0
        self._opening, self._tail, self._messages = b"", b"", 0
        self._noted = 0

    async def carry_requests(self, tasks: TaskGroup) -> None:
        splitter = RequestSplitter()
        with suppress(*_BROKEN):
            while True:
                for request in splitter.feed(await self._client.receive(_PIECE)):
                    await self._carry_request(self._link._number(*request), tasks)

    async def _carry_request(self, exchange: Exchange, tasks: TaskGroup) -> None:
        port = await self._link.route(exchange)
        cut = self._link.plan(exchange)
        self.note_end()
        self._exchange, self._passed, self._begun_s = exchange, 0, anyio.current_time()
        self._last_s = self._begun_s
        self._opening, self._tail, self._messages = b"", b"", 0
        self._point = CutPoint(cut) if cut is not None else None
        if self._server is None or port != self._server_port:
            await self.close_upstream()
            try:
                self._server = await anyio.connect_tcp(self._link._host, port)
            except OSError:
                await self.break_off("rst")
                return
            self._server_port = port
            tasks.start_soon(self._carry_answers, self._server)
        await self._server.send(exchange.raw)

    async def _carry_answers(self, server: SocketStream) -> None:
        try:
            while True:
                if not await self._carry_piece(await server.receive(_PIECE)):
                    return
        except _BROKEN:
            if server is self._server:
                await self._end_as_server_did()

    async def _carry_piece(self, data: bytes) -> bool:
        through = self._point.feed(data) if self._point is not None else None
        passing = data if through is None else data[:through]
        self._passed += len(passing)
        self._last_s = anyio.current_time()
        if passing:
            self._note_passed(passing)
            await self._client.send(passing)
        if through is None:
            return True
        await self._break_here()
        return False

    def _note_passed(self, data: bytes) -> None:
        if len(self._opening) < _OPENING_BYTES:
            self._opening += data[: _OPENING_BYTES - len(self._opening)]
        seen = self._tail + data
        self._messages += seen.count(_MESSAGE)
        self._tail = seen[-len(_MESSAGE) + 1 :]

    async def _end_as_server_did(self) -> None:
        if self._point is not None and self._point.cut.place == "after-last":
            await self._break_here()
        with suppress(*_BROKEN):
            await self._client.send_eof()
            await self._client.aclose()

    async def _break_here(self) -> None:
        assert self._exchange is not None
        assert self._point is not None
        self._link.cuts.append(CutMade(self._exchange, self._point.cut, self._passed))
        await self.break_off(self._point.cut.how)

    def note_end(self) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.number != self._noted:
            self._noted = exchange.number
            self._link.answered.append(
                Answered(exchange.number, self._begun_s, self._last_s, self._opening, self._messages)
            )

    async def break_off(self, how: str) -> None:
        for stream in (self._client, self._server):
            if stream is None:
                continue
            if how == "rst":
                reset_on_close(stream)
            with suppress(*_BROKEN):
                await stream.aclose()

    async def close_upstream(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            with anyio.CancelScope(shield=True), suppress(*_BROKEN):
                await server.aclose()


def reset_on_close(stream: SocketStream) -> None:
    """Make the close of a socket an RST."""
    raw = stream.extra(SocketAttribute.raw_socket)
    with suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _never(_exchange: Exchange) -> Cut | None:
    return None


@asynccontextmanager
async def open_link(
    target_port: int, *, plan: CutPlan = _never, route: Route | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Link]:
    """Open a link on a free loopback port to `target_port` (or wherever `route` sends a request).

    Leaving the block closes the listener and every connection.  Runs on trio and asyncio.
    """
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)

    async def straight(_exchange: Exchange) -> int:
        return target_port

    link = Link(port, route or straight, plan, host)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, link._serve)
        try:
            yield link
        finally:
            tasks.cancel_scope.cancel()
