"""An HTTP/1.1 server that does what a script says, byte by byte: answers, lies, silence, broken connections.

For tests of clients, ours and our users'.  It keeps no state of its own; the script decides everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream

from counterfoil.testing.exchanges import Exchange, RequestSplitter
from counterfoil.testing.link import reset_on_close

_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)
_PIECE = 65_536


class Wire:
    """The answer to one request, written by the script."""

    def __init__(self, socket: SocketStream) -> None:
        self._socket = socket
        self._is_chunked = False
        self.is_over = False
        #: Whether the connection serves another request after this answer.
        self.is_kept = False

    async def head(self, status: int, headers: Mapping[str, str], *, is_chunked: bool = True) -> None:
        """Write the status line and the header fields, with a chunked body unless told otherwise."""
        self._is_chunked = is_chunked and "content-length" not in headers
        fields = dict(headers)
        if self._is_chunked:
            fields["transfer-encoding"] = "chunked"
        lines = [f"HTTP/1.1 {status} scripted", *(f"{name}: {value}" for name, value in fields.items())]
        await self._socket.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def stream(self, headers: Mapping[str, str] | None = None) -> None:
        """Write the head of an event stream."""
        await self.head(200, {"content-type": "text/event-stream", **(headers or {})})

    async def raw(self, body: bytes) -> None:
        """Write bytes of the body, as one chunk."""
        if self._is_chunked and body:
            body = b"%x\r\n%s\r\n" % (len(body), body)
        await self._socket.send(body)

    async def event(
        self,
        data: object = None,
        *,
        event_id: str | None = None,
        retry_ms: int | None = None,
        name: str | None = None,
    ) -> None:
        """Write an event; `data` is encoded as JSON, None is an empty data line (an echo)."""
        lines = [f"event: {name}"] if name is not None else []
        lines += [f"id: {event_id}"] if event_id is not None else []
        lines += [f"retry: {retry_ms}"] if retry_ms is not None else []
        lines.append("data: " + ("" if data is None else msgspec.json.encode(data).decode()))
        await self.raw(("\n".join(lines) + "\n\n").encode())

    async def json(
        self, message: object, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with one JSON body, whole."""
        body = msgspec.json.encode(message)
        fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self.head(status, fields)
        await self.raw(body)
        self.is_over = self.is_kept = True

    async def refuse(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Answer with a status and no body."""
        await self.head(status, {"content-length": "0", **(headers or {})})
        self.is_over = self.is_kept = True

    async def end(self) -> None:
        """End the body as HTTP wants it."""
        if self._is_chunked:
            await self._socket.send(b"0\r\n\r\n")
            self.is_kept = True
        self.is_over = True

    async def cut(self, *, reset: bool = False) -> None:
        """Break the connection here."""
        if reset:
            reset_on_close(self._socket)
        self.is_over, self.is_kept = True, False
        await self._socket.aclose()


#: Answers one request.  An answer that is not over when it returns stays open, and silent.
Script = Callable[[Exchange, Wire], Awaitable[None]]


class ScriptedServer:
    """A listening server; open one with `open_scripted`."""

    def __init__(self, port: int, script: Script) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/mcp"
        #: May be replaced while the server runs; the next request sees the new one.
        self.script = script
        self.exchanges: list[Exchange] = []
        #: Connections that clients hold now.
        self.open_connections = 0

    async def _serve(self, socket: SocketStream) -> None:
        self.open_connections += 1
        try:
            async with socket:
                await self._answer_all(socket)
        except _BROKEN:
            return
        finally:
            self.open_connections -= 1

    async def _answer_all(self, socket: SocketStream) -> None:
        splitter = RequestSplitter()
        while True:
            for request in splitter.feed(await socket.receive(_PIECE)):
                if not await self._answer(socket, Exchange(len(self.exchanges) + 1, *request)):
                    return

    async def _answer(self, socket: SocketStream, exchange: Exchange) -> bool:
        self.exchanges.append(exchange)
        wire = Wire(socket)
        await self.script(exchange, wire)
        if not wire.is_over:
            await socket.receive(1)  # until the client goes
        return wire.is_kept


@asynccontextmanager
async def open_scripted(script: Script) -> AsyncIterator[ScriptedServer]:
    """Open a scripted server on a free loopback port; leaving the block breaks every connection."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server = ScriptedServer(listener.extra(SocketAttribute.local_port), script)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server._serve)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()
