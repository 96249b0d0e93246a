"""What happens between gateway and upstream is resumed by the upstream's ids, or told; never passed over."""

from __future__ import annotations

import anyio
import pytest
from counterfoil.adapters.serving import serving
from counterfoil.model.verdicts import Resumed
from counterfoil.native import EventId
from gateway_kit import Exchange, Upstream, in_band, note, scripted

pytestmark = pytest.mark.anyio

#: Ids that nobody guesses, so that one that comes back proves that the cursor was honoured.
IDS = [f"{n}-6f2c9e0b7d514c3a8e21" for n in range(4)]


async def test_an_upstream_that_polls_is_asked_again_and_the_client_sees_one_stream() -> None:
    async def on_call(x: Exchange) -> None:
        await x.start()
        await x.send(f"id: {IDS[0]}\nretry: 30\ndata:\n\n".encode())
        await x.note(1, event_id=IDS[1])
        await x.end()

    async def on_get(x: Exchange) -> None:
        await x.start()
        if "last-event-id" not in x.headers:
            await x.wait_gone()
            return
        asked.append(x.headers["last-event-id"])
        await x.note(1, event_id=IDS[1])  # the event we know: proof that the cursor was honoured
        await x.note(2, event_id=IDS[2])
        await x.event({"jsonrpc": "2.0", "id": 1, "result": "done"}, event_id=IDS[3])
        await x.end()

    asked: list[str] = []
    with anyio.fail_after(15):
        async with scripted(Upstream(on_call, on_get)) as (raw, _), raw.call() as stream:
            messages = await stream.rest()
    assert [m.get("params", {}).get("progress") for m in messages[:2]] == [1, 2]
    assert messages[2]["result"] == "done"
    assert len(messages) == 3
    assert asked == [IDS[0]]


async def test_plain_numbers_prove_nothing_so_a_poll_with_them_ends_as_indeterminate() -> None:
    async def on_call(x: Exchange) -> None:
        await x.start()
        await x.send(b"id: 0\nretry: 30\ndata:\n\n")
        await x.note(1, event_id="1")
        await x.end()

    async def on_get(x: Exchange) -> None:
        await x.start()
        if "last-event-id" in x.headers:
            await x.note(2, event_id="2")
        await x.wait_gone()

    with anyio.fail_after(15):
        async with scripted(Upstream(on_call, on_get)) as (raw, _), raw.call() as stream:
            *notes, error = await stream.rest()
    assert notes == [note(1)]
    assert in_band(error)["why"] == "no-overlap"


async def test_without_ids_a_broken_upstream_ends_the_call_as_indeterminate_at_once() -> None:
    async def on_call(x: Exchange) -> None:
        await x.start()
        await x.note(1)
        raise RuntimeError("broken")

    upstream = Upstream(on_call)
    with anyio.fail_after(5):
        async with scripted(upstream) as (raw, _), raw.call(request_id="own") as stream:
            *notes, error = await stream.rest()
    assert notes == [note(1)]
    assert error["id"] == "own"
    assert in_band(error)["executed"] == "unknown"
    assert upstream.count("POST", "tools/call") == 1
    assert upstream.count("GET") == 0


async def test_an_upstream_that_forgot_its_stream_ends_the_call_without_laundering_the_gap() -> None:
    async def on_call(x: Exchange) -> None:
        await x.start()
        await x.note(1, event_id="7")
        await x.note(2, event_id="8")
        raise RuntimeError("broken")

    async def on_get(x: Exchange) -> None:
        await x.start()
        if "last-event-id" not in x.headers:
            await x.wait_gone()
            return
        await x.note(9, event_id="1")  # another life of the server: its ids begin again
        await x.wait_gone()

    with anyio.fail_after(15):
        async with scripted(Upstream(on_call, on_get)) as (raw, _), raw.call() as stream:
            *notes, error = await stream.rest()
    assert notes == [note(1), note(2)]
    assert in_band(error)["executed"] == "unknown"


async def test_a_refused_call_tells_its_status_and_that_it_did_not_run() -> None:
    ready = anyio.Event()

    async def on_call(x: Exchange) -> None:
        await ready.wait()
        await x.json({"error": "no"}, 403)

    async with scripted(Upstream(on_call), prime_after_ms=10) as (raw, _), raw.call() as stream:
        assert (await stream.next()).data == ""
        ready.set()
        (error,) = await stream.rest()
    facts = in_band(error)
    assert (facts["why"], facts["executed"], facts["evidence"]["status"]) == ("status", "no", 403)


