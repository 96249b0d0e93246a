"""A call that ended without its answer ends its client's wait: one error, stored, the same for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from counterfoil import Limits, Scope
from counterfoil.adapters.gateway.resuming.replies import reply_to
from counterfoil.native import EventId
from counterfoil.stores.replay.store import ReplayStore
from gateway_kit import KEYS, Exchange, Upstream, in_band, note, scripted, until

VECTORS = Path(__file__).parents[3] / "vectors" / "endings" / "endings.json"
CASES = json.loads(VECTORS.read_text())["cases"]
SCOPE = Scope(session="s")
AWARE = {"stream_continuity": "v=1"}


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def resume(given: dict[str, Any]) -> Any:
    """Make the call that a case describes, end it, and come back."""
    clock = Clock()
    limits = Limits(window_events=3, grace_s=10, stream_idle_s=100)
    store = ReplayStore(keys=KEYS, clock=clock, limits=limits)
    stream = store.open_call(SCOPE, ["call-1"])
    ids = list(store.append_many(SCOPE, stream, [json.dumps(note(n)) for n in range(6)]))
    if given["end"] == "answered":
        ids.append(store.append(SCOPE, stream, b'{"jsonrpc":"2.0","id":"call-1","result":{}}'))
    elif given["end"] == "idle":
        clock.now_s = 200.0
        store.sweep()
    else:
        store.end_stream(SCOPE, stream, why=given["end"])
    if given.get("forgotten"):
        clock.now_s += 20
        store.sweep()
    last = EventId.parse(ids[-1])
    ahead = KEYS.event_id(SCOPE, stream=stream, epoch=last.epoch, sequence=99, digest=last.digest)
    cursor = {"last": ids[-1], "first": ids[-2], "trimmed": ids[0], "ahead": str(ahead)}[given["cursor"]]
    return cursor, store.resume(SCOPE, cursor)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_a_call_that_is_over_owes(case: dict[str, Any]) -> None:
    cursor, reader = resume(case["given"])
    expect = case["expect"]
    assert (reader.answer.row, reader.answer.settle) == (expect["row"], expect["settle"])
    assert reader.answer.attached == expect.get("attached", "nothing")
    for client in ("unaware", "strict"):
        if client not in expect:
            continue
        reply = reply_to(
            reader.verdict,
            reader.answer,
            cursor=cursor,
            is_strict=client == "strict",
            stops_foreign=False,
        )
        assert (reply.status, len(reply.errors)) == (expect[client]["status"], expect[client]["errors"])
        assert reply.holds_open is expect[client].get("holds_open", False)
        for error in reply.errors:
            assert (error.request_id, error.why) == ("call-1", expect["why"])
            assert error.executed == "unknown"


# --- at the wire ---


class Cancellable:
    """Scripts a call that sends what it is told, and never answers."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None

    async def __call__(self, x: Exchange) -> None:
        await x.start()
        await x.note(1)
        self.exchange = x
        await x.wait_gone()


@pytest.mark.anyio
@pytest.mark.parametrize("fields", [{}, AWARE], ids=["unaware", "aware"])
async def test_row_12_of_a_call_without_an_answer_is_its_error_and_the_same_one_for_ever(
    fields: dict[str, str],
) -> None:
    with anyio.fail_after(10):
        async with scripted(Upstream(Cancellable()), cancel_settle_s=0.05) as (raw, behind):
            async with raw.call(request_id="call-1", **fields) as stream:
                await stream.next()
                last = str((await stream.next()).id)
                await raw.post("notifications/cancelled", {"requestId": "call-1"}, request_id=None)
                assert await stream.rest() == []
            told = []
            for _ in range(2):
                async with raw.get(last, **fields) as again:
                    (error,) = await again.rest()  # it ends: nobody is left open and without an error
                    told.append(error)
                    assert again.status == 200
                    assert "verdict=resumed" in again.claim
                    assert (again.events[-1].id is not None) is bool(fields)
            assert told[0] == told[1]
            assert told[0]["id"] == "call-1"
            assert (in_band(told[0])["why"], in_band(told[0])["executed"]) == ("cancelled", "unknown")
            assert behind.store.statistics().appended == 2  # the note, and one error


@pytest.mark.anyio
async def test_s1_a_refused_call_that_ended_without_an_answer_has_its_error_stored_once() -> None:
    script = Cancellable()
    settings = {"limits": Limits(window_events=5), "cancel_settle_s": 0.05, "adopt_s": 0}
    with anyio.fail_after(10):
        async with scripted(Upstream(script), **settings) as (raw, behind):
            async with raw.call(request_id=7) as stream:
                first = str((await stream.next()).id)
                await stream.next()
            assert script.exchange is not None
            for number in range(2, 31):
                await script.exchange.note(number)
            await raw.post("notifications/cancelled", {"requestId": 7}, request_id=None)
            await until(lambda: behind.store.statistics().ended_streams)
            async with raw.get(first) as refused:
                (error,) = await refused.rest()
                assert "verdict=gap" in refused.claim
                assert "next=reconcile" in refused.claim
                assert refused.events[-1].id is None
            async with raw.get(first) as again:  # its terminal event is there now: response-only
                assert "next=continue" in again.claim
                (stored,) = await again.rest()
                assert again.events[-1].id is None
            async with raw.get(first, **AWARE) as aware:
                assert await aware.rest() == [error]  # a refusal shows no id that could read as continuity
                assert aware.events[-1].id is None
            assert stored == error
            assert (error["id"], in_band(error)["why"]) == (7, "trimmed")
            assert behind.store.statistics().appended == 31


@pytest.mark.anyio
async def test_a_call_whose_id_no_cursor_can_carry_is_settled_where_it_is_known() -> None:
    long_id = "0b2c7d9e-3f41-4a6b-8c5d-1e2f3a4b5c6d"  # a UUID has no room in an event ID
    with anyio.fail_after(10):
        async with scripted(Upstream(Cancellable()), cancel_settle_s=0.05) as (raw, _):
            async with raw.call(request_id=long_id) as stream:
                await stream.next()
                last = str((await stream.next()).id)
                assert EventId(last).stream.request_id is None
                await raw.post("notifications/cancelled", {"requestId": long_id}, request_id=None)
                await stream.rest()
            async with raw.get(last) as again:
                (error,) = await again.rest()
    assert error["id"] == long_id


@pytest.mark.anyio
async def test_elsewhere_such_a_call_is_held_open_and_no_other_is_ended_by_a_status() -> None:
    long_id = "0b2c7d9e-3f41-4a6b-8c5d-1e2f3a4b5c6d"
    stream = ReplayStore(keys=KEYS).open_call(Scope(session="session-1"), [long_id])
    unknown = KEYS.event_id(
        Scope(session="session-1"), stream=stream, epoch="AAAAAAAAAAA", sequence=1, digest="AAAAAAAAAAA"
    )
    with anyio.fail_after(10):
        async with scripted(Upstream(), limits=Limits(grace_s=1), beat_s=0.1) as (raw, _):
            async with raw.get(str(unknown)) as held:
                assert held.status == 200
                assert "why=unknown-stream" in held.claim
                assert await held.rest() == []
                assert held.raw.endswith(b"retry: 3600000\n\n")
            async with raw.get(str(unknown), stream_continuity="v=1, want=(strict)") as strict:
                assert strict.status == 409
