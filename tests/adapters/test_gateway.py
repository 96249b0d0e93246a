"""The gateway as its users meet it: a real SDK client, the gateway, a real SDK server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.gateway.upstream import header_of
from counterfoil.adapters.serving import listen, serving
from counterfoil.programs.demo.server import build_app
from mcp import Client

pytestmark = [
    pytest.mark.anyio,
    # The SDK's client drops httpx2's generators half read, which trio reports when they are collected.
    pytest.mark.filterwarnings("ignore:.*Async generator:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*async_generator:pytest.PytestUnraisableExceptionWarning"),
]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ORDER = {"call": "one", "steps": 5, "pause_ms": 5}


async def ignore(_progress: float, _total: float | None, _message: str | None) -> None:
    pass


@asynccontextmanager
async def gateway_to_server(effects: Path, **settings: Any) -> AsyncIterator[int]:
    async with serving(build_app(effects)) as server:
        gateway = Gateway(upstream=f"http://127.0.0.1:{server}/mcp", settings=GatewaySettings(**settings))
        async with serving(gateway) as port:
            yield port


def test_header_of_finds_the_first_field_of_a_name() -> None:
    assert header_of(((b"a", b"1"), (b"b", b"2"), (b"b", b"3")), b"b") == b"2"
    assert header_of(((b"a", b"1"),), b"b") is None


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_of_every_revision_gets_its_answer(tmp_path: Path, mode: str) -> None:
    with anyio.fail_after(20):
        async with (
            gateway_to_server(tmp_path / "e") as port,
            Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client,
        ):
            result = await client.call_tool("order", ORDER, progress_callback=ignore)
    assert result.content[0].text == "receipt for one"  # type: ignore[union-attr]


async def test_an_upstream_that_is_down_is_told_at_once_and_as_not_applied() -> None:
    listener = listen()
    gateway = Gateway(upstream=f"http://127.0.0.1:{listener.getsockname()[1]}/mcp")
    listener.close()
    async with serving(gateway) as port, httpx2.AsyncClient() as client:
        answer = await client.post(
            f"http://127.0.0.1:{port}", json={"jsonrpc": "2.0", "id": 1, "method": "m"}
        )
    assert answer.status_code == 502
    assert "not applied" in answer.json()["error"]["message"]
