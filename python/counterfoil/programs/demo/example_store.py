"""An event store of the kind that servers copy from SDK examples: one counter and one list for all sessions.

Streams are named by the JSON-RPC request id alone, as the SDK names them; the demo shows what follows.
"""

from __future__ import annotations

from typing import Any


def make_example_store() -> Any:
    """Return an SDK `EventStore` shared by every session of the server, unbounded, without scope or epoch."""
    from mcp.server.streamable_http import EventMessage, EventStore

    class ExampleStore(EventStore):
        def __init__(self) -> None:
            self._events: list[tuple[str, Any]] = []

        async def store_event(self, stream_id: str, message: Any) -> str:
            self._events.append((stream_id, message))
            return str(len(self._events))

        async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
            position = int(last_event_id)
            if not 0 < position <= len(self._events):
                return None
            stream_id = self._events[position - 1][0]
            for number, (stream, message) in enumerate(self._events[position:], start=position + 1):
                if stream == stream_id and message is not None:
                    await send_callback(EventMessage(message, str(number)))
            return stream_id

    return ExampleStore()
