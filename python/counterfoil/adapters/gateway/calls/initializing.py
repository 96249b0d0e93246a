"""Answers `initialize`: the one call that is sent before its session has a name.

A stream that the upstream answers with gets IDs from the moment its head names the session; a JSON answer
passes as it is.  No revision is agreed on yet, so nothing is primed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.calls.calls import Call
from counterfoil.adapters.gateway.upstream.passthrough import OnPiece, copy_answer, start_answer
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.upstream_port import (
    Headers,
    Take,
    Upstream,
    UpstreamAnswer,
    UpstreamRequest,
    finish,
)
from counterfoil.adapters.gateway.wire.watching import run_while_present

#: Told the head of the answer; returns the call that its stream becomes, None to pass the answer as it is.
OnHead = Callable[[UpstreamAnswer, Upstream], Awaitable[Call | None]]


class Initializing:
    """One `initialize` on its way.  `run` it in a task of its own; it raises nothing.

    Once `decided` is set either `call` runs, or the answer has passed and `failure` says what stopped it.
    """

    def __init__(
        self,
        upstream: Upstream,
        request: UpstreamRequest,
        send: Send,
        on_head: OnHead,
        on_piece: OnPiece,
    ) -> None:
        self.decided = anyio.Event()
        self.call: Call | None = None
        self.failure: Exception | None = None
        self._upstream = upstream
        self._request = request
        self._send = send
        self._on_head = on_head
        self._on_piece = on_piece
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        try:
            with self._scope:
                await self._carry()
        except Exception as failure:
            self.failure = failure
        finally:
            self.decided.set()

    async def _carry(self) -> None:
        async with self._upstream.call(self._request) as answer:
            read = _Read(answer, self._on_piece)
            self.call = await self._on_head(answer, _Given(read, self._upstream))
            if self.call is None:
                await start_answer(answer, self._send)
                await copy_answer(read, self._send)
            else:
                self.decided.set()
                await self.call.run(lambda: None)

    async def wait(self, receive: Receive, tasks: TaskGroup) -> Call | None:
        """Start it, and wait until it is decided; without a call its client may leave, which ends it.

        Raises what stopped it.
        """
        tasks.start_soon(self.run)
        if not await run_while_present(receive, self.decided.wait) and self.call is None:
            self._scope.cancel()
            return None
        if self.failure is not None:
            raise self.failure
        return self.call


class _Read:
    """An answer that is read along."""

    def __init__(self, answer: UpstreamAnswer, on_piece: OnPiece) -> None:
        self._answer = answer
        self._on_piece = on_piece

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Headers:
        return self._answer.headers

    async def deliver(self, take: Take) -> None:
        async def read_and_take(piece: bytes) -> None:
            await self._on_piece(piece)
            await finish(take(piece))

        await self._answer.deliver(read_and_take)

    async def receive(self) -> bytes:
        piece = await self._answer.receive()
        await self._on_piece(piece)
        return piece


class _Given:
    """The upstream of a call whose answer is there already; what is asked after that goes to the real one."""

    def __init__(self, answer: UpstreamAnswer, upstream: Upstream) -> None:
        self._answer: UpstreamAnswer | None = answer
        self._upstream = upstream

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._upstream.running()

    @asynccontextmanager
    async def call(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        answer, self._answer = self._answer, None
        if answer is not None:
            yield answer
            return
        async with self._upstream.call(request) as again:
            yield again
