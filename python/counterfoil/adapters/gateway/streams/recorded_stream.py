"""The stream of a call whose outcome is in the ledger before anybody can read its answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from counterfoil.adapters.gateway.streams.short_way import OnRelay
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.rewriting import Message, read_rpc
from counterfoil.adapters.gateway.wire.upstream_port import Take
from counterfoil.limits import Limits
from counterfoil.native import SseParser

#: Told of the answer (True) or of the in-band error (False), before it is appended.
OnEnd = Callable[[bytes, bool], Awaitable[None]]
#: What the server said beside the answer, as it is and as read; a notification is not read here.
Said = list[tuple[bytes, Message | None]]


class RecordedStream(CallStream):
    """As `CallStream`; `on_end` is awaited once, before the event that ends the call is appended."""

    on_end: OnEnd | None = None

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
        """Append a batch; the answer in it is recorded first.  Raises `AnswerTooLarge`."""
        said: Said = []
        for event in events:
            data = event.encode() if isinstance(event, str) else event
            message = read_rpc(data) if may_have_id(data) else None
            if message is not None and message.is_answer:
                await self._note_end(data, is_answer=True)
            else:
                said.append((data, message))
        await super().append(events)
        if said:
            await self.pass_on(said)

    async def pass_on(self, said: Said) -> None:
        """Tell others what was appended; here there are none."""

    async def settle(self, error: bytes) -> bool:
        """Record that there is no answer, then append the in-band error."""
        await self._note_end(error, is_answer=False)
        return await super().settle(error)

    async def _note_end(self, data: bytes, *, is_answer: bool) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            if is_answer:
                self.note_answer()
            await on_end(data, is_answer)


def may_have_id(data: bytes) -> bool:
    """Whether a message may have an id, as answers and requests have; False is certain, and costs little."""
    return b'"id"' in data or b"\\u" in data