async def test_an_answer_that_is_packed_all_the_same_ends_the_call_typed() -> None:
    async def on_call(x: Exchange) -> None:
        await anyio.sleep(0.1)
        await x.start(content_encoding="gzip")
        await x.send(b"\x1f\x8b", more=False)

    async with scripted(Upstream(on_call), prime_after_ms=10) as (raw, _), raw.call() as stream:
        (error,) = await stream.rest()
    assert in_band(error)["executed"] == "unknown"


async def test_a_refusal_that_comes_in_time_passes_as_it_is() -> None:
    async def on_call(x: Exchange) -> None:
        await x.json({"error": "no"}, 401, www_authenticate="Bearer")

    async with scripted(Upstream(on_call), prime_after_ms=5_000) as (raw, behind):
        answer = await raw.post("tools/call")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert behind.store.statistics().live_streams == 0


async def test_after_a_refusal_nothing_opens_early_until_the_upstream_let_the_caller_in() -> None:
    waits = [0.3, 0.3, 0.3]

    async def on_call(x: Exchange) -> None:
        await anyio.sleep(waits.pop(0))
        await x.json({"jsonrpc": "2.0", "id": 1, "result": 1}, 200 if len(waits) == 1 else 401)

    async with scripted(Upstream(on_call), prime_after_ms=20) as (raw, _):
        async with raw.call() as first:
            assert "verdict=new" in first.claim
            assert in_band((await first.rest())[0])["evidence"]["status"] == 401
        assert (await raw.post("tools/call")).headers["content-type"] == "application/json"
        async with raw.call() as third:
            assert "verdict=new" in third.claim


async def test_a_client_that_leaves_does_not_close_the_upstream_of_its_call() -> None:
    seen: list[Exchange] = []
    go_on = anyio.Event()

    async def on_call(x: Exchange) -> None:
        seen.append(x)
        await x.start()
        await x.note(1)
        await go_on.wait()
        await x.result()
        await x.end()

    with anyio.fail_after(10):
        async with scripted(Upstream(on_call)) as (raw, behind):
            async with raw.call() as stream:
                echo = await stream.next()
                assert await stream.message() == note(1)
            await anyio.sleep(0.05)
            go_on.set()
            assert echo.id is not None
            async with raw.get(echo.id) as again:
                messages = await again.rest()
            assert [m.get("result") for m in messages] == [None, "done"]
            (verdict,) = behind.resumed
            assert isinstance(verdict, Resumed)
            assert behind.store.statistics().live_streams == 0


async def test_a_newer_revision_passes_through_and_a_close_closes_the_upstream() -> None:
    closed = anyio.Event()

    async def on_call(x: Exchange) -> None:
        assert "last-event-id" not in x.headers
        await x.start()
        await x.note(1, event_id="theirs")
        await x.wait_gone()
        closed.set()

    with anyio.fail_after(5):
        async with scripted(Upstream(on_call)) as (raw, behind):
            raw.fields["mcp-protocol-version"] = "2026-07-28"
            async with raw.call(last_event_id="cf1.x") as stream:
                assert (await stream.next()).id == "theirs"
                assert stream.claim == ""
            await closed.wait()
            assert behind.store.statistics().appended == 0


async def test_a_standalone_upstream_with_ids_is_resumed_by_them_and_keeps_its_epoch() -> None:
    asked: list[str | None] = []

    async def on_get(x: Exchange) -> None:
        asked.append(x.headers.get("last-event-id"))
        await x.start()
        if len(asked) == 1:
            await x.send(f"id: {IDS[0]}\nretry: 20\ndata:\n\n".encode())
            await x.note(1, event_id=IDS[1])
            await x.end()
            return
        await x.note(1, event_id=IDS[1])
        await x.note(2, event_id=IDS[2])
        await x.wait_gone()

    with anyio.fail_after(15):
        async with scripted(Upstream(on_get=on_get, tools={})) as (raw, _), raw.get() as stream:
            assert await stream.message() == note(1)
            assert await stream.message() == note(2)
    first, second = (EventId(event.id or "") for event in stream.events if event.data)
    assert (first.epoch, first.sequence, second.epoch, second.sequence) == (first.epoch, 1, first.epoch, 2)
    assert asked == [None, IDS[0]]


