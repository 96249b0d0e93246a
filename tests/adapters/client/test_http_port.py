"""One exchange over a real socket: given up in the middle it ends quietly, whatever has arrived by then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest
from counterfoil.adapters.client.http_port import open_port
from counterfoil.adapters.gateway.upstream.upstream_url import UrlUpstream
from counterfoil.adapters.gateway.wire.upstream_port import UpstreamRequest

pytestmark = pytest.mark.anyio
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@asynccontextmanager
async def server_that_breaks_off() -> AsyncIterator[str]:
    """One chunk, the beginning of another, and the end."""

    async def serve(connection: anyio.abc.SocketStream) -> None:
        async with connection:
            await connection.receive()
            await connection.send(HEAD + b"9\r\ndata: 1\n\n\r\n")
            await anyio.sleep(0.02)
            await connection.send(b"9\r\nda")

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/mcp"
        tasks.cancel_scope.cancel()


async def test_leaving_an_exchange_that_has_broken_off_meanwhile_raises_nothing() -> None:
    with anyio.fail_after(10):
        async with (
            server_that_breaks_off() as url,
            open_port(url, client=None, headers={}) as port,
            port.exchange("GET", {}) as exchange,
        ):
            assert await anext(exchange.pieces) == b"data: 1\n\n"
            await anyio.sleep(0.1)  # the rest arrives, and nobody reads it


async def test_the_gateways_upstream_ends_as_quietly() -> None:
    with anyio.fail_after(10):
        async with server_that_breaks_off() as url:
            upstream = UrlUpstream(url)
            request = UpstreamRequest(method="GET", target=b"", headers=(), body=b"")
            async with upstream.running(), upstream.call(request) as answer:
                assert await answer.receive() == b"data: 1\n\n"
                await anyio.sleep(0.1)
