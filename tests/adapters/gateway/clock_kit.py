"""Clocks that jump: in either library time passes only where everybody waits, and then at once.

Nothing here may use a socket or a thread: what is waited for has to be in the loop.
"""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import trio.testing


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: where the loop would, its time jumps to what it waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self.now_s += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def jumping_backend(name: str) -> tuple[str, dict[str, Any]]:
    """Return what the fixture `anyio_backend` gives for tests on such a clock."""
    if name == "trio":
        return name, {"clock": trio.testing.MockClock(autojump_threshold=0)}
    return name, {"loop_factory": _JumpingLoop}


class Sent:
    """What an app sent for one request, with the time of each piece."""

    def __init__(self) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_open = anyio.Event()
        self.is_complete = anyio.Event()
        self._gone = anyio.Event()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.is_open.set()
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        if message.get("body"):
            self.pieces.append((anyio.current_time(), message["body"]))
        if not message.get("more_body"):
            self.is_complete.set()

    def leave(self) -> None:
        """The client goes away."""
        self._gone.set()

    async def wait_gone(self) -> None:
        await self._gone.wait()

    def time_of(self, text: bytes) -> float:
        """When the first piece with `text` was sent."""
        return next(at for at, piece in self.pieces if text in piece)

    def beats(self) -> list[float]:
        return [at for at, piece in self.pieces if b" beat " in piece]


@asynccontextmanager
async def asked(app: Any, method: str, message: Any = None, **fields: str) -> AsyncIterator[Sent]:
    """Send one request to `app` in this process; its answer goes on while the block is open."""
    body = json.dumps(message).encode() if message is not None else b""
    headers = {"host": "localhost", "accept": "application/json, text/event-stream"} | {
        name.replace("_", "-"): value for name, value in fields.items()
    }
    scope = {
        "type": "http",
        "method": method,
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
        "scheme": "http",
    }
    sent = Sent()
    is_read = False

    async def receive() -> Any:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}
        await sent.wait_gone()
        return {"type": "http.disconnect"}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope, receive, sent.send)
        yield sent
        sent.leave()