async def test_a_standalone_upstream_that_forgot_gives_a_new_epoch_and_the_loss_is_told() -> None:
    asked: list[str | None] = []

    async def on_get(x: Exchange) -> None:
        asked.append(x.headers.get("last-event-id"))
        await x.start()
        if len(asked) == 1:
            await x.send(f"id: {IDS[0]}\nretry: 20\ndata:\n\n".encode())
            await x.note(1, event_id=IDS[1])
            await x.end()
            return
        await x.note(7, event_id=f"other-{IDS[3]}")
        await x.wait_gone()

    with anyio.fail_after(15):
        async with scripted(Upstream(on_get=on_get, tools={})) as (raw, _), raw.get() as stream:
            assert await stream.message() == note(1)
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            assert await stream.message() == note(7)
    ours = [EventId(event.id) for event in stream.events if event.data and event.id]
    assert ours[0].epoch != ours[1].epoch
    assert ours[1].sequence == 1


async def test_the_upstreams_standalone_stream_is_closed_a_while_after_its_last_reader() -> None:
    gone = anyio.Event()

    async def on_get(x: Exchange) -> None:
        await x.start()
        await x.note(1)
        await x.wait_gone()
        gone.set()

    with anyio.fail_after(10):
        async with scripted(Upstream(on_get=on_get), standalone_linger_s=0.1) as (raw, _):
            async with raw.get() as stream:
                await stream.message()
                await anyio.sleep(0.2)
                assert not gone.is_set()
            await gone.wait()


async def test_beyond_the_connections_it_takes_a_call_is_refused_and_a_resume_asked_to_come_again() -> None:
    go_on = anyio.Event()

    async def on_call(x: Exchange) -> None:
        await x.start()
        await x.note(1)
        await go_on.wait()
        await x.result()
        await x.end()

    upstream = Upstream(on_call)
    with anyio.fail_after(10):
        async with scripted(upstream, reads_at_once=1) as (raw, _), raw.call() as stream:
            cursor = (await stream.next()).id
            assert (await raw.post("tools/call", request_id=2)).status_code == 503
            async with raw.get(cursor) as again:
                assert "why=limit, next=retry" in again.claim
                assert (await again.next()).id == cursor
                assert b"retry: 2000" in again.raw
            async with raw.get(cursor) as again:
                assert "next=retry" in again.claim
                await again.rest()
                assert b"retry: 4000" in again.raw
            async with raw.get(cursor, stream_continuity="v=1") as again:
                assert "next=retry" in again.claim
                assert await again.rest() == []
                assert b"retry: 8000" in again.raw
                assert b"\nid:" not in again.raw  # who knows us keeps its cursor without an echo
            async with raw.get(cursor) as last:  # the fourth time: nobody is put off for ever
                (error,) = await last.rest()
                assert in_band(error)["why"] == "unknown-stream"
            go_on.set()
            assert (await stream.rest())[-1]["result"] == "done"
    assert upstream.count("POST", "tools/call") == 1


async def test_a_redirect_is_passed_on_and_never_followed_so_credentials_stay_where_they_belong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    elsewhere = Upstream()
    caplog.set_level("DEBUG", "counterfoil")

    async with serving(elsewhere) as other:

        async def on_call(x: Exchange) -> None:
            if x.message["id"] == "stream":
                await x.start()
                await x.note(1)
                await x.result()
                await x.end()
            else:
                await x.json({}, 307, location=f"http://127.0.0.1:{other}/mcp")

        upstream = Upstream(on_call)
        async with scripted(upstream) as (raw, behind):
            token, session = "Bearer s3cret-token", raw.fields["mcp-session-id"]
            moved = await raw.post("tools/call", authorization=token)
            assert moved.status_code == 307
            assert elsewhere.seen == []
            async with raw.call(request_id="stream", authorization=token) as stream:
                cursor = str((await stream.next()).id)
                await stream.rest()
            async with raw.get(cursor, authorization=token) as again:
                await again.rest()
            assert upstream.seen[-1].headers["authorization"] == token
            told = caplog.text + behind.gateway.metrics.write(await behind.gateway.statistics()).decode()
    assert '"verdict":"resumed"' in told
    for secret in ("s3cret", session, cursor, "tools/call"):
        assert secret not in told
