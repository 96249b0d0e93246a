"""The stream of a batch (revision 2025-03-26): several requests in one POST, each with an answer of its own.

Its IDs carry no request id, and it ends with its last answer; what has none by then is told so one by one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from counterfoil.adapters.gateway.streams.short_way import OnRelay
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.adapters.gateway.wire.upstream_port import Take
from counterfoil.limits import Limits
from counterfoil.model.tokens import Executed, Why
from counterfoil.native import SseParser
from counterfoil.protocol.inband_error import InbandError, write_inband_error
from counterfoil.protocol.unreadable import UNREADABLE


class BatchStream(CallStream):
    """As `CallStream`; it also knows which of its requests have their answers."""

    async def open_feed(self, limits: Limits, on_relay: OnRelay) -> Take:
        """Return what takes an upstream's stream, piece by piece."""
        parser = SseParser(limits=limits, data="bytes")

        async def take(piece: bytes) -> None:
            began = time.perf_counter()
            events = parser.feed(piece)
            await self.append([event.data for event in events if event.data not in (b"", b"{}")])
            on_relay(time.perf_counter() - began)

        return take

    async def append(self, events: list[str] | list[bytes]) -> None:
        """Append answers, single or together.  Raises `AnswerTooLarge`."""
        await super().append(events)
        self.answered = self.answered.union(*(_answered_in(event) for event in events))

    async def cancel(self, request_id: RequestId | None) -> None:
        """Settle one request; the others go on."""
        if request_id is None:
            return
        error = InbandError(request_id=request_id, why=Why.CANCELLED, executed=Executed.UNKNOWN)
        if await self.settle(write_inband_error(error)):
            self.answered |= {request_id}


def _answered_in(data: str | bytes) -> Iterable[RequestId]:
    try:
        decoded: Any = msgspec.json.decode(data)
    except UNREADABLE:
        return []
    messages = decoded if isinstance(decoded, list) else [decoded]
    ids = [
        message.get("id")
        for message in messages
        if isinstance(message, dict) and ("result" in message or "error" in message)
    ]
    return [each for each in ids if isinstance(each, str) or type(each) is int]
