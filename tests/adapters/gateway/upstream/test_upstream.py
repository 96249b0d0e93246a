"""The narrow port keeps its promises over a URL and over an app in the process alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from counterfoil.adapters.gateway.upstream.upstream_app import AppUpstream
from counterfoil.adapters.gateway.upstream.upstream_url import UrlUpstream
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamRequest, header_of
from counterfoil.adapters.serving import listen, serving
from counterfoil.errors import UpstreamBroken, UpstreamUnreachable

pytestmark = pytest.mark.anyio


class Server:
    """An app whose answers the test chooses by path, and that tells what it saw."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.gone = anyio.Event()
        self.go_on = anyio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = (await receive())["body"]
        self.seen.append({"scope": scope, "body": body})
        path = scope["path"]
        if path.endswith("/fails"):
            raise RuntimeError("no answer")
        headers = [(b"Content-Type", b"text/event-stream"), (b"X-Two", b"a"), (b"X-Two", b"b")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        if path.endswith("/waits"):
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone.set()
            await self.go_on.wait()
            return
        if path.endswith("/breaks"):
            raise RuntimeError("in the middle")
        await self.go_on.wait()
        await send({"type": "http.response.body", "body": b"two"})


@asynccontextmanager
async def opened(kind: str, server: Server) -> AsyncIterator[Upstream]:
    if kind == "app":
        upstream: Upstream = AppUpstream(server, root_path="/mcp")
        async with upstream.running():
            yield upstream
        return
    async with serving(server) as port:
        upstream = UrlUpstream(f"http://127.0.0.1:{port}/mcp")
        async with upstream.running():
            yield upstream


@pytest.fixture(params=["app", "url"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_cookie_that_one_caller_was_given_goes_with_no_other_request() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": f"{message['type']}.complete"})
            return
        seen.append(dict(scope["headers"]))
        cookie = (b"set-cookie", b"who=the-first; Path=/")
        await send({"type": "http.response.start", "status": 200, "headers": [cookie]})
        await send({"type": "http.response.body", "body": b"hello"})

    async with serving(app) as port:
        upstream = UrlUpstream(f"http://127.0.0.1:{port}/mcp")
        async with upstream.running():
            for headers in ((), ((b"cookie", b"who=the-second"),)):
                async with upstream.call(UpstreamRequest("GET", b"", headers)) as answer:
                    assert header_of(answer.headers, b"set-cookie") is not None
                    assert await answer.receive() == b"hello"
            async with upstream.call(UpstreamRequest("GET", b"", ())):
                pass
    assert [fields.get(b"cookie") for fields in seen] == [None, b"who=the-second", None]


async def test_pieces_arrive_before_the_answer_is_complete(kind: str) -> None:
    server = Server()
    with anyio.fail_after(10):
        async with opened(kind, server) as upstream:
            request = UpstreamRequest("POST", b"/x?q=1", ((b"x-own", b"7"),), b"body")
            async with upstream.call(request) as answer:
                assert answer.status == 201
                assert header_of(answer.headers, b"content-type") == b"text/event-stream"
                assert [value for name, value in answer.headers if name == b"x-two"] == [b"a", b"b"]
                assert await answer.receive() == b"one"
                server.go_on.set()
                assert [await answer.receive(), await answer.receive()] == [b"two", b""]
    (seen,) = server.seen
    assert seen["body"] == b"body"
    assert (seen["scope"]["path"], seen["scope"]["query_string"]) == ("/mcp/x", b"q=1")
    assert (b"x-own", b"7") in list(seen["scope"]["headers"])


async def test_closing_the_exchange_is_told_to_the_server_and_cancels_nothing(kind: str) -> None:
    server = Server()
    with anyio.fail_after(10):
        async with opened(kind, server) as upstream:
            async with upstream.call(UpstreamRequest("GET", b"/waits", ())) as answer:
                assert await answer.receive() == b"one"
            await server.gone.wait()
            server.go_on.set()


async def test_an_answer_that_breaks_off_is_no_complete_answer(kind: str) -> None:
    request = UpstreamRequest("GET", b"/breaks", ())
    with anyio.fail_after(10):
        async with opened(kind, Server()) as upstream, upstream.call(request) as answer:
            assert await answer.receive() == b"one"
            with pytest.raises(UpstreamBroken):
                await answer.receive()


async def test_a_port_that_nobody_listens_on_is_unreachable() -> None:
    listener = listen()
    port = listener.getsockname()[1]
    listener.close()
    upstream = UrlUpstream(f"http://127.0.0.1:{port}/mcp")
    async with upstream.running():
        with pytest.raises(UpstreamUnreachable):
            async with upstream.call(UpstreamRequest("GET", b"", ())):
                pass


async def test_an_app_that_raises_before_its_answer_is_answered_for_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        opened("app", Server()) as upstream,
        upstream.call(UpstreamRequest("GET", b"/fails", ())) as answer,
    ):
        assert answer.status == 500
        assert await answer.receive() == b"Internal Server Error"
        assert await answer.receive() == b""
    assert "RuntimeError: no answer" in caplog.text


async def test_an_app_is_told_to_shut_down_though_its_host_is_cancelled() -> None:
    told: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (kind := (await receive())["type"]) == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await anyio.lowlevel.checkpoint()  # what it saves takes time
        told.append(kind)
        await send({"type": "lifespan.shutdown.complete"})

    async with anyio.create_task_group() as tasks, AppUpstream(app).running():
        tasks.cancel_scope.cancel()
    assert told == ["lifespan.shutdown"]


@pytest.mark.parametrize("url", ["ftp://x/mcp", "http:///mcp", "http://x/mcp?a=b", "x/mcp"])
def test_a_url_that_is_no_upstream_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="upstream"):
        UrlUpstream(url)


async def test_an_idle_connection_is_given_up_before_the_server_closes_it() -> None:
    """Uvicorn does so after 5 s; a call that met it would be lost, and is not to be sent again."""
    server = Server()
    server.go_on.set()
    ports: dict[float, list[int]] = {}
    async with serving(server) as port:
        for keep_alive_s in (0.05, 2.0):
            upstream = UrlUpstream(f"http://127.0.0.1:{port}/mcp", keep_alive_s=keep_alive_s)
            async with upstream.running():
                for _ in range(2):
                    async with upstream.call(UpstreamRequest("POST", b"/", (), b"{}")) as answer:
                        while await answer.receive():
                            pass
                    ports.setdefault(keep_alive_s, []).append(server.seen[-1]["scope"]["client"][1])
                    await anyio.sleep(0.2)  # idle for longer than the one, for less than the other
    assert len(set(ports[0.05])) == 2
    assert len(set(ports[2.0])) == 1
