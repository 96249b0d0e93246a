"""Nothing is lost, doubled or reordered between what is written by whoever brings it and what is read."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
import sniffio
from anyio.lowlevel import checkpoint
from counterfoil import EventId, KeyRing, ReplayStore, Scope, SseParser
from counterfoil.adapters.gateway.calls.connection import Connection
from counterfoil.adapters.gateway.streams import short_way
from counterfoil.adapters.gateway.streams.sse_out import Opening, Pace, StreamWriter
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.upstream_port import Take, finish
from counterfoil.errors import StreamEnded
from counterfoil.limits import Limits
from counterfoil.stores.memory import MemoryReplayLog

pytestmark = pytest.mark.anyio
SCOPE = Scope(session="s")
ANSWER = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
is_short = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def note(number: int, text: str = "") -> bytes:
    params = {"progressToken": 1, "progress": number, "message": text}
    message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    return b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n"


class Watcher:
    def __init__(self) -> None:
        self.said: list[str] = []

    def note_id(self) -> None:
        self.said.append("id")

    def note_attached(self, connection: Connection) -> None:
        self.said.append("attached")

    def note_handed_over(self, connection: Connection) -> None:
        self.said.append("handed over")

    def note_gone(self, connection: Connection) -> None:
        self.said.append("gone")


class Bench:
    """One call's stream, its connection over a scripted server, and what feeds it."""

    def __init__(self, **pace: Any) -> None:
        self.log = MemoryReplayLog(ReplayStore(keys=KeyRing.random(), limits=Limits(window_bytes=64 << 20)))
        self.pace = Pace(send_bytes=256 << 10, beat_s=15, write_deadline_s=20)
        self.wire: list[bytes] = []
        self.ended: list[str] = []
        self.watcher = Watcher()
        self.is_gone = anyio.Event()
        self.over = anyio.Event()
        #: What the server does before it takes a piece.
        self.before_send: Callable[[bytes], Awaitable[None]] | None = None
        self.stream: CallStream
        self.take: Take

    def _note_end(self, reason: str) -> None:
        self.ended.append(reason)
        self.over.set()

    async def _receive(self) -> dict[str, Any]:
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        body = message.get("body", b"")
        if body and self.before_send is not None:
            await self.before_send(body)
        self.wire.append(body)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        await self.log.open_session(SCOPE)
        self.stream = await CallStream.open(self.log, SCOPE, [1])
        self.take = await self.stream.open_feed(Limits(), lambda seconds, pieces=1: None)
        connection = Connection(self.watcher, self._receive, self._send)
        self.stream.watch = connection.watch
        reader = await self.stream.attach(is_aware=False)
        lead = f"id: {self.stream.first_id}\ndata:\n\n".encode()
        opening = Opening((), lead, self.stream.first_id.epoch, False)
        writer = StreamWriter(
            connection.send,
            self.pace,
            opening,
            reader,
            way=self.stream.way,
            plain_send=connection.plain_send,
        )
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(writer.run, connection.receive, self._note_end)
                await anyio.wait_all_tasks_blocked()
                yield
                tasks.cancel_scope.cancel()

    async def feed(self, piece: bytes) -> None:
        await finish(self.take(piece))

    def sequences(self) -> list[int]:
        events = SseParser().feed(b"".join(self.wire))
        return [EventId.parse(event.id).sequence for event in events if event.id and event.data]

    async def rest(self, after: int) -> list[int]:
        """What a client that has everything up to `after` gets by resuming."""
        cursor = await self.log.position_id(SCOPE, self.stream.token, after)
        reader = await self.log.resume(SCOPE, cursor)
        frames = b""
        with suppress(StreamEnded):
            while True:
                frames += reader.read()
        events = SseParser().feed(frames)
        return [EventId.parse(event.id).sequence for event in events if event.id]


@is_short
async def test_an_event_is_on_its_way_before_whoever_brought_it_goes_on() -> None:
    bench = Bench()
    async with bench.connected():
        for number in range(1, 4):
            assert bench.take(note(number)) is None
            assert bench.sequences()[-1] == number


async def test_the_answer_is_written_by_its_own_connection_which_notes_that_it_was_handed_over() -> None:
    bench = Bench()
    async with bench.connected():
        await bench.feed(note(1))
        await bench.feed(note(2) + ANSWER)
        assert "handed over" not in bench.watcher.said
        await anyio.wait_all_tasks_blocked()
        assert bench.sequences() == [1, 2, 3]
        assert bench.watcher.said == ["attached", "id", "handed over"]
        assert bench.ended == ["ended"]
        assert bench.stream.has_answer


