"""Reads along while an answer to `tools/list` passes; it changes nothing that passes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from counterfoil.adapters.gateway.wire.upstream_port import (
    Headers,
    Take,
    Upstream,
    UpstreamAnswer,
    UpstreamRequest,
    is_stream,
)
from counterfoil.errors import CounterfoilError
from counterfoil.native import SseParser

_MAX_BYTES = 1 << 20


class ListeningUpstream:
    """An upstream whose answers are kept while they pass, up to a bound."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._pieces: list[tuple[bool, bytearray]] = []

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._upstream.running()

    @asynccontextmanager
    async def call(self, request: UpstreamRequest) -> AsyncIterator[UpstreamAnswer]:
        async with self._upstream.call(request) as answer:
            kept = bytearray()
            self._pieces.append((is_stream(answer), kept))
            yield _KeptAnswer(answer, kept)

    def messages(self) -> Iterator[bytes]:
        """Give the messages that passed."""
        for streams, kept in self._pieces:
            if not streams:
                yield bytes(kept)
                continue
            try:
                events = SseParser(data="bytes").feed(bytes(kept))
            except CounterfoilError:
                continue
            yield from (event.data for event in events if event.data)


class _KeptAnswer:
    def __init__(self, answer: UpstreamAnswer, kept: bytearray) -> None:
        self._answer = answer
        self._kept = kept

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Headers:
        return self._answer.headers

    async def deliver(self, take: Take) -> None:
        def keep_and_take(piece: bytes) -> Awaitable[None] | None:
            self._keep(piece)
            return take(piece)

        await self._answer.deliver(keep_and_take)

    async def receive(self) -> bytes:
        piece = await self._answer.receive()
        self._keep(piece)
        return piece

    def _keep(self, piece: bytes) -> None:
        if len(self._kept) + len(piece) <= _MAX_BYTES:
            self._kept += piece
