"""Streams of bytes between two processes: connected by name or path, accepted, ended behind what was said.

What they share with the upstream's connections is tested there.
"""

from __future__ import annotations

import socket
from pathlib import Path

import anyio
import pytest
from counterfoil.adapters.connections import Connection, accept, connect_tcp, connect_unix

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """They are made under asyncio only."""
    return "asyncio"


async def say_hello(listener: socket.socket, client: Connection) -> None:
    """Say something each way, and end behind it."""
    with listener:
        server = await accept(listener)
    try:
        await client.send(b"hello")
        assert await server.receive() == b"hello"
        await server.send(b"good")
        await server.send(b"bye")
        await server.send_eof()
        assert await client.receive() == b"goodbye"
        with pytest.raises(anyio.EndOfStream):
            await client.receive()
    finally:
        await server.aclose()
        await client.aclose()


async def test_what_is_said_before_an_end_arrives_before_it_by_tcp() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    client = await connect_tcp("localhost", listener.getsockname()[1])
    assert client.extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await say_hello(listener, client)


async def test_what_is_said_before_an_end_arrives_before_it_by_a_unix_socket(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    listener.setblocking(False)
    await say_hello(listener, await connect_unix(str(tmp_path / "s")))


async def test_an_accepted_connection_sends_small_pieces_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        client = await connect_tcp("127.0.0.1", listener.getsockname()[1])
        server = await accept(listener)
        assert server.extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await client.aclose()
        await server.aclose()


async def test_a_full_queue_of_a_unix_socket_is_waited_for(tmp_path: Path) -> None:
    """The kernel says no at once there, and gives no sign when there is room."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        listener.setblocking(False)
        first = await connect_unix(path)
        connections = [first]

        async def connect() -> None:
            connections.append(await connect_unix(path))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connect)
                await anyio.sleep(0.02)
                assert connections == [first]
                connections.append(await accept(listener))
        for connection in connections:
            await connection.aclose()


async def test_what_cannot_be_reached_says_so_once_for_each_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        await connect_tcp("127.0.0.1", port)
    with pytest.raises(FileNotFoundError):
        await connect_unix(str(tmp_path / "nobody"))
