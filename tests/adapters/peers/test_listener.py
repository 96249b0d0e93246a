"""The listener for peers: one request after another on a connection, and nothing for whoever is no peer."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.peers import frames as frames_module
from counterfoil.adapters.peers import listener as listener_module
from counterfoil.adapters.peers.channel import Channels
from counterfoil.adapters.peers.frames import END, FrameReader, Kind, write_frame, write_request
from counterfoil.adapters.peers.seals import Seals
from counterfoil.adapters.peers.wire import Full, Gone, Head, Hold, Said, Wish, read_line, write_line
from counterfoil.native import KeyRing
from peer_kit import ScriptedInbox, Served, asks, forwards, served, unsealed, until

pytestmark = pytest.mark.anyio

KEYS = KeyRing.from_secret(bytes(32), made_s=1)
YES = write_frame(Kind.LINE, write_line(Said("yes")))


async def connect(host: Served) -> ByteStream:
    if host.address.path:
        return await anyio.connect_unix(host.address.path)
    return await anyio.connect_tcp(host.address.host, host.address.port)


async def read_all(stream: ByteStream) -> bytes:
    said = b""
    try:
        while True:
            said += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return said


def clock() -> float:
    return 1_000_000.0


@pytest.mark.parametrize(
    ("why", "sent"),
    [
        ("missing", b"POST / HTTP/1.1\r\nhost: peer\r\ncontent-length: 0\r\n\r\n"),
        ("missing", write_request(b"", asks())),
        ("missing", write_frame(Kind.LINE, b"")),
        ("missing", write_frame(Kind.REQUEST, b"")),
        ("missing", b"\x01\xff\xff\xff\xff"),
        ("missing", write_request(b"nonsense", asks())),
        ("key", write_request(Seals(KeyRing.from_secret(b"2" * 32, made_s=1), clock).make(asks()), asks())),
        ("stale", write_request(Seals(KEYS, lambda: clock() - 31).make(asks()), asks())),
        ("stale", write_request(Seals(KEYS, lambda: clock() + 31).make(asks()), asks())),
        ("forged", write_request(Seals(KEYS, clock).make(asks()), asks() + b"\0")),
    ],
)
async def test_what_is_not_sealed_by_a_peer_is_answered_401_and_counted(
    folder: Path, why: str, sent: bytes
) -> None:
    async with served(folder, seals=Seals(KEYS, clock)) as host, await connect(host) as stream:
        await stream.send(sent)
        assert (await read_all(stream)).startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert host.counts.refused == {why: 1}
        assert not host.counts.requests


async def test_a_seal_passes_once_also_on_the_connection_that_it_came_on(folder: Path) -> None:
    good = write_request(Seals(KEYS, clock).make(asks()), asks())
    async with served(folder, seals=Seals(KEYS, clock)) as host:
        async with await connect(host) as stream:
            await stream.send(good + good)
            assert (await read_all(stream)).startswith(YES + b"HTTP/1.1 401 ")
        async with await connect(host) as stream:
            await stream.send(good)
            assert (await read_all(stream)).startswith(b"HTTP/1.1 401 ")
        assert host.counts.refused == {"replayed": 2}
        assert host.counts.requests == {"Report": 1}


async def test_what_cannot_be_read_is_answered_400_where_no_seal_is_asked_for(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(folder) as host:
        for sent in (b"GET / HTTP/1.1\r\n\r\n", write_request(b"", b"\xc1"), END):
            async with await connect(host) as stream:
                await stream.send(sent)
                assert (await read_all(stream)).startswith(b"HTTP/1.1 400 ")
        assert host.counts.refused == {"unreadable": 3}
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        '{"event":"peer-refused","why":"PeerBroken"}'
    ] * 3


async def test_a_request_for_another_life_or_place_is_told_that_it_is_gone(folder: Path) -> None:
    async with served(folder) as host, await connect(host) as stream:
        frames = FrameReader(stream)
        for envelope in (asks(incarnation=8), asks(worker=2)):
            await stream.send(write_request(b"", envelope))
            found = await frames.frame(max_bytes=100)
            assert found is not None
            assert read_line(found[1]) == Gone()
        await stream.send(write_request(b"", asks(incarnation=7)))
        assert await frames.frame(max_bytes=100) == (Kind.LINE, write_line(Said("yes")))


async def test_more_requests_than_it_takes_are_told_so(folder: Path) -> None:
    inbox = ScriptedInbox()
    inbox.go = anyio.Event()
    async with served(folder, inbox=inbox, at_once=1) as host, await connect(host) as stream:
        await stream.send(write_request(b"", asks()))
        await until(lambda: inbox.taken)
        async with Channels().open(host.address, unsealed(asks()), repeats=True, connect_s=5) as reply:
            assert reply.line == Full()
        await until(lambda: host.connections == 1)
        # Nor more connections than twice as many.
        async with await connect(host) as second, await connect(host) as third:
            assert await read_all(third) == b""
            inbox.go.set()
            await until(lambda: not host.counts.open)
            await second.send(write_request(b"", asks()))
            assert await second.receive() == YES


async def test_a_request_that_comes_before_the_last_one_was_answered_has_its_turn(folder: Path) -> None:
    inbox = ScriptedInbox()
    inbox.go = anyio.Event()
    async with served(folder, inbox=inbox) as host, await connect(host) as stream:
        await stream.send(write_request(b"", asks()))
        await until(lambda: inbox.taken)
        await stream.send(write_request(b"", asks()))
        await anyio.sleep(0.01)
        inbox.go.set()
        frames = FrameReader(stream)
        for _ in range(2):
            assert await frames.frame(max_bytes=100) == (Kind.LINE, write_line(Said("yes")))
        assert len(inbox.taken) == 2
        assert not inbox.cancelled


async def test_whoever_leaves_cancels_what_he_asked_for(folder: Path) -> None:
    inbox = ScriptedInbox()
    inbox.go = anyio.Event()
    async with served(folder, inbox=inbox) as host:
        async with await connect(host) as stream:
            await stream.send(write_request(b"", asks()))
            await until(lambda: inbox.taken)
        await until(lambda: inbox.cancelled)
        await until(lambda: not host.connections)


async def test_whoever_waits_is_told_every_second_that_it_may_come(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is a line that waits for what follows it; then nothing more is said until that comes."""
    monkeypatch.setattr(listener_module, "INTERIM_S", 0.02)
    go = [anyio.Event(), anyio.Event()]

    async def answer(receive: Receive, send: Send) -> None:
        await go[0].wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await go[1].wait()
        await send({"type": "http.response.body", "body": b"body"})

    async with served(folder, answer) as host, await connect(host) as stream:
        await stream.send(write_request(b"", forwards()))
        frames = FrameReader(stream)
        for _ in range(2):
            assert await frames.frame(max_bytes=100) == (Kind.LINE, write_line(Hold()))
        go[0].set()
        while (found := await frames.frame(max_bytes=100)) == (Kind.LINE, write_line(Hold())):
            pass
        assert found == (Kind.LINE, write_line(Head(200, ())))
        await anyio.sleep(0.05)
        go[1].set()
        assert await frames.frame(max_bytes=100) == (Kind.LAST, b"")
        assert (await frames.piece()).view == b"body"


