"""One send for what is written in one turn of the loop: in order, to the last byte, and felt as pressure."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from counterfoil.adapters.joined_writes import MOST_PENDING, JoinedWrites
from counterfoil.adapters.serving import serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """It lies under uvicorn, which is asyncio's."""
    return "asyncio"


class Counting:
    """Stands between and counts the sends."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.sends: list[bytes] = []
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.sends.append(data)
        self._transport.write(data)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[JoinedWrites, Counting, socket.socket]]:
    ours, peer = socket.socketpair()
    peer.setblocking(False)
    with peer:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        counting = Counting(transport)
        yield JoinedWrites(counting), counting, peer  # type: ignore[arg-type]
        transport.abort()
        await anyio.lowlevel.checkpoint()


async def test_what_is_written_in_one_turn_leaves_in_one_send() -> None:
    async with connected() as (joined, counting, peer):
        for piece in (b"head", b"lead", b"event"):
            joined.write(piece)
        assert counting.sends == []
        await anyio.lowlevel.checkpoint()
        joined.write(b"later")
        await anyio.lowlevel.checkpoint()
        assert counting.sends == [b"headleadevent", b"later"]
        assert peer.recv(100) == b"headleadeventlater"


async def test_much_is_not_put_off_so_that_pressure_is_felt() -> None:
    async with connected() as (joined, counting, _):
        joined.write(b"first")
        joined.write(b"x" * MOST_PENDING)
        assert b"".join(counting.sends) == b"first" + b"x" * MOST_PENDING
        # Its beginning leaves with what waited: a head and the first events behind it are not parted.
        assert [len(sent) for sent in counting.sends] == [5 + 2_048, MOST_PENDING - 2_048]
        await anyio.lowlevel.checkpoint()
        assert len(counting.sends) == 2


async def test_much_that_nothing_waits_before_is_sent_as_it_is() -> None:
    async with connected() as (joined, counting, _):
        much = b"x" * MOST_PENDING
        joined.write(much)
        assert counting.sends[0] is much
        joined.write(b"end")
        joined.close()
        await anyio.lowlevel.checkpoint()
        assert counting.sends[1:] == [b"end"]


async def test_small_pieces_that_are_much_together_are_not_put_off_either() -> None:
    async with connected() as (joined, counting, _):
        for _ in range(4):
            joined.write(b"x" * (MOST_PENDING // 4))
        assert [len(sent) for sent in counting.sends] == [MOST_PENDING]


async def test_closing_sends_what_was_written_and_aborting_does_not() -> None:
    async with connected() as (joined, counting, peer):
        joined.write(b"last words")
        joined.close()
        await anyio.lowlevel.checkpoint()
        assert joined.is_closing()
        assert peer.recv(100) == b"last words"
        assert peer.recv(100) == b""
    async with connected() as (joined, counting, peer):
        joined.write(b"never said")
        joined.abort()
        await anyio.lowlevel.checkpoint()
        assert counting.sends == []
        assert peer.recv(100) == b""


async def test_a_head_and_its_first_event_arrive_together_from_a_running_server() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": f"{message['type']}.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"id: 1\ndata:\n\n", "more_body": True})
        await anyio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"data: 2\n\n"})

    async with serving(app) as port, await anyio.connect_tcp("127.0.0.1", port) as client:
        for _ in range(20):
            await client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            first = await client.receive()
            assert first.startswith(b"HTTP/1.1 200")
            assert first.endswith(b"id: 1\ndata:\n\n\r\n")
            assert (await client.receive()).endswith(b"data: 2\n\n\r\n0\r\n\r\n")
