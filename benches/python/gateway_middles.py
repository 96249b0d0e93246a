"""The other processes of the gateway's bench: `source`, `pump` or `stock`, each on a free port.

Prints `ready PORT` and ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import anyio
import httpx2
from counterfoil.programs.demo.processes import serve_until_stdin_closes

BURST = 16
DATA = "x" * 1_880
ENDLESS = httpx2.Timeout(5, read=None)


def note(number: int) -> bytes:
    message = {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "info", "data": DATA, "n": number, "sent": time.monotonic_ns()},
    }
    return b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n"


async def read_body(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def source(scope: Any, receive: Any, send: Any) -> None:
    """An MCP server that answers a call with as many events as it says.

    They come in bursts of 16, or with `pause_ms` one by one, so far apart.
    """
    if scope["type"] != "http":
        return
    call = json.loads(await read_body(receive) or b"{}")
    kind = b"text/event-stream" if call.get("method") == "tools/call" else b"application/json"
    headers = [(b"content-type", kind), (b"mcp-session-id", b"bench")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if call.get("method") != "tools/call":
        body = json.dumps({"jsonrpc": "2.0", "id": call.get("id"), "result": {}}).encode()
        await send({"type": "http.response.body", "body": body})
        return
    asked = call["params"].get("arguments", call["params"])
    wanted = {name: asked[name] for name in ("events", "pause_ms") if name in asked}
    await (send_apart if "pause_ms" in wanted else send_bursts)(send, **wanted)
    answer = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {}}).encode()
    await send({"type": "http.response.body", "body": b"data: " + answer + b"\r\n\r\n"})


async def send_bursts(send: Any, events: int) -> None:
    burst = b"".join(note(n) for n in range(BURST))
    for _ in range(events // BURST):
        await send({"type": "http.response.body", "body": burst, "more_body": True})
        # One burst, one arrival: without a pause the kernel would join them for everybody behind.
        await anyio.sleep(0.000_5)


async def send_apart(send: Any, events: int, pause_ms: float) -> None:
    for number in range(events):
        await anyio.sleep(pause_ms / 1_000)
        await send({"type": "http.response.body", "body": note(number), "more_body": True})


def make_pump(upstream: str) -> Any:
    """The least that a proxy can do: bytes in, bytes out."""
    client = httpx2.AsyncClient(timeout=ENDLESS)

    async def pump(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = await read_body(receive)
        async with client.stream("POST", upstream, content=body, headers=scope["headers"][:0]) as answer:
            headers = [(b"content-type", answer.headers["content-type"].encode()), (b"mcp-session-id", b"b")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for piece in answer.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    return pump


def make_stock(upstream: str) -> Any:
    """A proxy made of the SDK's parts: its SSE reader, its message model, an example store, sse-starlette."""
    from counterfoil.programs.demo.example_store import make_example_store
    from mcp_types import jsonrpc_message_adapter
    from sse_starlette import EventSourceResponse
    from starlette.responses import Response

    client = httpx2.AsyncClient(timeout=ENDLESS)
    store = make_example_store()

    async def stock(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = await read_body(receive)
        if b"tools/call" not in body:
            answer = await client.post(upstream, content=body)
            reply = Response(answer.content, headers={"mcp-session-id": "b"}, media_type="application/json")
            await reply(scope, receive, send)
            return

        async def events() -> Any:
            async with client.stream("POST", upstream, content=body) as answer:
                async for event in httpx2.EventSource(answer):
                    message = jsonrpc_message_adapter.validate_json(event.data)
                    event_id = await store.store_event("1", message)
                    data = message.model_dump_json(by_alias=True, exclude_none=True)
                    yield {"event": "message", "id": event_id, "data": data}

        await EventSourceResponse(events())(scope, receive, send)

    return stock


if __name__ == "__main__":
    kind = sys.argv[1]
    app = source if kind == "source" else {"pump": make_pump, "stock": make_stock}[kind](sys.argv[2])
    serve_until_stdin_closes(app)
