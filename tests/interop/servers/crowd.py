"""An upstream for crowds: thousands of sessions and open calls at little cost, let go all at once.

`quick` is answered at once with notes of a given size; `hold` tells its first note, and the rest with its
answer once `release` was called.  Runs as a child process of a test (`serving.py`).
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
        await self._answer(json.loads(body) if body else {}, send)

    async def _answer(self, message: dict[str, Any], send: Any) -> None:
        method = message.get("method")
        if method == "initialize":
            self._sessions += 1
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
            await _start(send, 200, "application/json", session=f"crowd-{self._sessions}")
            await _send(send, _encode({"id": message["id"], "result": result}), last=True)
        elif method == "tools/call":
            await _start(send, 200, "text/event-stream")
            await self._call(message["id"], message["params"]["name"], message["params"]["arguments"], send)
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
        result = {"content": [{"type": "text", "text": f"receipt {arguments.get('key')}"}]}
        await _send(send, b"".join(notes) + _event({"id": request_id, "result": result}), last=True)


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
