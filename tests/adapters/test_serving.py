"""One app, two servers: uvicorn under asyncio, hypercorn under trio."""

from __future__ import annotations

import anyio
import httpx2
import pytest
from counterfoil.adapters.serving import listen, serve_app, serving

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
