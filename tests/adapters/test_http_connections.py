"""Connections that are read all the time: bounded, nothing lost, and their end is noticed while they rest."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import httpcore2
import pytest
from counterfoil.adapters.connections import MOST_WAITING
from counterfoil.adapters.http_connections import NetworkStream, connect

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """They are made under asyncio only."""
    return "asyncio"


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[NetworkStream, socket.socket]]:
    """Yield a connection and the socket at its other end, which does not block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = await connect("127.0.0.1", listener.getsockname()[1], timeout=5)
        peer, _ = listener.accept()
        peer.setblocking(False)
        with peer, anyio.fail_after(20):
            try:
                yield stream, peer
            finally:
                await stream.aclose()


async def fill(peer: socket.socket) -> int:
    """Send until nothing more is taken for a while; return how much was."""
    sent = idle = 0
    while idle < 50:
        try:
            sent += peer.send(b"x" * 65_536)
            idle = 0
        except BlockingIOError:
            idle += 1
            await anyio.sleep(0.002)
    return sent


async def test_what_nobody_reads_stays_with_the_sender_beyond_a_bound_and_comes_whole_later() -> None:
    async with connected() as (stream, peer):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            peer.setsockopt(socket.SOL_SOCKET, option, 65_536)
            stream.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 65_536)
        sent = await fill(peer)
        assert sent < 4 * MOST_WAITING + (1 << 20)
        read = 0
        while read < sent:
            piece = await stream.read(10_000)
            assert 0 < len(piece) <= 10_000
            read += len(piece)
        peer.send(b"more")
        assert await stream.read(10_000) == b"more"


async def test_a_cancelled_or_timed_out_read_loses_nothing() -> None:
    async with connected() as (stream, peer):
        with anyio.move_on_after(0.01):
            await stream.read(100)
        with pytest.raises(httpcore2.ReadTimeout):
            await stream.read(100, timeout=0.01)
        peer.send(b"here")
        assert await stream.read(100) == b"here"


async def test_what_came_before_an_end_or_a_reset_is_read_first() -> None:
    async with connected() as (stream, peer):
        peer.send(b"last words")
        peer.shutdown(socket.SHUT_WR)
        assert await stream.read(4) == b"last"
        assert await stream.read(100) == b" words"
        assert await stream.read(100) == b""
        await stream.write(b"still heard")
        await anyio.lowlevel.checkpoint()  # it leaves at the end of the loop's turn
        assert peer.recv(100) == b"still heard"
    async with connected() as (stream, peer):
        peer.send(b"last words")
        while not stream.get_extra_info("is_readable"):
            await anyio.lowlevel.checkpoint()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        assert await stream.read(100) == b"last words"
        with pytest.raises(httpcore2.ReadError):
            await stream.read(100)
        with pytest.raises(httpcore2.WriteError):
            await stream.write(b"too late")


async def test_a_connection_at_rest_has_no_news_until_something_comes_unasked_or_it_ends() -> None:
    """The pool asks that before it sends a request on it."""
    for say in (lambda peer: peer.send(b"unasked"), lambda peer: peer.close()):
        async with connected() as (stream, peer):
            assert not stream.get_extra_info("is_readable")
            say(peer)
            while not stream.get_extra_info("is_readable"):
                await anyio.lowlevel.checkpoint()


async def test_a_write_waits_for_a_slow_peer_and_closing_ends_the_wait() -> None:
    async with connected() as (stream, peer):
        with pytest.raises(httpcore2.WriteTimeout):
            await _write_much(stream)
        async with anyio.create_task_group() as tasks:
            for use in (stream.write, stream.read):
                tasks.start_soon(_expect_closed, use)
            await anyio.sleep(0.01)
            await stream.aclose()
        assert peer.recv(10) == b"x" * 10


async def _write_much(stream: NetworkStream) -> None:
    for _ in range(1_000):
        await stream.write(b"x" * 65_536, timeout=0.05)


async def _expect_closed(use) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((httpcore2.ReadError, httpcore2.WriteError)):
        await use(b"x" if use.__name__ == "write" else 10)


async def test_addresses_are_told_and_a_refused_connection_is_a_connect_error() -> None:
    async with connected() as (stream, peer):
        assert stream.get_extra_info("server_addr") == peer.getsockname()
        assert stream.get_extra_info("client_addr") == peer.getpeername()
        assert stream.get_extra_info("ssl_object") is None
        port = peer.getsockname()[1]
    with pytest.raises(httpcore2.ConnectError):
        await connect("127.0.0.1", port, timeout=5)
