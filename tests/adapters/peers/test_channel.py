"""Connections to peers are kept between requests, replaced when they have ended, and closed to cancel."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.peers import channel as channel_module
from counterfoil.adapters.peers.channel import Address, Channels
from counterfoil.adapters.peers.frames import END, Kind, write_frame, write_request
from counterfoil.adapters.peers.seals import Seals
from counterfoil.adapters.peers.wire import Head, Hold, Line, Said, write_line
from counterfoil.errors import PeerAbsent, PeerBroken
from counterfoil.native import KeyRing
from peer_kit import ScriptedInbox, Served, asks, forwards, served, unsealed, until
from tls_kit import make_tls

pytestmark = pytest.mark.anyio

KEYS = KeyRing.from_secret(bytes(32), made_s=1)
OPEN = [(b"content-type", b"text/event-stream")]


async def ask(channels: Channels, host: Served, *, repeats: bool = True) -> Line:
    async with channels.open(host.address, unsealed(asks()), repeats=repeats, connect_s=5) as reply:
        return reply.line


async def answer_twice(receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": OPEN})
    await send({"type": "http.response.body", "body": b"a" * 300_000, "more_body": True})
    await send({"type": "http.response.body", "body": b"b", "more_body": False})


async def test_one_connection_carries_one_request_after_another(folder: Path) -> None:
    channels = Channels()
    async with served(folder, answer_twice) as host, channels.keeping():
        for _ in range(3):
            assert await ask(channels, host) == Said("yes")
            async with channels.open(host.address, unsealed(forwards()), repeats=True, connect_s=5) as reply:
                assert reply.line == Head(200, tuple(OPEN))
                body = b""
                while not reply.is_whole:
                    body += (await reply.receive(silence_s=5)).view
                assert body == b"a" * 300_000 + b"b"
        assert host.connections == 1
        assert host.counts.requests == {"Report": 3, "Forwarded": 3}


async def test_so_it_does_behind_tls_and_who_has_no_certificate_gets_nothing(folder: Path) -> None:
    tls = make_tls(folder)
    trusting = ssl.create_default_context(cafile=tls.ca)
    known = ssl.create_default_context(cafile=tls.ca)
    known.load_cert_chain(tls.certificate, tls.key)
    seals, channels = Seals(KEYS, time.time), Channels()

    def sealed() -> bytes:
        return write_request(seals.make(asks()), asks())

    async with served(folder, seals=Seals(KEYS, time.time), tls=tls) as host, channels.keeping():
        for _ in range(3):
            async with channels.open(host.address, sealed, repeats=True, connect_s=5, tls=known) as reply:
                assert reply.line == Said("yes")
        assert host.connections == 1
        for context in (trusting, ssl.create_default_context(), None):
            with pytest.raises(PeerBroken):
                async with channels.open(host.address, sealed, repeats=True, connect_s=5, tls=context):
                    pass
        assert host.counts.requests == {"Report": 3}
        async with channels.open(host.address, sealed, repeats=True, connect_s=5, tls=known) as reply:
            assert reply.line == Said("yes")
        await until(lambda: host.connections == 1)


async def test_requests_at_once_have_a_connection_each_and_so_many_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "MOST_AT_REST", 2)
    channels, inbox = Channels(), ScriptedInbox()
    inbox.go = anyio.Event()
    async with served(folder, inbox=inbox) as host, channels.keeping():
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask, channels, host)
            await until(lambda: len(inbox.taken) == 5)
            assert host.connections == 5
            inbox.go.set()
        await until(lambda: host.connections <= 2)


async def test_nothing_rests_but_while_connections_are_kept(folder: Path) -> None:
    channels = Channels()
    async with served(folder) as host:
        await ask(channels, host)
        async with channels.keeping():
            await ask(channels, host)
        await until(lambda: not host.connections)


async def test_a_connection_that_rested_too_long_is_not_used_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = Channels()
    async with served(folder) as host, channels.keeping():
        await ask(channels, host)
        monkeypatch.setattr(channel_module, "REST_S", -1.0)
        seen = host.server._connections
        await ask(channels, host)
        await until(lambda: host.connections <= seen)
        assert len(host.inbox.taken) == 2


async def test_a_connection_whose_process_died_is_replaced_by_one_to_its_heir(folder: Path) -> None:
    channels = Channels()
    async with channels.keeping():
        async with served(folder) as host:
            await ask(channels, host)
        with pytest.raises(PeerAbsent):
            await ask(channels, host)
        async with served(folder) as heir:
            assert await ask(channels, heir) == Said("yes")


async def test_one_that_breaks_under_a_request_is_replaced_only_where_it_may_be_sent_twice(
    folder: Path,
) -> None:
    """The first connection answers once; what comes on it after that is lost, perhaps half done."""
    requests = 0

    async def serve(stream: SocketStream) -> None:
        nonlocal requests
        async with stream:
            for number in range(2):
                try:
                    await stream.receive()
                except anyio.EndOfStream:
                    return
                requests += 1
                if number:
                    return
                await stream.send(write_frame(Kind.LINE, write_line(Said("yes"))))

    path = str(folder / "s")
    channels = Channels()
    listener = await anyio.create_unix_listener(path)
    async with listener, channels.keeping(), anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        address = Address(path=path)
        for _ in range(2):  # the second on the first one's connection, then on one of its own
            async with channels.open(address, unsealed(asks()), repeats=True, connect_s=5) as reply:
                assert reply.line == Said("yes")
        assert requests == 3
        async with channels.open(address, unsealed(asks()), repeats=False, connect_s=5) as reply:
            assert reply.line == Said("yes")
        assert requests == 4
        tasks.cancel_scope.cancel()


async def test_leaving_before_all_was_read_cancels_it_over_there_and_keeps_no_connection(
    folder: Path,
) -> None:
    left = anyio.Event()

    async def answer(receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        assert await receive() == {"type": "http.disconnect"}
        left.set()

    channels = Channels()
    async with served(folder, answer) as host, channels.keeping():
        async with channels.open(host.address, unsealed(forwards()), repeats=True, connect_s=5) as reply:
            assert (await reply.receive(silence_s=5)).view == b"a"
        await left.wait()
        await until(lambda: not host.connections)


async def test_a_socket_that_nobody_listens_at_is_absent_at_once(folder: Path) -> None:
    dead = str(folder / "dead")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(dead)
        listener.listen()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for address in (
        Address(path=dead),
        Address(path=str(folder / "none")),
        Address(host="127.0.0.1", port=port),
        Address(host="localhost", port=port),
    ):
        with pytest.raises(PeerAbsent):
            async with Channels().open(address, unsealed(b""), repeats=True, connect_s=5):
                pass


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n",
        write_frame(Kind.LINE, b"garbage"),
        write_frame(Kind.LINE, write_line(Hold())),
        write_frame(Kind.LINE, write_line(Said("yes")))[:-1],
        write_frame(Kind.BODY, b"body"),
        END,
        write_frame(Kind.LINE, bytes(300_000)),
        bytes(300_000),
    ],
    ids=["nothing", "ssh", "refused", "garbage", "hold", "half", "body", "end", "endless", "zeros"],
)
async def test_a_peer_that_says_anything_else_is_broken(folder: Path, said: bytes) -> None:
    path = str(folder / "s")

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            with suppress(anyio.BrokenResourceError):
                await stream.send(said)

    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        with pytest.raises(PeerBroken):
            async with Channels().open(Address(path=path), unsealed(b"b"), repeats=True, connect_s=5):
                pass
        tasks.cancel_scope.cancel()


async def test_a_silent_peer_is_broken_in_time_and_one_that_holds_is_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "SILENCE_S", 0.25)
    path = str(folder / "s")

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            for _ in range(4):
                await anyio.sleep(0.1)
                await stream.send(write_frame(Kind.LINE, write_line(Hold())))
            await stream.send(write_frame(Kind.LINE, write_line(Head(200, ()))))
            await stream.send(write_frame(Kind.BODY, b"body"))
            await anyio.sleep(5)

    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        async with Channels().open(
            Address(path=path), unsealed(b"b"), repeats=True, connect_s=5, within_s=0.25
        ) as reply:
            assert reply.line == Head(200, ())
            assert (await reply.receive(silence_s=1)).view == b"body"
            with pytest.raises(PeerBroken, match="silent"):
                await reply.receive(silence_s=0.1)
        with pytest.raises(PeerBroken, match="silent"):
            async with Channels().open(
                Address(path=path), unsealed(b"b"), repeats=True, connect_s=5, within_s=0.02
            ):
                pass
        tasks.cancel_scope.cancel()
