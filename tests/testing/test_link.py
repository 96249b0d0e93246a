"""The link carries bytes unchanged, and breaks where the plan says, by FIN or by RST."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link

pytestmark = pytest.mark.anyio

REQUEST = b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n01234567890123456789"


@asynccontextmanager
async def answering(answer: bytes = ANSWER) -> AsyncIterator[int]:
    async def serve(stream: SocketStream) -> None:
        async with stream:
            try:
                while await stream.receive():
                    await stream.send(answer)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def read_all(stream: SocketStream) -> tuple[bytes, str]:
    data = b""
    try:
        while True:
            data += await stream.receive()
    except anyio.EndOfStream:
        return data, "fin"
    except anyio.BrokenResourceError:
        return data, "rst"


async def test_without_a_plan_every_byte_passes_and_the_connection_is_kept() -> None:
    async with answering() as port, open_link(port) as link:
        async with await anyio.connect_tcp("127.0.0.1", link.port) as client:
            for _ in range(3):
                await client.send(REQUEST)
                data = b""
                while len(data) < len(ANSWER):
                    data += await client.receive()
                assert data == ANSWER
        assert [exchange.number for exchange in link.exchanges] == [1, 2, 3]
        assert link.cuts == []


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_the_connection_breaks_at_the_planned_byte_in_the_planned_way(how: str) -> None:
    cut = Cut("at-byte", how, position=50)  # type: ignore[arg-type]
    async with answering() as port, open_link(port, plan=lambda _exchange: cut) as link:
        async with await anyio.connect_tcp("127.0.0.1", link.port) as client:
            await client.send(REQUEST)
            with anyio.fail_after(5):
                assert await read_all(client) == (ANSWER[:50], how)
        (made,) = link.cuts
        assert (made.exchange.path, made.cut, made.passed) == ("/one", cut, 50)
    (answered,) = link.answered
    assert answered.number == 1
    assert answered.begun_s < answered.ended_s


async def test_each_request_goes_where_the_route_says() -> None:
    other = ANSWER.replace(b"200 OK", b"201 OK")
    async with answering() as first, answering(other) as second:

        async def route(exchange: Exchange) -> int:
            return first if exchange.number == 1 else second

        async with (
            open_link(first, route=route) as link,
            await anyio.connect_tcp("127.0.0.1", link.port) as client,
        ):
            await client.send(REQUEST)
            assert (await client.receive()).startswith(b"HTTP/1.1 200")
            await client.send(REQUEST)
            assert (await client.receive()).startswith(b"HTTP/1.1 201")


async def test_a_target_that_is_down_breaks_the_connection() -> None:
    async with answering() as port:
        pass
    async with open_link(port) as link, await anyio.connect_tcp("127.0.0.1", link.port) as client:
        await client.send(REQUEST)
        with anyio.fail_after(5):
            assert (await read_all(client))[0] == b""
