"""A pytest plugin for the SDK's own suite: puts our store in the place of the suite's own ones.

The suite pins ids that count every row, so it gets the plain-integer ones of `counterfoil.testing`.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import pytest
from counterfoil.testing.plain_ids import PlainIdEventStore
from mcp.server.streamable_http import EventStore


class OurStore(EventStore):
    """Made when it is first used: the older suite makes its store before it forks."""

    def __init__(self) -> None:
        self._made: PlainIdEventStore | None = None
        self._grown = anyio.Event()

    @property
    def _inner(self) -> PlainIdEventStore:
        if self._made is None:
            self._made = PlainIdEventStore()
        return self._made

    async def store_event(self, stream_id: str, message: Any) -> str:
        event_id = await self._inner.store_event(stream_id, message)
        self._grown.set()
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        return await self._inner.replay_events_after(last_event_id, send_callback)

    async def wait_until_stored(self, count: int) -> None:
        while len(self._inner.rows) < count:
            self._grown = anyio.Event()
            await self._grown.wait()


class OurSequencedStore(OurStore):
    @property
    def _events(self) -> list[tuple[str, Any]]:
        return self._inner.rows


class OurSimpleStore(OurStore):
    @property
    def _events(self) -> list[tuple[str, str, Any]]:
        return [(name, str(number), row) for number, (name, row) in enumerate(self._inner.rows, 1)]


OURS = {"SequencedEventStore": OurSequencedStore, "SimpleEventStore": OurSimpleStore}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Replace the names that the tests make their stores by."""
    replaced = 0
    for name in {item.module.__name__ for item in items if isinstance(item, pytest.Function)}:
        module = sys.modules[name]
        for original, ours in OURS.items():
            if hasattr(module, original):
                setattr(module, original, ours)
                replaced += 1
    if items and not replaced:
        raise pytest.UsageError("the suite has no store that could be replaced")
