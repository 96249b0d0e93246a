"""A resume that a bound refuses is held as long as is promised, and then asked to come again."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from clock_kit import asked, jumping_backend
from counterfoil import Limits, Scope
from gateway_kit import REVISION, Behind, Exchange, Upstream

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return jumping_backend(request.param)


async def stays_open(x: Exchange) -> None:
    await x.start()
    await x.wait_gone()


async def open_session(app: Any) -> dict[str, str]:
    params = {"protocolVersion": REVISION, "capabilities": {}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    async with asked(app, "POST", message) as opened:
        await opened.is_complete.wait()
    return {"mcp_session_id": opened.headers["mcp-session-id"], "mcp_protocol_version": REVISION}


CALL = {"jsonrpc": "2.0", "id": "own", "method": "tools/call", "params": {"name": "t"}}


async def test_at_a_bound_of_the_store_a_resume_is_held_for_twenty_seconds_and_then_asked_to_retry() -> None:
    behind = Behind(Upstream(stays_open, stays_open), limits=Limits(streams=1))
    async with behind.gateway.running():
        fields = await open_session(behind.gateway)
        async with asked(behind.gateway, "POST", CALL, **fields):
            await anyio.sleep(1)
            began = anyio.current_time()
            async with asked(behind.gateway, "GET", **fields) as put_off:
                await put_off.is_complete.wait()
            assert anyio.current_time() - began == pytest.approx(20, abs=0.2)
            assert put_off.status == 200
            assert "why=limit, next=retry" in put_off.headers["stream-continuity"]
            began = anyio.current_time()
            async with asked(
                behind.gateway, "GET", **fields, stream_continuity="v=1, want=(strict)"
            ) as strict:
                await strict.is_complete.wait()
            assert b'limit_hits_total{limit="streams"} 2' in behind.gateway.metrics.write(None)
            assert (strict.status, strict.headers["retry-after"]) == (503, "2")
            assert anyio.current_time() - began == pytest.approx(20, abs=0.2)


async def test_a_bound_that_passes_in_time_lets_the_resume_through() -> None:
    behind = Behind(Upstream(stays_open, stays_open), limits=Limits(streams=1))
    async with behind.gateway.running():
        other, fields = [await open_session(behind.gateway) for _ in range(2)]
        async with asked(behind.gateway, "POST", CALL, **other):
            await anyio.sleep(1)
            began = anyio.current_time()
            async with asked(behind.gateway, "GET", **fields) as held:
                await anyio.sleep(5)
                assert held.status == 0
                behind.store.delete_session(Scope(session=other["mcp_session_id"]))
                await held.is_open.wait()
                assert 5 < anyio.current_time() - began < 10
                assert "verdict=new" in held.headers["stream-continuity"]
