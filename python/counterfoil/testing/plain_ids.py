"""An event store for suites that pin ids: bare integers, counted from 1 over all streams and primings.

For tests only: such an id proves nothing, which is why nothing else in Counterfoil makes or reads one.
"""

from __future__ import annotations

from typing import Any

from mcp.server.streamable_http import EventCallback, EventStore

from counterfoil.adapters.mcp_event_store import ReplayEventStore
from counterfoil.adapters.mcp_event_store.messages import make_event
from counterfoil.native import KeyRing
from counterfoil.stores.replay.store import ReplayStore


class PlainIdEventStore(EventStore):
    """A `ReplayEventStore` whose nth stored row has the id n, primings included.

    `rows` holds what the SDK stored, in order: stream, and message or None.
    """

    def __init__(self, store: ReplayStore | None = None) -> None:
        self.rows: list[tuple[str, Any]] = []
        self._inner = ReplayEventStore(store if store is not None else ReplayStore(keys=KeyRing.random()))
        self._ids: list[str] = []
        self._numbers: dict[str, str] = {}

    async def store_event(self, stream_id: str, message: Any) -> str:
        """See `ReplayEventStore.store_event`."""
        event_id = await self._inner.store_event(stream_id, message)
        self.rows.append((stream_id, message))
        self._ids.append(event_id)
        number = str(len(self._ids))
        if message is not None:
            self._numbers[event_id] = number
        return number

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """See `ReplayEventStore.replay_events_after`."""

        async def send(event: Any) -> None:
            number = self._numbers.get(event.event_id) if event.event_id is not None else None
            await send_callback(make_event(event.message, number))

        return await self._inner.replay_events_after(self._read(last_event_id), send)

    def _read(self, number: str) -> str:
        if number.isascii() and number.isdigit() and 0 < int(number) <= len(self._ids):
            return self._ids[int(number) - 1]
        return number  # foreign to the store as well
