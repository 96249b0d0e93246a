"""The schedules in which the design's first wording broke, each at the wire (decisions, part 1)."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from counterfoil.adapters.serving import serving
from counterfoil.limits import Limits
from counterfoil.model.tokens import Why
from counterfoil.model.verdicts import Forged, Gap, New, Resumed, Unverifiable
from counterfoil.native import EventId
from gateway_kit import KEYS, Behind, Exchange, Raw, Stream, Upstream, in_band, note, scripted, until

pytestmark = pytest.mark.anyio

STRICT = {"stream_continuity": "v=1, want=(strict)"}
AWARE = {"stream_continuity": "v=1"}


class Calls:
    """Scripts a call that sends notes when the test says so, and its result at the end."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.started = anyio.Event()

    async def __call__(self, x: Exchange) -> None:
        await x.start()
        self.exchanges.append(x)
        self.started.set()
        await x.wait_gone()

    async def notes(self, first: int, last: int, which: int = -1) -> None:
        for number in range(first, last + 1):
            await self.exchanges[which].note(number)

    async def finish(self, which: int = -1) -> None:
        await self.exchanges[which].result()
        await self.exchanges[which].end()


class Standalone:
    """Scripts the upstream's standalone stream."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.closing: list[anyio.Event] = []

    async def __call__(self, x: Exchange) -> None:
        await x.start()
        self.exchanges.append(x)
        closing = anyio.Event()
        self.closing.append(closing)
        async with anyio.create_task_group() as tasks:

            async def close() -> None:
                await closing.wait()
                await x.end()
                tasks.cancel_scope.cancel()

            tasks.start_soon(close)
            await x.wait_gone()
            tasks.cancel_scope.cancel()


async def begin(stream: Stream, calls: Calls, notes: int) -> list[str]:
    """Read the echo and the first notes of a call; return all ids so far."""
    ids = [str((await stream.next()).id)]
    await calls.notes(1, notes)
    return ids + [str((await stream.next()).id) for _ in range(notes)]


def end_of(stream: Stream) -> str:
    """Return why the connection ended, as its `end` comment says."""
    (comment,) = [line for line in stream.raw.decode().splitlines() if " end " in line]
    return comment.rpartition("why=")[2]


def facts_of(claim: str) -> dict[str, str]:
    members = (member.strip().partition("=") for member in claim.split(","))
    return {name: value.strip('"') for name, _, value in members}


# --- S1, S2, S3: a refused cursor whose answer is not lost


async def test_s1_a_cursor_older_than_the_window_still_gets_the_answer_that_is_stored() -> None:
    calls = Calls()
    with anyio.fail_after(10):
        async with scripted(Upstream(calls), limits=Limits(window_events=5)) as (raw, behind):
            async with raw.call() as stream:
                ids = await begin(stream, calls, 1)
            await calls.notes(2, 30)
            await calls.finish()
            await until(lambda: behind.store.statistics().ended_streams)
            async with raw.get(ids[1]) as again:
                (answer,) = await again.rest()
    assert answer["result"] == "done"
    (verdict,) = behind.resumed
    assert isinstance(verdict, Gap)
    assert (verdict.first, verdict.next) == (2, "continue")


async def test_s1_an_answer_that_may_still_come_is_waited_for_and_nothing_else_is_passed() -> None:
    calls = Calls()
    with anyio.fail_after(10):
        async with scripted(Upstream(calls), limits=Limits(window_events=5)) as (raw, _):
            async with raw.call() as stream:
                ids = await begin(stream, calls, 1)
            await calls.notes(2, 30)
            async with raw.get(ids[1]) as again:
                assert (await again.next()).id == ids[1]  # S7: the echo of the position asked for
                await calls.notes(31, 33)
                await calls.finish()
                (answer,) = await again.rest()
    assert answer["result"] == "done"


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_client_that_knows_us_is_shown_no_id_where_its_cursor_was_refused(is_stored: bool) -> None:
    """Behind an intermediary that takes header and comments away an id would be all that is left to judge by:
    an echo reads as an acceptance, and an answer that stands at cursor + 1 as the next event.
    """
    calls = Calls()
    with anyio.fail_after(10):
        async with scripted(Upstream(calls), limits=Limits(window_events=5)) as (raw, _):
            async with raw.call(**STRICT) as stream:
                ids = await begin(stream, calls, 1)
            await calls.notes(2, 30)
            if is_stored:
                await calls.finish()
            async with raw.get(ids[1], **STRICT) as again:
                assert facts_of(again.claim)["verdict"] == "gap"
                if not is_stored:
                    await calls.finish()
                (answer,) = await again.rest()
    assert answer["result"] == "done"
    assert b"\nid:" not in again.raw


async def test_s2_a_strict_client_gets_200_where_an_answer_can_follow_and_409_where_none_can() -> None:
    calls = Calls()
    with anyio.fail_after(10):
        async with scripted(Upstream(calls), limits=Limits(window_events=5)) as (raw, behind):
            async with raw.call(**STRICT) as stream:
                ids = await begin(stream, calls, 1)
            await calls.notes(2, 30)
            await calls.finish()
            async with raw.get(ids[1], **STRICT) as again:
                assert again.status == 200
                facts = facts_of(again.claim)
                assert (facts["verdict"], facts["next"], facts["first"]) == ("gap", "continue", "2")
                assert (await again.rest())[0]["result"] == "done"
            other = Behind("http://127.0.0.1:9/mcp", keys=KEYS)
            async with serving(other.gateway) as second:
                elsewhere = Raw(raw.http, f"http://127.0.0.1:{second}")
                elsewhere.fields = raw.fields
                async with elsewhere.get(ids[1], **STRICT) as refused:
                    assert refused.status == 409
                    await refused.rest()
                    body = json.loads(refused.raw)
    assert in_band(body)["why"] == "unknown-stream"
    assert body["id"] == 1
    assert facts_of(refused.claim)["next"] == "reconcile"
    assert behind.verdicts


async def test_s3_comments_name_what_was_written_here_and_response_only_ones_the_epoch() -> None:
    calls = Calls()
    with anyio.fail_after(10):
        async with scripted(Upstream(calls), limits=Limits(window_events=5), beat_s=0.05) as (raw, _):
            async with raw.call(**AWARE) as stream:
                ids = await begin(stream, calls, 2)
                await calls.notes(3, 3)
                await stream.next()
                epoch = EventId(ids[0]).epoch
                while not _names(stream, 3, epoch):  # earlier beats may stand before it
                    assert await stream._read()
            await calls.notes(4, 30)
            async with raw.get(ids[1], **AWARE) as again:
                await until_comment(again, "beat")
                text = again.raw.decode()
                beats = [line for line in text.splitlines() if " beat " in line]
                assert all("last=" not in line and epoch in line for line in beats)
                await calls.finish()
                await again.rest()
                assert end_of(again) == "ended"


def _names(stream: Stream, last: int, epoch: str) -> bool:
    beats = [line for line in stream.raw.decode().splitlines() if " beat " in line]
    return any(f"last={last}" in line and epoch in line for line in beats)


async def until_comment(stream: Stream, word: str) -> None:
    while f" {word} " not in stream.raw.decode():
        assert await stream._read()


# --- S4: the lost standalone stream


async def test_s4_a_readers_loss_changes_no_epoch_and_is_told_once_in_ten_seconds() -> None:
    source = Standalone()
    with anyio.fail_after(10):
        async with scripted(Upstream(on_get=source, tools={}, logging={})) as (raw, behind):
            async with raw.get() as stream:
                assert facts_of(stream.claim)["verdict"] == "new"
                first = await stream.next()
                await source.exchanges[0].note(1)
                event = await stream.next()
            epoch = EventId(event.id or "").epoch
            assert EventId(first.id or "").epoch == epoch
            await until(lambda: behind.store.statistics().readers == 0)
            await source.exchanges[0].note(2)
            async with raw.get() as again:  # no cursor: a client that lost it
                facts = facts_of(again.claim)
                assert (facts["verdict"], facts["why"]) == ("unverifiable", "no-cursor")
                assert facts["epoch"] == epoch
                told = [await again.message() for _ in range(2)]
                assert [m["method"] for m in told] == [
                    "notifications/message",
                    "notifications/tools/list_changed",
                ]
                assert all(event.id is None for event in again.events[1:3])
                assert await again.message() == note(2)
            async with raw.get() as third:
                await source.exchanges[0].note(3)
                assert await third.message() == note(3)  # no second notice
            assert behind.store.statistics().live_streams == 1
            assert len(source.exchanges) == 1


async def test_s4_an_upstream_without_ids_that_reconnects_gives_a_new_epoch_on_the_open_connection() -> None:
    source = Standalone()
    with anyio.fail_after(15):
        async with scripted(Upstream(on_get=source, tools={})) as (raw, _), raw.get() as stream:
            await stream.next()
            await source.exchanges[0].note(1)
            before = EventId((await stream.next()).id or "").epoch
            source.closing[0].set()
            changed = await stream.message()
            assert changed["method"] == "notifications/tools/list_changed"
            await until(lambda: len(source.exchanges) == 2)
            await source.exchanges[1].note(2)
            after = EventId((await stream.next()).id or "")
            assert (after.epoch != before, after.sequence) == (True, 1)


async def test_s4_a_stale_epoch_cursor_attaches_to_the_current_epoch_and_mints_none() -> None:
    source = Standalone()
    with anyio.fail_after(20):
        async with scripted(Upstream(on_get=source, tools={})) as (raw, behind):
            async with raw.get() as stream:
                await stream.next()
                await source.exchanges[0].note(1)
                stale = (await stream.next()).id
            source.closing[0].set()
            await until(lambda: len(source.exchanges) == 2)
            await source.exchanges[1].note(2)
            await until(lambda: behind.store.statistics().appended == 2)
            epochs = set()
            for _ in range(3):
                async with raw.get(stale) as again:
                    facts = facts_of(again.claim)
                    assert (facts["verdict"], facts["why"]) == ("reoriginated", "epoch")
                    messages = [await again.message() for _ in range(1)]
                    while messages[-1] != note(2):
                        messages.append(await again.message())
                    epochs.add(facts["epoch"])
            assert len(epochs) == 1


# --- S5, S14: a process that never saw the session


async def test_s5_a_session_that_was_never_seen_here_is_not_unknown() -> None:
    upstream = Upstream()

    async def on_call(x: Exchange) -> None:
        await x.json({"jsonrpc": "2.0", "id": 1, "result": "here"})

    upstream.on_call = on_call
    async with scripted(upstream) as (raw, behind):
        other = Behind(behind.upstream)
        async with serving(other.gateway) as second:
            elsewhere = Raw(raw.http, f"http://127.0.0.1:{second}")
            elsewhere.fields = raw.fields
            answer = await elsewhere.post("tools/call")
    assert answer.json()["result"] == "here"


async def test_s14_no_cursor_where_the_session_was_never_held_is_unverifiable() -> None:
    source = Standalone()
    async with scripted(Upstream(on_get=source)) as (raw, behind):
        other = Behind(behind.upstream)
        async with serving(other.gateway) as second:
            elsewhere = Raw(raw.http, f"http://127.0.0.1:{second}")
            elsewhere.fields = raw.fields
            async with elsewhere.get() as stream:
                facts = facts_of(stream.claim)
            async with elsewhere.get(stream_continuity="v=1, want=(new)") as wanted:
                anew = facts_of(wanted.claim)
    assert (facts["verdict"], facts["why"]) == ("unverifiable", "no-cursor")
    assert (anew["verdict"], anew["why"]) == ("new", "wanted")


# --- S6, S7: what unaware clients must not be told


async def test_s6_a_client_that_has_everything_is_held_open_and_only_then_sent_away() -> None:
    calls = Calls()
    limits = Limits(grace_s=1)
    with anyio.fail_after(10):
        async with scripted(Upstream(calls), limits=limits, beat_s=0.1) as (raw, _):
            async with raw.call() as stream:
                ids = await begin(stream, calls, 1)
                await calls.finish()
                last = (await stream.next()).id
                assert await stream.rest() == []
            async with raw.get(last) as again:
                assert facts_of(again.claim)["next"] == "done"
                assert await again.rest() == []
                text = again.raw.decode()
    assert ids
    assert text.count(": held") >= 3
    assert text.rstrip().endswith("retry: 3600000")
    assert text.count("retry:") == 1


async def test_s6_an_in_band_error_has_no_id_for_a_client_that_does_not_know_us() -> None:
    async def on_call(x: Exchange) -> None:
        await x.start()
        await x.note(1)
        await anyio.sleep(0.1)
        raise RuntimeError("broken")

    for fields, has_id in (({}, False), (AWARE, True)):
        async with scripted(Upstream(on_call)) as (raw, _), raw.call(**fields) as stream:
            await stream.rest()
            error = stream.events[-1]
            assert "error" in json.loads(error.data)
            assert (error.id is not None) is has_id


async def test_s7_every_resume_that_stays_open_begins_with_an_echo_of_the_position_asked_for() -> None:
    calls = Calls()
    with anyio.fail_after(10):
        async with scripted(Upstream(calls)) as (raw, _):
            raw.fields["mcp-protocol-version"] = "2025-06-18"  # a revision without priming
            async with raw.call() as stream:
                await until(lambda: calls.exchanges)
                await calls.notes(1, 2)
                ids = [(await stream.next()).id for _ in range(2)]
                assert EventId(ids[0] or "").sequence == 1  # no echo on a new stream
                assert b"retry" not in stream.raw
            async with raw.get(ids[0]) as again:
                echo, second = await again.next(), await again.next()
                assert (echo.id, echo.data, second.id) == (ids[0], "", ids[1])


# --- S8: takeover


async def test_s8_a_newer_connection_of_a_call_ends_the_older_one() -> None:
    calls = Calls()
    with anyio.fail_after(10):
        async with scripted(Upstream(calls)) as (raw, _), raw.call(**AWARE) as older:
            ids = await begin(older, calls, 1)
            async with raw.get(ids[1], **AWARE) as newer:
                assert await older.rest() == []
                assert end_of(older) == "superseded"
                await calls.finish()
                assert (await newer.message())["result"] == "done"


async def test_s8_older_standalone_connections_of_an_unaware_client_are_parked_not_closed() -> None:
    source = Standalone()
    with anyio.fail_after(10):
        async with scripted(Upstream(on_get=source), beat_s=0.05) as (raw, behind), raw.get() as older:
            await older.next()
            async with raw.get() as newer:
                await source.exchanges[0].note(1)
                while (message := await newer.message()) != note(1):
                    assert "list_changed" in message["method"]
                await until_comment(older, "beat")
                assert not older.ended
                assert b'"progress"' not in older.raw
                assert behind.store.statistics().readers == 2


async def test_s8_a_loop_of_reconnects_without_data_is_held_and_data_releases_it() -> None:
    source = Standalone()
    with anyio.fail_after(20):
        async with scripted(Upstream(on_get=source)) as (raw, _):
            for _ in range(3):
                async with raw.get() as stream:
                    assert stream.status == 200
            answered, released = anyio.Event(), anyio.Event()

            async def fourth() -> None:
                async with raw.get() as stream:
                    answered.set()
                    while await stream.message() != note(1):
                        pass
                    released.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fourth)
                await anyio.sleep(0.2)
                assert not answered.is_set()
                await source.exchanges[0].note(1)
                with anyio.fail_after(0.25):  # the hold of 0.5 s would end later
                    await released.wait()


# --- S10, S11: early opening, browsers


async def test_s10_nothing_opens_early_for_who_was_not_let_in_under_the_same_authorization() -> None:
    async def on_call(x: Exchange) -> None:
        await anyio.sleep(0.15)
        await x.json({"jsonrpc": "2.0", "id": 1, "result": 1}, 401 if "wrong" in str(x.headers) else 200)

    async with scripted(Upstream(on_call), prime_after_ms=20) as (raw, _):
        assert (await raw.post("tools/call")).headers["content-type"] == "text/event-stream"
        assert (await raw.post("tools/call", authorization="Bearer wrong")).status_code == 401
        assert (await raw.post("tools/call")).headers["content-type"] == "application/json"
        assert (await raw.post("tools/call")).headers["content-type"] == "text/event-stream"
        raw.fields["accept"] = "application/json"
        assert (await raw.post("tools/call")).headers["content-type"] == "application/json"


async def test_s11_answers_of_ours_can_be_read_by_the_browser_that_the_upstream_lets_in() -> None:
    origin = "http://app.example"
    cors = {"access_control_allow_origin": origin, "vary": "origin"}

    async def on_call(x: Exchange) -> None:
        await anyio.sleep(0.1)
        await x.json({"jsonrpc": "2.0", "id": 1, "result": 1}, **cors)

    upstream = Upstream(on_call)
    upstream.cors = cors
    async with scripted(upstream, prime_after_ms=20, allow_origins=(origin,)) as (raw, behind):
        first = await raw.post("tools/call", origin=origin)
        assert first.headers["content-type"] == "application/json"  # no answer to this origin was seen yet
        async with raw.call(origin=origin) as stream:
            fields = stream.answer.headers
            assert fields["access-control-allow-origin"] == origin
            assert fields["access-control-expose-headers"] == "Stream-Continuity"
        held = behind.store.statistics().live_streams + behind.store.statistics().ended_streams
        preflight = await raw.http.options(raw.url, headers=raw.fields | {"origin": origin})
        assert preflight.headers["access-control-allow-headers"] == "Stream-Continuity"
        await raw.http.head(raw.url, headers=raw.fields)
        after = behind.store.statistics().live_streams + behind.store.statistics().ended_streams
        assert held == after
        assert [x.method for x in upstream.seen[-2:]] == ["OPTIONS", "HEAD"]


# --- S13: requests of the server


async def test_s13_a_request_of_the_server_in_a_lost_range_is_settled_at_its_side() -> None:
    calls = Calls()
    upstream = Upstream(calls)
    ask = {"jsonrpc": "2.0", "id": "ask-1", "method": "elicitation/create", "params": {}}
    later = {"jsonrpc": "2.0", "id": "ask-2", "method": "elicitation/create", "params": {}}
    with anyio.fail_after(10):
        async with scripted(upstream, limits=Limits(window_events=5)) as (raw, _):
            async with raw.call() as stream:
                ids = await begin(stream, calls, 1)
            await calls.exchanges[0].event(ask)
            await calls.notes(3, 30)
            async with raw.get(ids[1]) as again:
                await again.next()

                def settled() -> list[Any]:
                    return [x.message for x in upstream.seen if x.message and x.message.get("id") == "ask-1"]

                await until(settled)
                assert "error" in settled()[0]
                await calls.exchanges[0].event(later)
                assert await again.message() == later
                answer = {"jsonrpc": "2.0", "id": "ask-1", "result": {}}
                late = await raw.http.post(raw.url, json=answer, headers=raw.fields)
                assert late.status_code == 202
                assert len(settled()) == 1
                await calls.finish()
                await again.rest()


# --- S15, S16: ids of others


async def test_s15_a_foreign_cursor_is_a_lost_standalone_stream_or_stops() -> None:
    source = Standalone()
    async with scripted(Upstream(on_get=source)) as (raw, behind):
        async with raw.get("their-id-7") as stream:
            facts = facts_of(stream.claim)
            echo = await stream.next()
        assert (stream.status, facts["verdict"], facts["why"]) == (200, "unverifiable", "foreign-id")
        assert EventId(echo.id or "").sequence == 0  # of the position attached at
        assert isinstance(behind.resumed[0], Unverifiable)
    stopping = scripted(Upstream(on_get=source), foreign_ids="stop")
    async with stopping as (raw, _), raw.get("their-id-7") as stream:
        assert stream.status == 400


async def test_s16_another_version_of_our_ids_is_no_forgery() -> None:
    source = Standalone()
    async with scripted(Upstream(on_get=source)) as (raw, behind):
        async with raw.get("cf2.whatever") as stream:
            assert stream.status == 200
            assert facts_of(stream.claim)["why"] == "version"
        async with raw.get("cf1.malformed") as stream:
            assert stream.status == 400
        assert [type(verdict) for verdict in behind.resumed] == [Unverifiable, Forged]


# --- S17, S18, S21


async def test_s17_an_answer_that_cannot_be_kept_is_told_as_executed() -> None:
    async def on_call(x: Exchange) -> None:
        await x.start()
        await x.result("x" * 300_000)
        await x.end()

    limits = Limits(window_bytes=50_000, total_bytes=100_000)
    async with scripted(Upstream(on_call), limits=limits) as (raw, _), raw.call() as stream:
        (error,) = await stream.rest()
    facts = in_band(error)
    assert (facts["why"], facts["executed"]) == ("too-large", "yes")


async def test_s17_a_large_event_is_kept_alone_above_the_window() -> None:
    has_read = anyio.Event()

    async def on_call(x: Exchange) -> None:
        await x.start()
        await x.note(1)
        await has_read.wait()  # else the note might leave the window before anybody could read it
        await x.result("x" * 200_000)
        await x.end()

    async with (
        scripted(Upstream(on_call), limits=Limits(window_bytes=50_000)) as (raw, _),
        raw.call() as stream,
    ):
        await stream.message()
        has_read.set()
        answer = (await stream.rest())[-1]
    assert len(answer["result"]) == 200_000


async def test_s18_deleting_a_session_ends_its_open_calls_typed_and_its_cursors_read_nothing() -> None:
    calls = Calls()
    with anyio.fail_after(10):
        async with scripted(Upstream(calls)) as (raw, _), raw.call(request_id="c-1", **AWARE) as stream:
            ids = await begin(stream, calls, 1)
            assert (await raw.http.delete(raw.url, headers=raw.fields)).status_code == 200
            (error,) = await stream.rest()
            assert error["id"] == "c-1"
            assert (in_band(error)["why"], in_band(error)["executed"]) == ("session", "unknown")
            assert end_of(stream) == "session"
            async with raw.get(ids[1]) as again:
                assert again.status == 404
                assert again.claim == ""
            assert (await raw.post("tools/call")).status_code == 404


async def test_cancelled_call_ends_a_little_after_its_cancellation_was_passed_on() -> None:
    calls = Calls()
    upstream = Upstream(calls)
    with anyio.fail_after(10):
        async with scripted(upstream, cancel_settle_s=0.2) as (raw, behind), raw.call(**AWARE) as stream:
            await begin(stream, calls, 1)
            await raw.post("notifications/cancelled", {"requestId": 1}, request_id=None)
            assert upstream.count("POST", "notifications/cancelled") == 1
            assert await stream.rest() == []
            assert end_of(stream) == "cancelled"
            assert behind.store.statistics().live_streams == 0


async def test_p2_every_resume_has_one_verdict_with_a_reason_before_the_first_byte() -> None:
    calls = Calls()
    with anyio.fail_after(10):
        async with scripted(Upstream(calls)) as (raw, behind):
            async with raw.call() as stream:
                assert facts_of(stream.claim)["verdict"] == "new"
                first = stream.claim
                ids = await begin(stream, calls, 3)
                assert stream.raw.startswith(f": stream-continuity {first}\n\nid: {ids[0]}\n".encode())
            async with raw.get(ids[2]) as again:
                claim = again.claim
                facts = facts_of(claim)
                await again.next()
                assert again.raw.startswith(f": stream-continuity {claim}\n\n".encode())
            assert (facts["verdict"], facts["after"], facts["echo"]) == ("resumed", "2", ids[2])
            assert facts["digest"] == EventId(ids[2]).digest
            (verdict,) = behind.resumed
            assert isinstance(verdict, Resumed)
            assert (verdict.after, verdict.missed, verdict.why) == (2, 1, Why.HELD)
            assert not [v for v in behind.verdicts if isinstance(v, New)]
