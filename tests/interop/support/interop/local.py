"""MCP servers of whichever SDK and FastMCP are installed here, driven in this process, piece by piece.

The same tests run in several environments: what differs between the majors is in this file.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from counterfoil.adapters.gateway.upstream.upstream_app import AppUpstream
from counterfoil.adapters.gateway.wire.asgi import ASGIApp
from counterfoil.adapters.gateway.wire.upstream_port import (
    InboundLeg,
    UpstreamAnswer,
    UpstreamRequest,
    header_of,
)
from counterfoil.native import SseEvent, SseParser
from pydantic import AnyUrl

HAS_MAJOR_2 = importlib.util.find_spec("mcp_types") is not None
#: What is installed here to build servers with.
KITS = ("sdk", "fastmcp") if importlib.util.find_spec("fastmcp") else ("sdk",)
REVISION = "2025-11-25"
LEG = InboundLeg(host=b"127.0.0.1:80", client=("127.0.0.1", 4711))


class Gate:
    """Where the tools below stop until a test lets them go on."""

    def __init__(self) -> None:
        self.reached: dict[str, anyio.Event] = {}
        self.opened: dict[str, anyio.Event] = {}

    def of(self, key: str) -> tuple[anyio.Event, anyio.Event]:
        return self.reached.setdefault(key, anyio.Event()), self.opened.setdefault(key, anyio.Event())

    def open_all(self) -> None:
        for opened in self.opened.values():
            opened.set()


def make_server(kit: str, gate: Gate | None = None) -> Any:
    """Return a server object of `kit`, its tools stopping at `gate`."""
    server, context = _make_server(kit, None, None)
    _add_tools(server, context, gate or Gate())
    return server


def make_app(
    kit: str, gate: Gate | None = None, *, event_store: Any = None, retry_interval: int | None = None
) -> ASGIApp:
    """Return the app of a server of `kit`, its tools stopping at `gate`."""
    server, context = _make_server(kit, event_store, retry_interval)
    _add_tools(server, context, gate or Gate())
    if kit == "fastmcp":
        app: ASGIApp = server.http_app(event_store=event_store, retry_interval=retry_interval)
    elif HAS_MAJOR_2:
        app = server.streamable_http_app(event_store=event_store, retry_interval=retry_interval)
    else:
        app = server.streamable_http_app()
    return app


def _make_server(kit: str, event_store: Any, retry_interval: int | None) -> tuple[Any, Any]:
    if kit == "fastmcp":
        import fastmcp

        return fastmcp.FastMCP("local"), fastmcp.Context
    if HAS_MAJOR_2:
        from mcp.server import mcpserver

        return mcpserver.MCPServer("local"), mcpserver.Context
    from mcp.server import fastmcp as major1

    server = major1.FastMCP("local", event_store=event_store, retry_interval=retry_interval)
    return server, major1.Context


def _add_tools(server: Any, context: Any, gate: Gate) -> None:
    async def order(key: str, before: int, after: int, ctx: Any) -> str:
        """Send `before` notes, stop at the gate of this key, send `after` more, then the receipt."""
        reached, opened = gate.of(key)
        for step in range(1, before + 1):
            await ctx.report_progress(step, before + after, f"{key} {step}")
        reached.set()
        await opened.wait()
        for step in range(before + 1, before + after + 1):
            await ctx.report_progress(step, before + after, f"{key} {step}")
        return f"receipt {key}"

    async def announce(count: int, ctx: Any) -> str:
        """Send `count` notes on the session's standalone stream."""
        for number in range(1, count + 1):
            uri = f"notice:///{number}"
            await ctx.session.send_resource_updated(uri if HAS_MAJOR_2 else AnyUrl(uri))
        return "announced"

    for tool in (order, announce):
        tool.__annotations__["ctx"] = context
        server.tool()(tool)


