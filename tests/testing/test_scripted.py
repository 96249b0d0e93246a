"""A scripted server writes exactly what its script says."""

from __future__ import annotations

import anyio
import httpx2
import pytest
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.scripted import Wire, open_scripted

pytestmark = pytest.mark.anyio


async def test_a_stream_has_the_events_that_the_script_wrote() -> None:
    async def script(_exchange: Exchange, wire: Wire) -> None:
        await wire.stream({"x-own": "1"})
        await wire.event(event_id="a", retry_ms=5)
        await wire.event({"n": 1}, event_id="b", name="other")
        await wire.end()

    with anyio.fail_after(5):
        async with open_scripted(script) as server, httpx2.AsyncClient() as client:
            for _ in range(2):  # the connection is kept
                answer = await client.get(server.url)
                assert answer.headers["x-own"] == "1"
                assert answer.text == ('id: a\nretry: 5\ndata: \n\nevent: other\nid: b\ndata: {"n":1}\n\n')
    assert len(server.exchanges) == 2


@pytest.mark.parametrize("reset", [False, True])
async def test_a_cut_breaks_the_connection(reset: bool) -> None:
    async def script(_exchange: Exchange, wire: Wire) -> None:
        await wire.stream()
        await wire.cut(reset=reset)

    with anyio.fail_after(5):
        async with open_scripted(script) as server, httpx2.AsyncClient() as client:
            with pytest.raises(httpx2.HTTPError):
                await client.get(server.url)


async def test_an_answer_that_is_not_over_stays_open() -> None:
    async def script(_exchange: Exchange, wire: Wire) -> None:
        await wire.stream()

    with anyio.fail_after(5):
        async with open_scripted(script) as server, httpx2.AsyncClient() as client:
            with pytest.raises(httpx2.ReadTimeout):
                await client.get(server.url, timeout=0.2)
