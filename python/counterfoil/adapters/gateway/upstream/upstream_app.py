"""An upstream that is an ASGI app in this process, called through the same port as a URL.

It learns of a disconnect as from a server: `receive` says so, `send` goes nowhere, nothing is cancelled.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote_to_bytes

import anyio
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.wire.asgi import ASGIApp, Message
from counterfoil.adapters.gateway.wire.upstream_port import Headers, Take, UpstreamRequest, finish
from counterfoil.errors import UpstreamBroken

_LOGGER = logging.getLogger("counterfoil.gateway")

#: How long an app may take to shut down.
_STOP_S = 30.0

_FAILURE = b"Internal Server Error"


class AppUpstream:
    """Calls `app` for every request, and runs its lifespan while the gateway runs."""

    name = "app"

    def __init__(self, app: ASGIApp, *, root_path: str = "") -> None:
        self._app = app
        self._root_path = root_path
        self._tasks: TaskGroup | None = None
        self._state: dict[str, Any] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            lifespan = _Lifespan(self._app, self._state)
            try:
                await lifespan.start(tasks)
                self._tasks = tasks
                yield
            finally:
                self._tasks = None
                await lifespan.stop()
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def call(self, request: UpstreamRequest) -> AsyncIterator[_AppAnswer]:
        if self._tasks is None:
            raise RuntimeError("the upstream is not running: open the gateway's `running()` first")
        answer = _AppAnswer(request.body)
        self._tasks.start_soon(answer.run, self._app, self._scope_of(request))
        try:
            await answer.wait_head()
            yield answer
        finally:
            answer.disconnect()

    def _scope_of(self, request: UpstreamRequest) -> dict[str, Any]:
        path, _, query = request.target.partition(b"?")
        leg, headers = request.leg, list(request.headers)
        if leg.host is not None:
            headers.append((b"host", leg.host))
        if request.body:
            headers.append((b"content-length", str(len(request.body)).encode()))
        prefix = leg.root_path + self._root_path
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": leg.scheme,
            "path": prefix + unquote_to_bytes(path).decode("utf-8", "replace"),
            "raw_path": prefix.encode() + path,
            "root_path": leg.root_path,
            "query_string": query,
            "headers": headers,
            "client": leg.client,
            "server": leg.server,
            "state": self._state.copy(),
        }


class _AppAnswer:
    """One call of the app, which waits with each piece until it is taken: it never runs ahead.

    Once its answer is delivered, its own task takes each piece to its end: no other task has to be woken.
    """

    def __init__(self, body: bytes) -> None:
        self.status = 0
        self.headers: Headers = ()
        self._body: bytes | None = body
        self._head = anyio.Event()
        self._gone = anyio.Event()
        self._is_gone = False
        self._is_complete = False
        #: No piece comes any more.
        self._over = anyio.Event()
        #: Pieces that wait to be received, each with what lets its sender go on.
        self._waiting: deque[tuple[bytes, anyio.Event]] = deque()
        self._arrived = anyio.Event()
        self._take: Take | None = None
        self._take_failure: Exception | None = None

    async def run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        try:
            try:
                await app(scope, self._receive, self._send)
            except Exception:  # whatever the app raises is its answer's end, as behind any server
                _LOGGER.exception("the app raised while it answered a request")
            if not self.status and not self._is_gone:
                await self._answer_failure()
        finally:
            self._head.set()
            self._note_over()

    async def _answer_failure(self) -> None:
        """Answer in the place of an app that raised, or returned, before it began to: as servers do."""
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await self._send({"type": "http.response.start", "status": 500, "headers": headers})
        await self._send({"type": "http.response.body", "body": _FAILURE})

    async def wait_head(self) -> None:
        await self._head.wait()
        if not self.status:
            raise UpstreamBroken("the upstream app ended without an answer")

    async def receive(self) -> bytes:
        while not self._waiting:
            if self._over.is_set():
                self._check_end()
                return b""
            self._arrived = anyio.Event()
            await self._arrived.wait()
        piece, taken = self._waiting.popleft()
        taken.set()
        return piece

    async def deliver(self, take: Take) -> None:
        """Have the app's own task take the pieces, once those are taken that wait already."""
        while self._waiting:
            piece, taken = self._waiting.popleft()
            await finish(take(piece))
            taken.set()  # not before: it would be one piece ahead
        self._take = take
        try:
            await self._over.wait()
        finally:
            self._take = None
        if self._take_failure is not None:
            raise self._take_failure
        self._check_end()

    def _check_end(self) -> None:
        if not self._is_complete:
            raise UpstreamBroken("the upstream app ended before the end of its answer")

    def _note_over(self) -> None:
        self._over.set()
        self._arrived.set()

    def disconnect(self) -> None:
        self._is_gone = True
        self._gone.set()
        for _, taken in self._waiting:
            taken.set()
        self._waiting.clear()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            body = message.get("body")
            if body and not self._is_gone:
                if self._take is None:
                    await self._wait_with(bytes(body))
                else:
                    try:
                        rest = self._take(bytes(body))
                        if rest is not None:
                            await rest
                    except Exception as failure:
                        self._fail(failure)
            if not message.get("more_body", False):
                self._is_complete = True
                self._note_over()
        elif message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = tuple(
                (bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())
            )
            self._head.set()

    async def _wait_with(self, piece: bytes) -> None:
        entry = (piece, anyio.Event())
        self._waiting.append(entry)
        self._arrived.set()
        try:
            await entry[1].wait()
        except BaseException:
            if entry in self._waiting:
                self._waiting.remove(entry)
            raise

    def _fail(self, failure: Exception) -> None:
        """Tell it to whoever delivers; the app goes on, and its answer goes nowhere."""
        self._take, self._take_failure = None, failure
        self._note_over()


class _Lifespan:
    """The startup and shutdown of the app; an app that knows no lifespan is taken as started."""

    def __init__(self, app: ASGIApp, state: dict[str, Any]) -> None:
        self._app = app
        self._state = state
        self._asked: list[str] = ["lifespan.startup"]
        self._wake = anyio.Event()
        self._started = anyio.Event()
        self._stopped = anyio.Event()
        self._failure: str | None = None
        self._scope = anyio.CancelScope(shield=True)

    async def start(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._run)
        await self._started.wait()
        if self._failure is not None:
            raise RuntimeError(f"the upstream app did not start: {self._failure}")

    async def stop(self) -> None:
        """Tell the app, also where its host is cancelled: it may have things to save."""
        self._asked.append("lifespan.shutdown")
        self._wake.set()
        if self._started.is_set():
            with anyio.move_on_after(_STOP_S, shield=True):
                await self._stopped.wait()
        self._scope.cancel()

    async def _run(self) -> None:
        with self._scope:
            await self._run_app()

    async def _run_app(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await self._app(scope, self._receive, self._send)
        except Exception as error:
            if self._asked:  # it never asked what to do: it knows no lifespan
                self._asked.clear()
            elif not self._started.is_set():
                self._failure = type(error).__name__
            elif self._failure is None:
                _LOGGER.exception("the app raised in its lifespan")
        finally:
            self._started.set()
            self._stopped.set()

    async def _receive(self) -> Message:
        while not self._asked:
            await self._wake.wait()
            self._wake = anyio.Event()
        return {"type": self._asked.pop(0)}

    async def _send(self, message: Message) -> None:
        if message["type"] == "lifespan.startup.failed":
            self._failure = message.get("message") or "no reason given"
        self._started.set()
