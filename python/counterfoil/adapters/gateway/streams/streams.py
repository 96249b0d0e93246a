"""A call's stream in the replay log, as its upstream leg fills it and its connections read it.

Appends after its end are dropped: whoever ended it has told its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from counterfoil.adapters.gateway.streams.short_way import OnRelay, ShortWay
from counterfoil.adapters.gateway.wire.messages import MessageKind, RequestId, read_message
from counterfoil.adapters.gateway.wire.upstream_port import Take
from counterfoil.errors import SessionEnded, StreamEnded, UnknownStream
from counterfoil.limits import Limits
from counterfoil.native import EventId, Scope, StreamToken
from counterfoil.stores.interface import LogReader, ReplayLog

#: What an append raises for a stream that takes no more: it has its answer, or its session is over.
_OVER = (SessionEnded, StreamEnded, UnknownStream)


class CallStream:
    """The stream of one POST."""

    def __init__(self, log: ReplayLog, scope: Scope, token: StreamToken, first_id: EventId) -> None:
        self.scope = scope
        self.token = token
        #: The position before the first event; taken at once, as a burst may trim it before anybody reads.
        self.first_id = first_id
        #: The in-band error that ended it, if one did.
        self.settled: bytes | None = None
        self._has_answer = False
        #: Whether somebody needs to know as soon as it is.
        self.notes_answer = False
        #: Requests of a batch that have their answers.
        self.answered: frozenset[RequestId] = frozenset()
        #: Whether an identical call may still get its answer.
        self.is_undelivered = False
        #: Wraps the reader of the connection that the stream was opened for.
        self.watch: Callable[[LogReader], LogReader] | None = None
        #: By which events reach the connection that waits for them.
        self.way = ShortWay()
        self._log = log
        self._is_over = False

    @classmethod
    async def open(cls, log: ReplayLog, scope: Scope, request_ids: Sequence[RequestId]) -> Self:
        """Open the stream before its call goes upstream; raises `StoreFull`."""
        token = await log.open_call(scope, request_ids)
        first_id = await log.position_id(scope, token, 0)
        assert first_id is not None, "a stream that was just opened knows where it begins"
        return cls(log, scope, token, EventId.parse(first_id))

    @property
    def has_answer(self) -> bool:
        """Whether its terminal event is here, as far as anybody needs to know."""
        return self._has_answer or self.way.has_ended

    def note_answer(self) -> None:
        """Note that its terminal event is here."""
        self._has_answer = True

    async def open_feed(self, limits: Limits, on_relay: OnRelay) -> Take:
        """Return what takes an upstream's stream, piece by piece; it raises what stops it."""
        relay = await self._log.open_relay(self.scope, self.token, limits=limits)
        return self.way.through(relay, on_relay)

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
        if self.notes_answer and any(_is_answer(event) for event in events):
            self._has_answer = True

    async def settle(self, error: bytes) -> bool:
        """Append the in-band error, unless the call has its answer; return whether it was appended."""
        if self._is_over:
            return False
        try:
            if await self._log.settle(self.scope, self.token, error) is None:
                return False
        except _OVER:
            self._is_over = True
            return False
        self.settled = error
        self._has_answer = True
        return True

    async def end(self, why: str = "closed") -> None:
        """End the stream without an answer of its own; one that has ended keeps its reason."""
        try:
            await self._log.end_stream(self.scope, self.token, why=why)
        except _OVER:
            self._is_over = True

    async def cancel(self, _request_id: RequestId | None) -> None:
        """End the call, which was cancelled and gets no answer."""
        await self.end("cancelled")

    async def attach(self, *, is_aware: bool) -> LogReader:
        """Attach the connection that the stream was opened for."""
        reader = await self._log.attach(self.scope, self.token, aware=is_aware)
        return self.watch(reader) if self.watch is not None else reader


def _is_answer(event: str | bytes) -> bool:
    return read_message(event.encode() if isinstance(event, str) else event).kind is MessageKind.ANSWER