async def test_an_answer_that_breaks_off_is_not_ended(folder: Path) -> None:
    async def answer(receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"body", "more_body": True})

    async with served(folder, answer) as host, await connect(host) as stream:
        await stream.send(write_request(b"", forwards()))
        said = await read_all(stream)
        assert said.endswith(write_frame(Kind.BODY, b"body"))


async def test_an_inbox_that_does_not_answer_is_gone(folder: Path) -> None:
    channels = Channels()
    async with (
        served(folder) as host,
        channels.open(host.address, unsealed(forwards()), repeats=True, connect_s=5) as reply,
    ):
        assert reply.line == Gone()


async def test_one_that_fails_fails_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def answer(receive: Receive, send: Send) -> None:
        raise RuntimeError("a bug")

    async with served(folder, answer) as host:
        async with await connect(host) as stream:
            await stream.send(write_request(b"", forwards()))
            assert await read_all(stream) == b""
        async with await connect(host) as stream:
            await stream.send(write_request(b"", asks()))
            assert await stream.receive() == YES
    assert [record.message for record in caplog.records] == ['{"event":"peer-failed"}']


async def test_a_connection_that_says_nothing_is_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_FIRST_S", 0.05)
    async with served(folder) as host, await connect(host) as stream:
        await stream.send(write_request(b"", asks())[:3])
        assert await read_all(stream) == b""


async def test_large_requests_are_read_a_few_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has shown a seal before his request is read, so what waits to be read takes no memory."""
    monkeypatch.setattr(listener_module, "_LARGE_AT_ONCE", 1)
    monkeypatch.setattr(frames_module, "PIECE_BYTES", 1_000)
    large = write_request(b"", asks(Wish(scope=(None, None, "s"), body=bytes(50_000))))
    async with served(folder) as host, await connect(host) as slow, await connect(host) as next_one:
        await slow.send(large[:-1])
        await until(lambda: host.server._large.value == 0)
        await next_one.send(large)
        async with await connect(host) as small:
            await small.send(write_request(b"", asks()))
            assert await small.receive() == YES
        assert len(host.inbox.taken) == 1
        await slow.send(large[-1:])
        for stream in (slow, next_one):
            assert await stream.receive() == YES


async def test_its_end_closes_what_rests_and_gives_what_runs_its_time(folder: Path) -> None:
    inbox = ScriptedInbox()
    async with anyio.create_task_group() as tasks, served(folder, inbox=inbox, grace_s=10) as host:
        resting, running = await connect(host), await connect(host)
        for stream in (resting, running):
            await stream.send(write_request(b"", asks()))
            assert await stream.receive() == YES
        inbox.go = anyio.Event()
        await running.send(write_request(b"", asks()))
        await until(lambda: len(inbox.taken) == 3)

        async def end_soon() -> None:
            assert await read_all(resting) == b""
            inbox.go.set()

        tasks.start_soon(end_soon)
    assert await read_all(running) == YES
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as late:
        late.connect(host.address.path)
    for stream in (resting, running):
        await stream.aclose()


async def test_what_runs_longer_than_that_is_cut(folder: Path) -> None:
    inbox = ScriptedInbox()
    inbox.go = anyio.Event()
    async with served(folder, inbox=inbox, grace_s=0.02) as host:
        stream = await connect(host)
        await stream.send(write_request(b"", asks()))
        await until(lambda: inbox.taken)
    assert await read_all(stream) == b""
    assert inbox.cancelled == 1
    await stream.aclose()
