"""A client as thin as the wire: one HTTP/1.1 request on one connection, its answer read event by event."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import h11
import msgspec
from anyio.abc import SocketAttribute, SocketStream
from counterfoil import SseEvent, SseParser

REVISION = "2025-11-25"
_ACCEPT = "application/json, text/event-stream"


class Answer:
    """The answer to one request, head read; its events come as they arrive."""

    def __init__(self, stream: SocketStream, connection: h11.Connection, head: h11.Response) -> None:
        self.status: int = head.status_code
        self.headers = {name.decode().lower(): value.decode() for name, value in head.headers}
        self._stream = stream
        self._connection = connection
        self._parser = SseParser()
        self._events: list[SseEvent] = []

    async def next_piece(self) -> bytes | None:
        """Return the next bytes of the body, or None at its end or where the connection broke."""
        event = await _next_event(self._stream, self._connection)
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def body(self) -> bytes:
        whole = b""
        while (piece := await self.next_piece()) is not None:
            whole += piece
        return whole

    async def next_event(self) -> SseEvent | None:
        """Return the next event of the stream, or None at its end or where the connection broke."""
        while not self._events:
            piece = await self.next_piece()
            if piece is None:
                return None
            self._events.extend(self._parser.feed(piece))
        return self._events.pop(0)

    async def receive_raw(self, at_most: int) -> bytes:
        """Take bytes off the connection as they are; nothing else may be read after it."""
        try:
            return await self._stream.receive(at_most)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return b""

    def reset(self) -> None:
        """Let the connection end by RST when it is closed."""
        raw = self._stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _next_event(stream: SocketStream, connection: h11.Connection) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        try:
            connection.receive_data(await stream.receive(65_536))
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return None
    return event


@asynccontextmanager
async def send_request(
    port: int, method: str, *, headers: Mapping[str, str] | None = None, message: Any = None
) -> AsyncIterator[Answer]:
    """Send one request to `/mcp`; the connection is closed with the block."""
    body = b"" if message is None else json.dumps(message).encode()
    fields = {
        "host": f"127.0.0.1:{port}",
        "accept": _ACCEPT if method == "POST" else "text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": REVISION,
        "content-length": str(len(body)),
        **(headers or {}),
    }
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(method=method, target="/mcp", headers=list(fields.items()))
    raw = connection.send(request) or b""
    raw += connection.send(h11.Data(data=body)) or b""
    raw += connection.send(h11.EndOfMessage()) or b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(raw)
        head = await _next_event(stream, connection)
        assert isinstance(head, h11.Response), head
        yield Answer(stream, connection, head)


class WireSession(msgspec.Struct, frozen=True):
    """An MCP session opened over the wire."""

    port: int
    headers: dict[str, str]

    def call(self, request_id: int | str, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool with progress under its request ID; give the answer as a context manager."""
        message = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": {"progressToken": request_id}},
        }
        return send_request(self.port, "POST", headers=self.headers, message=message)

    def listen(self) -> Any:
        """Open the session's standalone stream."""
        return send_request(self.port, "GET", headers=self.headers)

    def resume(self, event_id: str) -> Any:
        return send_request(self.port, "GET", headers={**self.headers, "last-event-id": event_id})


async def open_session(port: int, headers: Mapping[str, str] | None = None) -> WireSession:
    """Do the handshake; `headers` go with every request of the session."""
    fields = dict(headers or {})
    hello = {
        "jsonrpc": "2.0",
        "id": "hello",
        "method": "initialize",
        "params": {
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": {"name": "wire", "version": "1"},
        },
    }
    async with send_request(port, "POST", headers=fields, message=hello) as answer:
        assert answer.status == 200, await answer.body()
        await answer.body()
        fields["mcp-session-id"] = answer.headers["mcp-session-id"]
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with send_request(port, "POST", headers=fields, message=ready) as answer:
        assert answer.status == 202
    return WireSession(port, fields)