class Answer:
    """An open answer whose events are read one by one."""

    def __init__(self, answer: UpstreamAnswer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.has_ended = False
        self._answer = answer
        self._parser = SseParser()
        self._events: list[SseEvent[str]] = []

    async def next(self) -> SseEvent[str] | None:
        """Return the next event, or None at the end."""
        while not self._events:
            piece = await self._answer.receive()
            if not piece:
                self.has_ended = True
                return None
            self._events += self._parser.feed(piece)
        return self._events.pop(0)

    async def take(self, count: int) -> list[SseEvent[str]]:
        events = [await self.next() for _ in range(count)]
        return [event for event in events if event is not None]

    async def until_answer(self) -> list[SseEvent[str]]:
        """Return the events up to the first result or error, or up to the end."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
            if event.data and ("result" in (message := json.loads(event.data)) or "error" in message):
                break
        return events


class Client:
    """A client that does only what it is told; `session` names its MCP session."""

    def __init__(self, upstream: AppUpstream) -> None:
        self._upstream = upstream
        self.session: str | None = None
        self.revision = REVISION
        #: Further fields of every request.
        self.fields: list[tuple[bytes, bytes]] = []

    @asynccontextmanager
    async def post(self, message: dict[str, Any]) -> AsyncIterator[Answer]:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        headers = [(b"content-type", b"application/json"), *self._headers()]
        async with self._upstream.call(UpstreamRequest("POST", b"/mcp", tuple(headers), body, LEG)) as answer:
            yield Answer(answer)

    @asynccontextmanager
    async def get(self, last_event_id: str | None = None) -> AsyncIterator[Answer]:
        headers = self._headers()
        if last_event_id is not None:
            headers.append((b"last-event-id", last_event_id.encode()))
        request = UpstreamRequest("GET", b"/mcp", tuple(headers), leg=LEG)
        async with self._upstream.call(request) as answer:
            yield Answer(answer)

    async def delete(self) -> int:
        request = UpstreamRequest("DELETE", b"/mcp", tuple(self._headers()), leg=LEG)
        async with self._upstream.call(request) as answer:
            return answer.status

    async def initialize(self, request_id: int | str = 0) -> None:
        params = {
            "protocolVersion": self.revision,
            "capabilities": {},
            "clientInfo": {"name": "local", "version": "1"},
        }
        async with self.post({"id": request_id, "method": "initialize", "params": params}) as answer:
            assert answer.status == 200, answer.status
            session = header_of(answer.headers, b"mcp-session-id")
            assert session is not None
            await answer.until_answer()
        self.session = session.decode()
        async with self.post({"method": "notifications/initialized"}) as answer:
            assert answer.status == 202, answer.status

    def call(self, request_id: int | str, key: str, *, before: int = 2, after: int = 2) -> dict[str, Any]:
        arguments = {"key": key, "before": before, "after": after}
        params = {"name": "order", "arguments": arguments, "_meta": {"progressToken": key}}
        return {"id": request_id, "method": "tools/call", "params": params}

    def announce(self, request_id: int | str, count: int) -> dict[str, Any]:
        params = {"name": "announce", "arguments": {"count": count}}
        return {"id": request_id, "method": "tools/call", "params": params}

    def _headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"accept", b"application/json, text/event-stream"), *self.fields]
        if self.session is not None:
            headers += [
                (b"mcp-session-id", self.session.encode()),
                (b"mcp-protocol-version", self.revision.encode()),
            ]
        return headers


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds; half a minute, so that a busy machine breaks no test."""
    with anyio.fail_after(30):
        while not condition():
            await anyio.lowlevel.checkpoint()


class Watched:
    """An app, and how many requests it is busy with: a server notices a cut some time after it was made."""

    def __init__(self, app: ASGIApp) -> None:
        self.busy = 0
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.busy += scope["type"] == "http"
        try:
            await self._app(scope, receive, send)
        finally:
            self.busy -= scope["type"] == "http"


@asynccontextmanager
async def run_app(app: ASGIApp) -> AsyncIterator[AppUpstream]:
    """Run an app's lifespan, and call it in this process."""
    upstream = AppUpstream(app)
    async with upstream.running():
        yield upstream
