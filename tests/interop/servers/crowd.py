"""An upstream for crowds and extremes: thousands of sessions and open calls at little cost, and too much.

`quick` is answered at once with notes of a given size; `hold` tells its first note, and the rest with its
answer at the next call of `release`; `huge` answers in one event of `size` bytes, `json` in a whole answer,
and `endless` in a line without an end.  Runs as a child process of a test (`serving.py`).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from serving import serve


class Crowd:
    """An MCP server with nothing behind it."""

    def __init__(self) -> None:
        self._sessions = 0
        self._released = asyncio.Event()

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
        await self._answer(json.loads(body) if body else {}, receive, send)

    async def _answer(self, message: dict[str, Any], receive: Any, send: Any) -> None:
        method = message.get("method")
        if method == "initialize":
            self._sessions += 1
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
            await _start(send, 200, "application/json", session=f"crowd-{self._sessions}")
            await _send(send, _encode({"id": message["id"], "result": result}), last=True)
        elif method == "tools/call":
            tool, arguments = message["params"]["name"], message["params"]["arguments"]
            await _start(send, 200, "application/json" if tool == "json" else "text/event-stream")
            if tool in ("huge", "json", "endless"):
                await _overdo(message["id"], tool, arguments, receive, send)
            else:
                await self._call(message["id"], tool, arguments, send)
        else:
            await _start(send, 202, "text/plain")
            await _send(send, b"", last=True)

    async def _call(self, request_id: Any, tool: str, arguments: dict[str, Any], send: Any) -> None:
        notes = [_event(_note(number, arguments)) for number in range(1, arguments.get("notes", 0) + 1)]
        if tool == "hold":
            await _send(send, notes.pop(0))
            await self._released.wait()
        elif tool == "release":
            self._released.set()
            self._released = asyncio.Event()
        result = {"content": [{"type": "text", "text": f"receipt {arguments.get('key')}"}]}
        await _send(send, b"".join(notes) + _event({"id": request_id, "result": result}), last=True)


async def _overdo(request_id: Any, tool: str, arguments: dict[str, Any], receive: Any, send: Any) -> None:
    """Send one message of `size` bytes, piece by piece, as long as somebody is there."""
    gone = asyncio.create_task(receive())
    head, _, tail = _encode({"id": request_id, "result": {"text": "?"}}).partition(b"?")
    await _send(send, head if tool == "json" else b"data: " + head)
    left = arguments["size"]
    while (left > 0 or tool == "endless") and not gone.done():
        await _send(send, b"x" * 65_536)
        await asyncio.sleep(0)
        left -= 65_536
    await _send(send, tail + b"\n\n", last=True)
    gone.cancel()


def _note(number: int, arguments: dict[str, Any]) -> dict[str, Any]:
    text = f"{arguments['key']} " + "x" * arguments.get("size", 0)
    params = {"progressToken": 1, "progress": number, "message": text}
    return {"method": "notifications/progress", "params": params}


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def _event(message: dict[str, Any]) -> bytes:
    return b"data: " + _encode(message) + b"\n\n"


async def _start(send: Any, status: int, kind: str, *, session: str | None = None) -> None:
    headers = [(b"content-type", kind.encode())]
    if session is not None:
        headers.append((b"mcp-session-id", session.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send(send: Any, data: bytes, *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": not last})


if __name__ == "__main__":
    serve(Crowd())
