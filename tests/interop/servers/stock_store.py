"""What the published servers have for a store when nobody gives them one: the examples' way of doing it."""

from __future__ import annotations

from collections import deque
from typing import Any

from mcp.server.streamable_http import EventMessage, EventStore


class SharedStore(EventStore):
    """A store as servers have it from examples: streams named by the request id, shared by all sessions."""

    def __init__(self, per_stream: int = 100) -> None:
        self._per_stream = per_stream
        self._streams: dict[str, deque[tuple[str, Any]]] = {}
        self._stream_of: dict[str, str] = {}

    async def store_event(self, stream_id: str, message: Any) -> str:
        event_id = f"e{len(self._stream_of) + 1}"
        self._stream_of[event_id] = stream_id
        self._streams.setdefault(stream_id, deque(maxlen=self._per_stream)).append((event_id, message))
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        stream_id = self._stream_of.get(last_event_id)
        if stream_id is None:
            return None
        found = False
        for event_id, message in list(self._streams[stream_id]):
            if found and message is not None:
                await send_callback(EventMessage(message, event_id))
            found = found or event_id == last_event_id
        return stream_id
