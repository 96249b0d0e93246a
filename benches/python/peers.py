"""How each peer reads a list of chunks: through its public path, in memory, one event at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

from counterfoil import SseParser
from pure_parser import PureParser

#: Type, last event ID, data, own retry.
Plain = tuple[str, str, str, int | None]
Chunks = Sequence[bytes]
HEADERS = {"content-type": "text/event-stream"}


def read_ours(chunks: Chunks) -> Iterator[Any]:
    feed = SseParser().feed
    for chunk in chunks:
        yield from feed(chunk)


def read_pure(chunks: Chunks) -> Iterator[Any]:
    feed = PureParser().feed
    for chunk in chunks:
        yield from feed(chunk)


def read_httpx_sse(chunks: Chunks) -> Iterator[Any]:
    import httpx
    from httpx_sse import EventSource

    return EventSource(httpx.Response(200, headers=HEADERS, content=iter(chunks))).iter_sse()


async def _arriving(chunks: Chunks) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def read_httpx2_async(chunks: Chunks) -> AsyncIterator[Any]:
    import httpx2

    request = httpx2.Request("GET", "http://peer.invalid")
    response = httpx2.Response(200, headers=HEADERS, content=_arriving(chunks), request=request)
    return httpx2.EventSource(response, max_event_size=None).__aiter__()


async def read_ours_async(chunks: Chunks) -> AsyncIterator[Any]:
    feed = SseParser().feed
    async for chunk in _arriving(chunks):
        for event in feed(chunk):
            yield event


def as_plain(event: Any) -> Plain:
    if isinstance(event, tuple):
        return event
    event_id = event.last_event_id if hasattr(event, "last_event_id") else event.id or ""
    return event.event or "message", event_id, event.data, event.retry


def collect(read: Callable[[Chunks], Iterable[Any] | AsyncIterator[Any]], chunks: Chunks) -> list[Plain]:
    """Every event, for checking answers."""
    source = read(chunks)
    if isinstance(source, AsyncIterator):

        async def gather() -> list[Plain]:
            return [as_plain(event) async for event in source]

        return asyncio.run(gather())
    return [as_plain(event) for event in source]


def drain_async(read: Callable[[Chunks], AsyncIterator[Any]], chunks: Chunks) -> int:
    async def count() -> int:
        events = 0
        async for _ in read(chunks):
            events += 1
        return events

    return asyncio.run(count())


def drain(read: Callable[[Chunks], Iterable[Any]], chunks: Chunks) -> int:
    events = 0
    for _ in read(chunks):
        events += 1
    return events


def drain_feeds(make: Callable[[], Any], chunks: Chunks) -> int:
    """The loop that a user writes around `feed`."""
    feed = make().feed
    events = 0
    for chunk in chunks:
        for _ in feed(chunk):
            events += 1
    return events


def drain_batches(chunks: Chunks) -> int:
    feed_batch = SseParser().feed_batch
    events = 0
    for chunk in chunks:
        events += len(feed_batch(chunk))
    return events


def drain_data(chunks: Chunks) -> int:
    """What a relay needs: the data of each event as bytes."""
    feed_batch = SseParser().feed_batch
    events = 0
    for chunk in chunks:
        for _ in feed_batch(chunk).all_data():
            events += 1
    return events
