"""One app, two servers: uvicorn under asyncio, hypercorn under trio."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

import anyio
import httpx2
import pytest
from counterfoil.adapters.serving import CONNECTION_QUEUE, listen, serve_app, serving

pytestmark = pytest.mark.anyio


async def app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": f"{message['type']}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def test_an_app_is_served_on_a_free_port() -> None:
    with anyio.fail_after(10):
        async with serving(app) as port, httpx2.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/")).text == "hello"


async def test_stop_ends_the_server_and_closes_the_port() -> None:
    listener = listen()
    port = listener.getsockname()[1]
    stop = anyio.Event()
    stop.set()
    with anyio.fail_after(10):
        await serve_app(app, listener, stop)
    with pytest.raises(OSError, match="attempts failed"):
        await anyio.connect_tcp("127.0.0.1", port)


def longest_queue() -> int:
    return int(Path("/proc/sys/net/core/somaxconn").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the length of the queue on Linux only")
async def test_clients_that_all_come_back_at_once_find_a_long_queue() -> None:
    """Hypercorn listens on the socket it is given anew, with a queue of 100 unless it is told otherwise."""
    listener = listen()
    watched, stop = listener.dup(), anyio.Event()
    with anyio.fail_after(10), watched:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_app, app, listener, stop)
            async with httpx2.AsyncClient() as client:
                await client.get(f"http://127.0.0.1:{watched.getsockname()[1]}/")
            facts = watched.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            stop.set()
    # Of a listening socket, `tcpi_sacked` is the length of its queue.
    assert struct.unpack_from("I", facts, 28)[0] == min(CONNECTION_QUEUE, longest_queue())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_small_writes_are_not_held_back_until_the_client_acknowledges(host: str) -> None:
    with listen(host) as listener, socket.create_connection(listener.getsockname()[:2]):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def stream_app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"1")]})
    if scope["path"] == "/later":
        await anyio.sleep(0.05)
    await send({"type": "http.response.body", "body": b"id: 1\ndata:\n\n", "more_body": True})
    await receive()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel counts segments on Linux only")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # hypercorn sends a head by itself
@pytest.mark.parametrize(("path", "segments"), [("/", 1), ("/later", 2)])
async def test_a_head_leaves_together_with_what_follows_it_at_once(path: str, segments: int) -> None:
    with anyio.fail_after(10):
        async with serving(stream_app) as port, await anyio.connect_tcp("127.0.0.1", port) as client:
            await client.send(f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
            received = b""
            while b"id: 1" not in received:
                received += await client.receive()
            assert received.startswith(b"HTTP/1.1 200")
            facts = client.extra(anyio.abc.SocketAttribute.raw_socket).getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, 160
            )
    assert struct.unpack_from("I", facts, 152)[0] == segments  # `tcpi_data_segs_in`
