"""A batch (revision 2025-03-26) is resumable like a call, and each of its requests ends in one answer."""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx2
import pytest
from counterfoil import Limits
from counterfoil.native import EventId
from gateway_kit import Exchange, Raw, Upstream, in_band, note, reading, scripted, until

pytestmark = pytest.mark.anyio

FIRST = "2025-03-26"


class Batches:
    """Scripts the answers to a batch, one after the other, when the test says so."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None

    async def __call__(self, x: Exchange) -> None:
        await x.start()
        self.exchange = x
        await x.wait_gone()

    async def answer(self, *request_ids: Any) -> None:
        assert self.exchange is not None
        answers = [{"jsonrpc": "2.0", "id": each, "result": f"of {each}"} for each in request_ids]
        await self.exchange.event(answers[0] if len(answers) == 1 else answers, event_id="theirs")


class BatchUpstream(Upstream):
    async def _answer(self, exchange: Exchange) -> None:
        if isinstance(exchange.message, list) and self.on_call is not None:
            await self.on_call(exchange)
        else:
            await super()._answer(exchange)


def post(raw: Raw, *request_ids: Any, **fields: str) -> Any:
    raw.fields["mcp-protocol-version"] = FIRST
    batch = [raw.message("tools/call", {"name": "t"}, each) for each in request_ids]
    batch.insert(1, raw.message("notifications/progress", {"progress": 1}, None))
    return raw.http.stream("POST", raw.url, json=batch, headers=raw._with(fields))


def answers_in(messages: list[Any]) -> dict[Any, Any]:
    flat = [each for message in messages for each in (message if isinstance(message, list) else [message])]
    found = {each["id"]: each.get("result", each.get("error")) for each in flat if "id" in each}
    assert len(found) == len([each for each in flat if "id" in each]), "no request is answered twice"
    return found


async def cut_after_first_answer(raw: Raw, calls: Batches, *request_ids: Any) -> str:
    """Post a batch, read the answer to its first request, and leave; return the cursor."""
    async with post(raw, *request_ids) as sent, reading(sent) as stream:
        await until(lambda: calls.exchange)
        assert calls.exchange is not None
        await calls.exchange.note(1)
        assert await stream.message() == note(1)
        await calls.answer(request_ids[0])
        assert (await stream.message())["id"] == request_ids[0]
        return str(stream.events[-1].id)


async def test_a_cut_batch_is_resumed_and_every_request_gets_its_own_answer_once() -> None:
    calls = Batches()
    with anyio.fail_after(10):
        async with scripted(BatchUpstream(calls)) as (raw, behind):
            cursor = await cut_after_first_answer(raw, calls, 1, "1", "two")
            identity = EventId(cursor).stream
            assert (identity.kind, identity.request_id) == ("call", None)
            await calls.answer("two", "1")  # together, and in another order
            async with raw.get(cursor) as again:
                assert "verdict=resumed" in again.claim
                assert answers_in(await again.rest()) == {"1": "of 1", "two": "of two"}
            assert behind.store.statistics().live_streams == 0


async def test_beyond_the_window_every_answer_is_still_there() -> None:
    calls = Batches()
    with anyio.fail_after(10):
        async with scripted(BatchUpstream(calls), limits=Limits(window_events=4)) as (raw, _):
            async with post(raw, 1, 2, 3) as sent, reading(sent) as stream:
                await until(lambda: calls.exchange)
                assert calls.exchange is not None
                await calls.exchange.note(0)
                await stream.message()
                cursor = str(stream.events[-1].id)
            for request_id in (1, 2, 3):
                for number in range(9):
                    await calls.exchange.note(number)
                await calls.answer(request_id)
            async with raw.get(cursor) as again:
                assert "verdict=gap" in again.claim
                assert "next=continue" in again.claim
                assert answers_in(await again.rest()) == {1: "of 1", 2: "of 2", 3: "of 3"}


async def test_an_upstream_that_breaks_off_leaves_no_request_without_an_end() -> None:
    calls = Batches()

    async def breaks(x: Exchange) -> None:
        await x.start()
        calls.exchange = x
        await calls.answer(2)
        raise RuntimeError("gone")

    with anyio.fail_after(10):
        async with scripted(BatchUpstream(breaks)) as (raw, behind):
            async with post(raw, 1, 2, 3) as sent, reading(sent) as stream:
                messages = await stream.rest()
                ids = [event.id for event in stream.events if event.data]
            assert answers_in(messages)[2] == "of 2"
            for message in messages[1:]:
                assert (in_band(message)["why"], in_band(message)["executed"]) == ("closed", "unknown")
            assert [message["id"] for message in messages] == [2, 1, 3]
            assert [each is not None for each in ids] == [True, False, False]  # errors have none here
            async with raw.get(ids[0]) as again:
                assert await again.rest() == messages[1:]
                assert [event.id for event in again.events if event.data] == [None, None]
            assert "counterfoil_indeterminate 2" in behind.gateway.metrics.write(None).decode()


async def test_a_whole_answer_that_nobody_waited_for_is_kept_for_all_of_them() -> None:
    go_on, gone = anyio.Event(), anyio.Event()

    async def whole(x: Exchange) -> None:
        await go_on.wait()
        await x.json([{"jsonrpc": "2.0", "id": each, "result": each} for each in (1, 2)])
        gone.set()

    async with scripted(BatchUpstream(whole)) as (raw, behind):
        with anyio.move_on_after(0.2):
            await leave(raw)
        go_on.set()
        await gone.wait()
        await until(lambda: behind.store.statistics().ended_streams)
        assert behind.store.statistics().appended == 1
        async with post(raw, 1, 2) as sent:
            assert sent.headers["content-type"] == "application/json"
            assert len(json.loads(await sent.aread())) == 2


async def leave(raw: Raw) -> None:
    async with post(raw, 1, 2) as sent:
        await sent.aread()


async def test_one_cancelled_request_of_a_batch_is_settled_and_the_others_go_on() -> None:
    calls = Batches()
    with anyio.fail_after(10):
        async with scripted(BatchUpstream(calls), cancel_settle_s=0.05) as (raw, _):
            async with post(raw, 1, 2) as sent, reading(sent) as stream:
                await until(lambda: calls.exchange)
                await raw.post("notifications/cancelled", {"requestId": 1}, request_id=None)
                error = await stream.message()
                await calls.answer(2)
                assert (await stream.message())["result"] == "of 2"
                assert await stream.rest() == []
            assert (error["id"], in_band(error)["why"]) == (1, "cancelled")


async def test_a_session_that_ends_settles_what_its_batch_still_waits_for() -> None:
    calls = Batches()
    with anyio.fail_after(10):
        async with (
            scripted(BatchUpstream(calls)) as (raw, _),
            post(raw, 1, 2, 3) as sent,
            reading(sent) as stream,
        ):
            await until(lambda: calls.exchange)
            await calls.answer(2)
            assert (await stream.message())["id"] == 2
            assert (await raw.http.delete(raw.url, headers=raw.fields)).status_code == 200
            assert [message["id"] for message in await stream.rest()] == [1, 3]


@pytest.mark.parametrize("ids", [(1, 1), (1.5, 2), (None, True)], ids=["same", "fraction", "no id"])
async def test_a_batch_that_can_be_read_in_two_ways_passes_as_it_is(ids: tuple[Any, ...]) -> None:
    async def on_call(x: Exchange) -> None:
        await x.json(x.message)

    async with scripted(BatchUpstream(on_call)) as (raw, behind):
        raw.fields["mcp-protocol-version"] = FIRST
        batch = [{"jsonrpc": "2.0", "id": each, "method": "m"} for each in ids]
        answer = await raw.http.post(raw.url, json=batch, headers=raw.fields)
        assert answer.json() == batch
        assert behind.store.statistics().ended_streams == 0


async def test_later_revisions_have_no_batches_and_their_servers_say_so() -> None:
    async def refuse(x: Exchange) -> None:
        await x.json({}, 400)

    async with scripted(BatchUpstream(refuse)) as (raw, behind):
        batch = [raw.message("tools/call", {}, each) for each in (1, 2)]
        answer: httpx2.Response = await raw.http.post(raw.url, json=batch, headers=raw.fields)
        assert answer.status_code == 400
        assert behind.store.statistics().live_streams + behind.store.statistics().ended_streams == 0
