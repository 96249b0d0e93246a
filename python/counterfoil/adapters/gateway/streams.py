"""A call's stream in the replay log, as its upstream leg fills it and its connections read it.

What the upstream sends is parsed and appended in one batch per piece; upstream ids stay on their leg.
"""

from __future__ import annotations

from collections.abc import Iterable

from counterfoil.adapters.gateway.messages import RequestId
from counterfoil.errors import SessionEnded, StreamEnded, UnknownStream
from counterfoil.limits import Limits
from counterfoil.native import EventId, Scope, SseEvent, SseParser, StreamToken
from counterfoil.stores.interface import LogReader, ReplayLog

#: What an append raises for a stream that takes no more: it has its answer, or its session is over.
_OVER = (SessionEnded, StreamEnded, UnknownStream)


class Feed:
    """Reads an upstream's event stream; keeps its last id and `retry` for the upstream leg."""

    def __init__(self, limits: Limits) -> None:
        self.last_event_id: str | None = None
        self.retry_ms: int | None = None
        self._parser = SseParser(limits=limits)

    def read(self, piece: bytes) -> list[str]:
        """Return the data of the events to relay.

        Events that are not named `message`, and what peers write to prime a stream (no data, `{}`), move the
        upstream cursor and are not relayed.  Raises `SseLimitError`.
        """
        return list(self._relayed(self._parser.feed(piece)))

    def _relayed(self, events: Iterable[SseEvent[str]]) -> Iterable[str]:
        for event in events:
            if event.id is not None:
                self.last_event_id = event.id or None
            if event.retry is not None:
                self.retry_ms = event.retry
            if event.event == "message" and event.data not in ("", "{}"):
                yield event.data


class CallStream:
    """The stream of one POST."""

    def __init__(self, log: ReplayLog, scope: Scope, token: StreamToken, first_id: str, epoch: str) -> None:
        self.scope = scope
        self.token = token
        #: The id of the position before the first event.
        self.first_id = first_id
        self.epoch = epoch
        self._log = log
        self._is_over = False

    @classmethod
    async def open(cls, log: ReplayLog, scope: Scope, request_id: RequestId) -> CallStream:
        """Open the stream before its call goes upstream; raises `StoreFull`."""
        token = await log.open_call(scope, [request_id])
        first = await log.position_id(scope, token, 0)
        assert first is not None, "a stream that was just opened knows its first digest"
        return cls(log, scope, token, first, EventId.parse(first).epoch)

    async def append(self, events: list[str] | list[bytes]) -> None:
        """Append a batch; what comes behind the answer, or after the session's end, is dropped.

        Raises `AnswerTooLarge`.
        """
        if not events or self._is_over:
            return
        try:
            await self._log.append(self.scope, self.token, events)
        except _OVER:
            self._is_over = True

    async def settle(self, error: bytes) -> None:
        """Append the in-band error, unless the call has its answer."""
        if self._is_over:
            return
        try:
            await self._log.settle(self.scope, self.token, error)
        except _OVER:
            self._is_over = True

    async def end(self, why: str = "closed") -> None:
        """End the stream without an answer of its own; one that has ended keeps its reason."""
        try:
            await self._log.end_stream(self.scope, self.token, why=why)
        except _OVER:
            self._is_over = True

    async def attach(self, *, is_aware: bool) -> LogReader:
        """Attach the connection that the stream was opened for."""
        return await self._log.attach(self.scope, self.token, aware=is_aware)
