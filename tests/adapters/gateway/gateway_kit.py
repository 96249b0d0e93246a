"""What tests of the gateway share: a gateway with all it said, a scripted upstream, a raw client.

The scripted upstream is a real ASGI server behind a real socket; it sends what no SDK can be made to send.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.serving import serving
from counterfoil.limits import Limits
from counterfoil.model.verdicts import New, ResumeVerdict
from counterfoil.native import KeyRing, SseEvent, SseParser
from counterfoil.stores.replay.store import ReplayStore

KEYS = KeyRing.from_secret(bytes(32), made_s=1)
ACCEPT = {"accept": "application/json, text/event-stream"}
REVISION = "2025-11-25"
Script = Callable[["Exchange"], Awaitable[None]]


class Behind:
    """A gateway in front of an upstream, with everything it said."""

    def __init__(self, upstream: Any, **settings: Any) -> None:
        limits = settings.pop("limits", Limits())
        keys = settings.pop("keys", KEYS)
        scope = settings.pop("scope", None)
        ledger = settings.pop("ledger", None)
        self.upstream = upstream
        self.verdicts: list[ResumeVerdict] = []
        self.store = ReplayStore(limits=limits, keys=keys)
        self.gateway = Gateway(
            upstream=upstream,
            store=self.store,
            limits=limits,
            scope=scope,
            ledger=ledger,
            settings=GatewaySettings(**{"retry_ms": 50, **settings}),
            on_verdict=self.verdicts.append,
        )

    @property
    def resumed(self) -> list[ResumeVerdict]:
        return [verdict for verdict in self.verdicts if not isinstance(verdict, New)]


class Exchange:
    """One request at the scripted upstream, and the means to answer it."""

    def __init__(self, scope: Any, body: bytes, receive: Any, send: Any) -> None:
        self.method: str = scope["method"]
        self.headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.body = body
        self.message: Any = json.loads(body) if body else None
        self.receive = receive
        self._send = send
        self.gone = False

    async def start(self, status: int = 200, kind: str = "text/event-stream", **fields: str) -> None:
        headers = [(b"content-type", kind.encode())]
        headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def event(self, message: Any, *, event_id: str | None = None) -> None:
        data = message if isinstance(message, str) else json.dumps(message)
        head = f"id: {event_id}\n" if event_id is not None else ""
        await self.send(f"{head}data: {data}\n\n".encode())

    async def note(self, number: int, **options: Any) -> None:
        await self.event(note(number), **options)

    async def result(self, value: Any = "done", **options: Any) -> None:
        await self.event({"jsonrpc": "2.0", "id": self.message["id"], "result": value}, **options)

    async def json(self, message: Any, status: int = 200, **fields: str) -> None:
        await self.start(status, "application/json", **fields)
        await self.send(json.dumps(message).encode(), more=False)

    async def end(self) -> None:
        await self.send(b"", more=False)

    async def wait_gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.gone = True


def note(number: int) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": 1, "progress": number},
    }


class Upstream:
    """An MCP server of which the test scripts calls and standalone streams; it counts what it was asked."""

    def __init__(self, on_call: Script | None = None, on_get: Script | None = None, **declared: Any) -> None:
        self.on_call = on_call
        self.on_get = on_get
        self.declared = declared
        self.seen: list[Exchange] = []
        self.sessions = 0
        #: Fields of the answer to a preflight.
        self.cors: dict[str, str] = {}

    def count(self, method: str, rpc: str | None = None) -> int:
        return sum(x.method == method and (rpc is None or x.message.get("method") == rpc) for x in self.seen)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": f"{message['type']}.complete"})
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        exchange = Exchange(scope, body, receive, send)
        self.seen.append(exchange)
        await self._answer(exchange)

    async def _answer(self, exchange: Exchange) -> None:
        method = exchange.message.get("method") if isinstance(exchange.message, dict) else None
        if exchange.method == "GET" and self.on_get is not None:
            await self.on_get(exchange)
        elif exchange.method == "GET":
            await exchange.json({}, 405, allow="POST")
        elif exchange.method in ("DELETE", "HEAD", "OPTIONS"):
            await exchange.json({}, **self.cors)
        elif method == "initialize":
            self.sessions += 1
            result = {"protocolVersion": REVISION, "capabilities": self.declared, "serverInfo": {}}
            answer = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": result}
            await exchange.json(answer, mcp_session_id=f"session-{self.sessions}")
        elif method is None or method.startswith("notifications/"):
            await exchange.start(202, "text/plain")
            await exchange.end()
        elif self.on_call is not None:
            await self.on_call(exchange)


class Raw:
    """A client that speaks HTTP and knows no more; `url` is the gateway's, or a link's."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http = http
        self.url = f"{url}/mcp"
        self.fields: dict[str, str] = {**ACCEPT, "mcp-protocol-version": REVISION}

    async def initialize(self, capabilities: dict[str, Any] | None = None) -> None:
        params = {
            "protocolVersion": REVISION,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "r", "version": "1"},
        }
        answer = await self.post("initialize", params, request_id=0)
        self.fields["mcp-session-id"] = answer.headers["mcp-session-id"]

    def message(self, method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        return {name: value for name, value in message.items() if value is not None}

    async def post(
        self, method: str, params: Any = None, request_id: Any = 1, **fields: str
    ) -> httpx2.Response:
        message = self.message(method, params, request_id)
        return await self.http.post(self.url, json=message, headers=self._with(fields))

    @asynccontextmanager
    async def call(self, request_id: Any = 1, **fields: str) -> AsyncIterator[Stream]:
        # Equal calls would be one call made again: an indeterminate one is told to the next.
        message = self.message("tools/call", {"name": "t", "arguments": {"of": request_id}}, request_id)
        sent = self.http.stream("POST", self.url, json=message, headers=self._with(fields))
        async with sent as answer, reading(answer) as stream:
            yield stream

    @asynccontextmanager
    async def get(self, cursor: str | None = None, **fields: str) -> AsyncIterator[Stream]:
        headers = self._with(fields) | ({"last-event-id": cursor} if cursor is not None else {})
        async with self.http.stream("GET", self.url, headers=headers) as answer, reading(answer) as stream:
            yield stream

    def _with(self, fields: dict[str, str]) -> dict[str, str]:
        return self.fields | {name.replace("_", "-"): value for name, value in fields.items()}


@asynccontextmanager
async def reading(answer: httpx2.Response) -> AsyncIterator[Stream]:
    stream = Stream(answer)
    try:
        yield stream
    finally:
        await stream.close()


class Stream:
    """The body of an answer, event by event."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self.status = answer.status_code
        self.claim = answer.headers.get("stream-continuity", "")
        self.comments: list[str] = []
        self.events: list[SseEvent[str]] = []
        self.raw = b""
        self._parser = SseParser(comments=True)
        self._pieces = answer.aiter_raw()
        self._waiting: list[SseEvent[str]] = []
        self.ended = False

    async def next(self) -> SseEvent[str]:
        """Return the next event, an echo included; fails at the end of the stream."""
        while not self._waiting:
            assert await self._read(), f"the stream ended: {self.raw!r}"
        return self._waiting.pop(0)

    async def message(self) -> Any:
        """Return the next event with data, decoded."""
        while not (event := await self.next()).data:
            pass
        return json.loads(event.data)

    async def rest(self) -> list[Any]:
        """Read to the end; return every message."""
        while await self._read():
            pass
        return [json.loads(event.data) for event in self._waiting if event.data]

    async def _read(self) -> bool:
        try:
            async for piece in self._pieces:
                self.raw += piece
                for item in self._parser.feed(piece):
                    if isinstance(item, SseEvent):
                        self._waiting.append(item)
                        self.events.append(item)
                    elif hasattr(item, "text"):
                        self.comments.append(item.text)
                return True
        except httpx2.HTTPError:
            pass
        self.ended = True
        return False

    async def close(self) -> None:
        # As in the gateway's own upstream leg: nested generators of httpx2 end by an exception from within.
        with anyio.CancelScope() as scope:
            scope.cancel()
            async for _ in self._pieces:
                pass


@asynccontextmanager
async def scripted(upstream: Upstream, **settings: Any) -> AsyncIterator[tuple[Raw, Behind]]:
    """Serve a scripted upstream and a gateway in front of it; yield a raw client with a session."""
    async with serving(upstream) as port:
        behind = Behind(f"http://127.0.0.1:{port}/mcp", **settings)
        async with serving(behind.gateway) as own, httpx2.AsyncClient(timeout=20) as http:
            raw = Raw(http, f"http://127.0.0.1:{own}")
            await raw.initialize()
            yield raw, behind


def in_band(message: Any) -> dict[str, Any]:
    """Return our evidence in an in-band error."""
    return dict(message["error"]["data"]["io.counterfoil"])


async def until(holds: Any) -> None:
    for _ in range(500):
        if holds():
            return
        await anyio.sleep(0.01)
    raise AssertionError("it did not come true")
