"""`initialize` is resumable from the moment its answer names the session, and primed by nobody."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest
from counterfoil.adapters.serving import serving
from counterfoil.native import EventId
from gateway_kit import REVISION, Behind, Exchange, Raw, Upstream, in_band, note, reading

pytestmark = pytest.mark.anyio


class StreamingInitialize(Upstream):
    """Answers `initialize` by a stream: a note first, the answer when the test says so."""

    def __init__(self, *, session: str | None = "session-1", breaks: bool = False) -> None:
        super().__init__()
        self.session = session
        self.breaks = breaks
        self.go_on = anyio.Event()

    async def _answer(self, exchange: Exchange) -> None:
        if not isinstance(exchange.message, dict) or exchange.message.get("method") != "initialize":
            await super()._answer(exchange)
            return
        fields = {"mcp_session_id": self.session} if self.session is not None else {}
        await exchange.start(**fields)
        await exchange.note(1, event_id="theirs-1")
        await self.go_on.wait()
        if self.breaks:
            raise RuntimeError("broken")
        result = {"protocolVersion": REVISION, "capabilities": {"tools": {}}, "serverInfo": {}}
        await exchange.result(result, event_id="theirs-2")
        await exchange.end()


def initialize(raw: Raw) -> Any:
    del raw.fields["mcp-protocol-version"]
    message = raw.message("initialize", {"protocolVersion": REVISION, "capabilities": {}}, "init")
    return raw.http.stream("POST", raw.url, json=message, headers=raw.fields)


async def test_a_cut_initialize_is_resumed_by_the_id_of_its_first_event() -> None:
    upstream = StreamingInitialize()
    with anyio.fail_after(10):
        async with serving(upstream) as port:
            behind = Behind(f"http://127.0.0.1:{port}/mcp")
            async with serving(behind.gateway) as own, httpx2.AsyncClient(timeout=20) as http:
                raw = Raw(http, f"http://127.0.0.1:{own}")
                async with initialize(raw) as sent, reading(sent) as stream:
                    assert "verdict=new" in stream.claim
                    assert await stream.message() == note(1)
                    (event,) = stream.events  # no priming: the revision is not agreed on yet
                    assert EventId(event.id or "").stream.request_id == "init"
                    assert b"retry" not in stream.raw
                    raw.fields["mcp-session-id"] = sent.headers["mcp-session-id"]
                upstream.go_on.set()
                raw.fields["mcp-protocol-version"] = REVISION
                async with raw.get(event.id) as again:
                    assert "verdict=resumed" in again.claim
                    (answer,) = await again.rest()
                assert (answer["id"], answer["result"]["protocolVersion"]) == ("init", REVISION)
                async with raw.get(event.id) as twice:
                    assert await twice.rest() == [answer]


async def test_an_initialize_that_breaks_off_ends_typed() -> None:
    upstream = StreamingInitialize(breaks=True)
    upstream.go_on.set()
    with anyio.fail_after(10):
        async with serving(upstream) as port:
            behind = Behind(f"http://127.0.0.1:{port}/mcp")
            async with serving(behind.gateway) as own, httpx2.AsyncClient(timeout=20) as http:
                raw = Raw(http, f"http://127.0.0.1:{own}")
                async with initialize(raw) as sent, reading(sent) as stream:
                    *_, error = await stream.rest()
                assert (error["id"], in_band(error)["executed"]) == ("init", "unknown")


async def test_a_stream_that_names_no_session_passes_as_it_is() -> None:
    upstream = StreamingInitialize(session=None)
    upstream.go_on.set()
    with anyio.fail_after(10):
        async with serving(upstream) as port:
            behind = Behind(f"http://127.0.0.1:{port}/mcp")
            async with serving(behind.gateway) as own, httpx2.AsyncClient(timeout=20) as http:
                raw = Raw(http, f"http://127.0.0.1:{own}")
                async with initialize(raw) as sent, reading(sent) as stream:
                    assert len(await stream.rest()) == 2
                assert [event.id for event in stream.events] == ["theirs-1", "theirs-2"]
                assert behind.store.statistics().live_streams == 0