class Weather:
    """A server that takes some pieces at once, and lets others wait in every way that there is."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    async def __call__(self, body: bytes) -> None:
        kind = self._random.choice(("none", "none", "none", "yield", "wait", "both"))
        if kind in ("yield", "both"):
            await checkpoint()
        if kind in ("wait", "both"):
            with anyio.move_on_after(self._random.choice((0, 0.001, 0.002))):
                await anyio.Event().wait()


async def test_however_writing_and_reading_meet_each_event_is_written_once_and_in_order(
    scaled: Callable[[int, int], int],
) -> None:
    for seed in range(scaled(10, 400)):
        chance = random.Random(seed)
        bench = Bench()
        is_large = chance.random() < 0.2  # an event goes out in several pieces
        bench.pace = Pace(send_bytes=256 << 10 if is_large else 300, beat_s=0.002, write_deadline_s=20)
        bench.before_send = Weather(seed)
        count = chance.randrange(1, 60)
        sizes = [chance.choice((10, 10, 2_000, 300_000 if is_large else 10)) for _ in range(count)]
        body = b"".join(note(number + 1, "x" * size) for number, size in enumerate(sizes)) + ANSWER
        async with bench.connected():
            while body:
                at = chance.choice((body.find(b"\r\n\r\n") + 4, chance.randrange(1, len(body) + 1)))
                piece, body = (body[:at], body[at:]) if at > 3 else (body, b"")
                await bench.feed(
                    piece + (b"" if chance.random() < 0.9 or b"\n\n" not in piece[-4:] else b": ping\n\n")
                )
                if chance.random() < 0.3:
                    await checkpoint()
            await bench.over.wait()
        assert bench.sequences() == list(range(1, count + 2)), (seed, bench.ended)
        assert bench.ended == ["ended"]


@is_short
@pytest.mark.parametrize("waits_first", [False, True])
async def test_after_a_write_that_failed_nothing_follows_on_that_connection(waits_first: bool) -> None:
    """Else the client would see a hole where the failed piece was."""
    bench = Bench()

    async def fail(body: bytes) -> None:
        if b'"progress": 3' in body:
            if waits_first:
                await anyio.sleep(0.001)
            raise OSError("broken")

    bench.before_send = fail
    async with bench.connected():
        for number in range(1, 6):
            await bench.feed(note(number))
        await bench.feed(ANSWER)
        await anyio.wait_all_tasks_blocked()
        assert bench.sequences() == [1, 2]
        assert bench.ended == ["slow"]
        assert "handed over" not in bench.watcher.said
        assert await bench.rest(after=2) == [3, 4, 5, 6]


@is_short
async def test_an_app_that_is_cancelled_in_a_write_takes_the_connection_along_and_nothing_else() -> None:
    bench = Bench()
    stalls = anyio.Event()

    async def stall(body: bytes) -> None:
        if b'"progress": 2' in body:
            stalls.set()
            await anyio.sleep_forever()

    bench.before_send = stall
    async with bench.connected():
        await bench.feed(note(1))
        async with anyio.create_task_group() as app:
            app.start_soon(bench.feed, note(2))
            await stalls.wait()
            app.cancel_scope.cancel()
        await bench.feed(note(3) + ANSWER)
        await anyio.wait_all_tasks_blocked()
        assert bench.sequences() == [1]
        assert bench.ended == ["slow"]
        assert await bench.rest(after=1) == [2, 3, 4]


@is_short
async def test_a_connection_that_takes_nothing_holds_the_app_back_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(short_way, "PATIENCE_S", 0.05)
    bench = Bench()

    async def stall(body: bytes) -> None:
        if b'"progress": 2' in body:
            await anyio.sleep_forever()

    bench.before_send = stall
    async with bench.connected():
        await bench.feed(note(1))
        with anyio.fail_after(5):
            await bench.feed(note(2))
        await bench.feed(note(3) + ANSWER)
        await anyio.wait_all_tasks_blocked()
        assert bench.sequences() == [1]
        assert bench.ended == ["slow"]
        assert await bench.rest(after=1) == [2, 3, 4]


@is_short
async def test_a_slow_connection_holds_the_app_back_for_a_bounded_time_in_all_and_then_reads_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(short_way, "PATIENCE_S", 1.0)
    bench = Bench()
    writes = 0

    async def dawdle(body: bytes) -> None:
        nonlocal writes
        writes += 1
        if 1 < writes < 5:
            await anyio.sleep(0.4)

    bench.before_send = dawdle
    async with bench.connected():
        for number in range(1, 4):
            await bench.feed(note(number))
            assert bench.sequences()[-1] == number, "who brings it waits until it is written"
        await bench.feed(note(4))
        assert bench.sequences()[-1] == 3, "the connection is on its own"
        await bench.feed(ANSWER)
        await bench.over.wait()
        assert bench.sequences() == [1, 2, 3, 4, 5]


async def test_a_resume_takes_over_from_the_short_way_at_one_sequence() -> None:
    bench = Bench()
    async with bench.connected():
        for number in range(1, 4):
            await bench.feed(note(number))
        await anyio.wait_all_tasks_blocked()
        cursor = await bench.log.position_id(SCOPE, bench.stream.token, 2)
        newer = await bench.log.resume(SCOPE, cursor)
        for number in range(4, 6):
            await bench.feed(note(number))
        await anyio.wait_all_tasks_blocked()
        assert bench.sequences() == [1, 2, 3]
        assert bench.ended == ["superseded"]
        events = SseParser().feed(newer.read())
        assert [EventId.parse(str(event.id)).sequence for event in events] == [3, 4, 5]


async def test_what_stops_the_relay_is_raised_and_what_came_before_it_is_written() -> None:
    bench = Bench()
    async with bench.connected():
        with pytest.raises(Exception, match="line_bytes"):
            await bench.feed(note(1) + b"data: " + b"x" * (Limits().line_bytes + 1))
        await anyio.wait_all_tasks_blocked()
        assert bench.sequences() == [1]


async def test_on_trio_every_event_is_read_from_the_log() -> None:
    way = short_way.ShortWay()
    bench = Bench()
    async with bench.connected():
        way.lend(await bench.stream.attach(is_aware=False), lambda frames: checkpoint(), lambda: None)
        assert (way._reader is None) == (sniffio.current_async_library() == "trio")
