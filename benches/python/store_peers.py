"""Event stores to be measured against.

The pure-Python ring is ours: what deques and integers allow.  The other two are written here after the
shape of the SDK's example stores (no part of its wheel): message objects, `async` calls, an `EventMessage`
and a callback per event; one keeps a deque per stream and uuid4 ids, the other one list with integer ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from mcp.server.streamable_http import EventMessage

Send = Callable[[EventMessage], Awaitable[None]]


class PureRing:
    """Global integer ids; the events of a stream are found by walking back from its end."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.streams: dict[str, tuple[str, deque[int], deque[bytes]]] = {}
        self.owner: list[tuple[str, deque[int], deque[bytes]]] = []
        self.last = 0

    def append(self, stream: str, raw: bytes) -> str:
        ring = self.streams.get(stream)
        if ring is None:
            ring = self.streams[stream] = (stream, deque(maxlen=self.capacity), deque(maxlen=self.capacity))
        number = self.last = self.last + 1
        ring[1].append(number)
        ring[2].append(raw)
        self.owner.append(ring)
        return str(number)

    def replay(self, last: int) -> list[tuple[int, bytes]]:
        _, numbers, raws = self.owner[last - 1]
        out = []
        for place in range(len(numbers) - 1, -1, -1):
            if numbers[place] <= last:
                break
            out.append((numbers[place], raws[place]))
        out.reverse()
        return out


@dataclass
class Entry:
    event_id: str
    stream: str
    message: Any


class DequeStore:
    """A deque per stream, an index of ids, and uuid4 for each event."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.streams: dict[str, deque[Entry]] = {}
        self.index: dict[str, Entry] = {}

    async def store_event(self, stream: str, message: Any) -> str:
        entry = Entry(str(uuid4()), stream, message)
        kept = self.streams.get(stream)
        if kept is None:
            kept = self.streams[stream] = deque(maxlen=self.capacity)
        if len(kept) == self.capacity:
            self.index.pop(kept[0].event_id, None)
        kept.append(entry)
        self.index[entry.event_id] = entry
        return entry.event_id

    async def replay_events_after(self, last_event_id: str, send: Send) -> str | None:
        last = self.index.get(last_event_id)
        if last is None:
            return None
        found = False
        for entry in self.streams[last.stream]:
            if found:
                await send(EventMessage(entry.message, entry.event_id))
            elif entry.event_id == last_event_id:
                found = True
        return last.stream


class ListStore:
    """One list of everything; an id is the place in it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, Any]] = []

    async def store_event(self, stream: str, message: Any) -> str:
        event_id = str(len(self.events) + 1)
        self.events.append((stream, event_id, message))
        return event_id

    async def replay_events_after(self, last_event_id: str, send: Send) -> str | None:
        place = int(last_event_id)
        stream = self.events[place - 1][0]
        for of_stream, event_id, message in self.events[place:]:
            if of_stream == stream:
                await send(EventMessage(message, event_id))
        return stream
