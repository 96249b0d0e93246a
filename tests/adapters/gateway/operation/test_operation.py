"""What operators lean on: admin pages, metric names, the budget's policy, and observing without touching."""

from __future__ import annotations

import anyio
import httpx2
import pytest
from counterfoil.adapters.gateway.operation.admin import AdminApp
from counterfoil.adapters.serving import serving
from counterfoil.limits import Limits
from counterfoil.model.verdicts import Resumed
from gateway_kit import Exchange, Upstream, note, scripted

pytestmark = pytest.mark.anyio

UUID = "1-6f2c9e0b7d514c3a8e21"


async def on_call(x: Exchange) -> None:
    await x.start()
    await x.note(1, event_id=UUID)
    await x.result(event_id="2-6f2c9e0b7d514c3a8e22")
    await x.end()


async def test_admin_tells_health_readiness_metrics_and_status() -> None:
    async with scripted(Upstream(on_call)) as (raw, behind), serving(AdminApp(behind.gateway)) as admin:
        async with raw.call() as stream:
            cursor = (await stream.next()).id
            await stream.rest()
        async with raw.get(cursor) as again:
            await again.rest()
        get = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{admin}")
        async with get:
            assert (await get.get("/healthz")).status_code == 200
            assert (await get.get("/readyz")).json() == {"ready": True}
            text = (await get.get("/metrics")).text
            status = (await get.get("/status")).json()
            assert (await get.get("/other")).status_code == 404
            assert (await get.post("/status")).status_code == 405
            behind.gateway.drain()
            assert (await get.get("/readyz")).status_code == 503
    assert 'counterfoil_resumes_total{verdict="resumed",why="held"} 1' in text
    assert 'counterfoil_reader_ends_total{reason="ended"} 2' in text
    assert "counterfoil_indeterminate 0" in text
    assert "counterfoil_relay_seconds_count " in text
    assert "counterfoil_window_events 2\n" in text
    assert "counterfoil_window_bytes " in text
    assert status["store"]["appended"] == 2


async def test_at_the_budget_a_call_is_refused_with_when_to_come_again() -> None:
    limits = Limits(session_streams=1)
    go_on = anyio.Event()

    async def waits(x: Exchange) -> None:
        await x.start()
        await x.note(1)
        await go_on.wait()

    upstream = Upstream(waits)
    async with scripted(upstream, limits=limits) as (raw, _), raw.call() as first:
        await first.message()
        refused = await raw.post("tools/call", request_id=2)
        go_on.set()
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert upstream.count("POST", "tools/call") == 1


async def test_at_the_budget_a_call_may_be_relayed_without_ids_instead_and_says_so() -> None:
    limits = Limits(session_streams=1)
    go_on = anyio.Event()

    async def waits(x: Exchange) -> None:
        if x.message["id"] == 2:
            await on_call(x)
            return
        await x.start()
        await x.note(1)
        await go_on.wait()

    relaying = scripted(Upstream(waits), limits=limits, on_budget="relay-unresumable")
    async with relaying as (raw, _), raw.call() as first:
        await first.message()
        async with raw.call(request_id=2) as second:
            messages = await second.rest()
        go_on.set()
    assert "why=unresumable" in second.claim
    assert [event.id for event in second.events] == [None, None]
    assert messages[1]["result"] == "done"


async def test_observing_changes_no_byte_and_tells_what_the_verdict_would_have_been() -> None:
    body = (
        f"id: {UUID}\ndata: {note(1)}\n\n".replace("'", '"').encode()
        + b'event: message\r\nid: 2-6f\r\ndata: {"jsonrpc":"2.0","id":1,"result":1}\r\n\r\n'
    )

    async def exact(x: Exchange) -> None:
        await x.start(x_own="1")
        for at in range(0, len(body), 13):
            await x.send(body[at : at + 13])
        await x.end()

    cursors: list[str | None] = []

    async def replay(x: Exchange) -> None:
        cursors.append(x.headers.get("last-event-id"))
        await x.start()
        await x.send(b"id: 2-6f\r\n: as the upstream says\r\n\r\n")
        await x.end()

    async with scripted(Upstream(exact, replay), observe=True) as (raw, behind):
        async with raw.call() as stream:
            await stream.rest()
        async with raw.get(UUID) as again:
            await again.rest()
        async with raw.get("never-seen") as other:
            await other.rest()
    assert stream.raw == body
    assert "stream-continuity" not in stream.answer.headers
    assert stream.answer.headers["x-own"] == "1"
    assert again.raw == b"id: 2-6f\r\n: as the upstream says\r\n\r\n"
    assert cursors == [UUID, "never-seen"]  # who only looks on passes them
    judged, foreign = behind.verdicts
    assert isinstance(judged, Resumed)
    assert judged.missed == 1
    assert foreign.why == "foreign-id"


async def test_draining_ends_standalone_streams_with_a_time_to_come_again_and_lets_calls_end() -> None:
    go_on = anyio.Event()

    async def waits(x: Exchange) -> None:
        await x.start()
        await x.note(1)
        await go_on.wait()
        await x.result()
        await x.end()

    async def on_get(x: Exchange) -> None:
        await x.start()
        await x.wait_gone()

    with anyio.fail_after(10):
        async with (
            scripted(Upstream(waits, on_get)) as (raw, behind),
            raw.get() as notices,
            raw.call() as call,
        ):
            await notices.next()
            await call.message()
            behind.gateway.drain()
            assert await notices.rest() == []
            retry = [int(line[6:]) for line in notices.raw.decode().splitlines() if line.startswith("retry:")]
            assert 50 <= retry[-1] <= 150
            go_on.set()
            assert (await call.rest())[-1]["result"] == "done"
