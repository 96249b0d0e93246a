"""The replay store behind the SDK's interface, on the real SDK: what it replays, settles and keeps apart.

Runs with the SDK that is installed; `tests/interop/test_environments.py` runs it with the others.
"""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from counterfoil import (
    EventId,
    Forged,
    Gap,
    KeyRing,
    Limits,
    Reoriginated,
    ReplayStore,
    Resumed,
    Scope,
    Unverifiable,
)
from counterfoil.adapters.mcp_event_store import ReplayEventStore
from counterfoil.adapters.mcp_event_store.messages import read_message, write_message
from counterfoil.errors import SessionUnknown
from counterfoil.model.tokens import Executed, Why
from counterfoil.protocol.inband_error import InbandError, read_inband_error
from interop.local import KITS, Answer, Client, Gate, Watched, make_app, run_app, until

pytestmark = pytest.mark.anyio
with_each_kit = pytest.mark.parametrize("kit", KITS)


class Bench:
    """A server with our event store, and what the store was told."""

    def __init__(self, kit: str, **limits: Any) -> None:
        self.gate = Gate()
        self.keys = KeyRing.random()
        self.store = ReplayStore(keys=self.keys, limits=Limits(**limits))
        self.verdicts: list[Any] = []
        self.event_store = ReplayEventStore(self.store, on_verdict=self.verdicts.append)
        self.app = Watched(make_app(kit, self.gate, event_store=self.event_store, retry_interval=10))

    @property
    def appended(self) -> int:
        return self.store.statistics().appended

    @asynccontextmanager
    async def clients(self, count: int = 1) -> AsyncIterator[list[Client]]:
        async with run_app(self.app) as upstream:
            clients = [Client(upstream) for _ in range(count)]
            for client in clients:
                await client.initialize()
            try:
                yield clients
            finally:
                self.gate.open_all()  # the SDK gives a running tool a second to end

    async def cut_call(
        self, client: Client, request_id: int | str, key: str, *, before: int = 2, read: int | None = None
    ) -> list[Any]:
        """Call, read what comes before the gate (or `read` events), and lose the connection there."""
        async with client.post(client.call(request_id, key, before=before)) as answer:
            events = await answer.take(1 + before if read is None else read)
            await self.gate.of(key)[0].wait()
        await self.quiet()
        return events

    async def quiet(self) -> None:
        """Wait until the SDK has noticed every cut: before, it answers a resume by a closed stream."""
        await until(lambda: self.app.busy == 0)

    async def finish(self, key: str, events: int) -> None:
        """Let the call go on, and wait until that many more events are stored."""
        wanted = self.appended + events
        self.gate.of(key)[1].set()
        await until(lambda: self.appended >= wanted)


def texts(events: list[Any]) -> list[str]:
    """What the events say: the message of a progress note, the text of a result, a notice."""
    said = []
    for event in events:
        message = json.loads(event.data) if event.data else {}
        if "result" in message:
            said.append(message["result"]["content"][0]["text"])
        elif "params" in message:
            said.append(message["params"].get("message") or message["params"]["uri"])
    return said


def sequences(events: list[Any]) -> list[int]:
    return [EventId.parse(event.id).sequence for event in events]


async def read_error(answer: Answer) -> InbandError:
    """Read an answer that must be one in-band error and, behind it, at most an echo."""
    (event,) = await answer.until_answer()
    error = read_inband_error(event.data)
    assert error is not None, event.data
    assert event.id is None, "a client would ask again with it"
    return error


@with_each_kit
async def test_a_cut_call_resumes_to_its_answer_with_every_event_once_and_in_order(kit: str) -> None:
    bench = Bench(kit)
    async with bench.clients() as [client]:
        priming, *early = await bench.cut_call(client, 1, "a")
        assert (priming.data, priming.retry) == ("", 10)
        await bench.finish("a", events=3)
        async with client.get(early[0].id) as answer:
            late = await answer.until_answer()
    assert sequences([priming, *early]) == [0, 1, 2]
    assert EventId.parse(priming.id).stream.request_id == 1
    assert texts(early[:1] + late) == ["a 1", "a 2", "a 3", "a 4", "receipt a"]
    assert sequences(late) == [2, 3, 4, 5]
    assert [(type(verdict), verdict.missed) for verdict in bench.verdicts] == [(Resumed, 4)]


@with_each_kit
async def test_what_the_sdk_loses_between_replay_and_live_shows_in_the_ids(kit: str) -> None:
    """The SDK registers a resumed connection after the replay: what is stored in between is not sent.

    The bare store cannot prevent that, but its ids are dense: the hole is there for everyone to see.
    """
    bench = Bench(kit)
    async with bench.clients() as [client]:
        _, *early = await bench.cut_call(client, 1, "a", before=1)
        wanted = bench.appended + 3
        async with client.get(early[-1].id) as answer:
            # Nothing was missed yet, so the SDK waits for its echo to be read before it registers.
            await until(lambda: len(bench.verdicts) == 1)
            bench.gate.of("a")[1].set()
            await until(lambda: bench.appended >= wanted)
            first = await answer.next()
            assert first is not None
            assert (first.data, first.id) == ("", early[-1].id), "the echo is of what this replay gave"
        async with client.get(first.id) as answer:
            assert texts(await answer.until_answer()) == ["a 2", "a 3", "receipt a"]


@with_each_kit
async def test_the_echo_after_a_replay_is_of_the_last_event_that_it_gave(kit: str) -> None:
    bench = Bench(kit)
    async with bench.clients() as [client]:
        priming, first, second = await bench.cut_call(client, 1, "a")
        async with client.get(priming.id) as answer:
            events = await answer.take(3)
            await bench.finish("a", events=1)
        assert [event.id for event in events] == [first.id, second.id, second.id]
        assert events[-1].data == ""


REFUSALS: dict[str, tuple[type[Any], Why]] = {
    "evicted": (Gap, Why.TRIMMED),
    "ahead": (Reoriginated, Why.AHEAD),
    "forged": (Forged, Why.MAC),
    "another session's": (Forged, Why.MAC),
    "unknown": (Unverifiable, Why.UNKNOWN_STREAM),
    "another key's": (Unverifiable, Why.KEY),
}


def make_cursor(kind: str, bench: Bench, mine: EventId, others: EventId, client: Client) -> str:
    scope = Scope(session=f"event-store {client.session}")
    match kind:
        case "evicted":
            return str(mine)
        case "ahead":
            return str(mine).replace(f".{mine.sequence}.", f".{mine.sequence + 100}.")
        case "forged":
            other = "A" if mine.tag[-4] != "A" else "B"
            return str(mine).replace(mine.tag, mine.tag[:-4] + other + mine.tag[-3:])
        case "another session's":
            return str(others)
    twin = ReplayStore(keys=bench.keys if kind == "unknown" else KeyRing.random())
    return twin.append(scope, twin.open_call(scope, [1]), b'{"jsonrpc":"2.0","method":"x"}')


@with_each_kit
@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_cursor_that_cannot_be_continued_ends_the_call_that_it_names(
    kit: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(kit, window_events=4)
    async with bench.clients(2) as [client, other]:
        _, first = await bench.cut_call(client, 1, "a", before=8, read=2)
        _, others = await bench.cut_call(other, 1, "b", before=1)
        cursor = make_cursor(kind, bench, EventId.parse(first.id), EventId.parse(others.id), client)
        async with client.get(cursor) as answer:
            error = await read_error(answer)
    wanted, why = REFUSALS[kind]
    assert (error.request_id, error.why, error.executed) == (1, why, Executed.UNKNOWN)
    assert [type(verdict) for verdict in bench.verdicts] == [wanted]
    assert f"{wanted.__name__.lower()}, {why}" in caplog.text
    assert str(cursor) not in caplog.text
    rows = bench.store.statistics().rows
    assert sum(rows) == 1


@with_each_kit
@pytest.mark.parametrize("cursor", ["17", "no-such-event", "cf1.", "cf2.x", "../../x:-5", "0"])
async def test_a_cursor_that_names_no_call_is_logged_and_counted_and_replays_nothing(
    kit: str, cursor: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(kit)
    async with bench.clients() as [client]:
        await bench.cut_call(client, 1, "a")
        async with client.get(cursor) as answer:
            assert await answer.until_answer() == []
            assert answer.status == 200
    assert "a resume was refused" in caplog.text
    assert sum(bench.store.statistics().rows[3:6]) == 1


@with_each_kit
async def test_an_answer_that_is_held_is_given_though_the_way_to_it_is_lost(kit: str) -> None:
    bench = Bench(kit, window_events=4)
    async with bench.clients() as [client]:
        priming, *_ = await bench.cut_call(client, 1, "a", before=8, read=2)
        await bench.finish("a", events=3)
        async with client.get(priming.id) as answer:
            events = await answer.until_answer()
    assert texts(events) == ["receipt a"]
    assert [type(verdict) for verdict in bench.verdicts] == [Gap]


@with_each_kit
async def test_sessions_with_equal_request_ids_never_see_each_others_answers(kit: str) -> None:
    bench = Bench(kit)
    async with bench.clients(3) as clients:
        cursors = []
        for number, client in enumerate(clients):
            priming, *_ = await bench.cut_call(client, 1, f"k{number}")
            cursors.append(priming.id)
        for number in range(3):
            await bench.finish(f"k{number}", events=3)
        for number, client in enumerate(clients):
            async with client.get(cursors[number]) as answer:
                events = [event for event in await answer.until_answer() if event.data]
            assert texts(events)[-1] == f"receipt k{number}"
            assert {text.split()[-2] for text in texts(events[:-1])} == {f"k{number}"}
            async with client.get(cursors[number - 1]) as answer:
                assert (await read_error(answer)).why is Why.MAC
    streams = {EventId.parse(cursor).stream for cursor in cursors}
    assert len(streams) == 3, "equal names, but streams of their own"


@with_each_kit
async def test_calls_of_one_session_have_streams_of_their_own(kit: str) -> None:
    bench = Bench(kit)
    async with bench.clients() as [client]:
        primings = [(await bench.cut_call(client, number, f"k{number}"))[0] for number in range(1, 6)]
        for number in range(1, 6):
            await bench.finish(f"k{number}", events=3)
        async with client.get(primings[1].id) as answer:
            events = await answer.until_answer()
    assert len({event.id for event in primings}) == 5
    assert [EventId.parse(event.id).stream.request_id for event in primings] == [1, 2, 3, 4, 5]
    assert texts(events) == ["k2 1", "k2 2", "k2 3", "k2 4", "receipt k2"]


@with_each_kit
@pytest.mark.parametrize(
    "ids", [(0, 7), ("first", "7"), ("first", "a name that has no place in an event ID")]
)
async def test_request_ids_keep_their_type(kit: str, ids: tuple[Any, Any]) -> None:
    bench = Bench(kit, window_events=4)
    async with run_app(bench.app) as upstream:
        client = Client(upstream)
        await client.initialize(ids[0])
        _, first = await bench.cut_call(client, ids[1], "a", before=8, read=2)
        async with client.get(first.id) as answer:
            assert (await read_error(answer)).request_id == ids[1]
        await bench.finish("a", events=3)
        async with client.get(first.id) as answer:
            assert texts(await answer.until_answer()) == ["receipt a"]
    assert bench.store.statistics().live_streams == 0


@with_each_kit
async def test_the_standalone_stream_resumes_and_stays_open_when_it_is_lost(kit: str) -> None:
    bench = Bench(kit, window_events=4)
    async with bench.clients() as [client]:
        async with client.get() as answer, client.post(client.announce(1, 3)) as call:
            notices = await answer.take(3)
            await call.until_answer()
        async with client.post(client.announce(2, 2)) as call:
            await call.until_answer()
        await bench.quiet()
        async with client.get(notices[1].id) as answer:
            missed = await answer.take(4)
            assert texts(missed[:3]) == ["notice:///3", "notice:///1", "notice:///2"]
            assert (missed[3].data, missed[3].id) == ("", missed[2].id)
        async with client.post(client.announce(3, 4)) as call:
            await call.until_answer()
        await bench.quiet()
        async with client.get(notices[0].id) as answer:
            echo = await answer.next()
            assert echo is not None
            assert (echo.data, echo.id) == ("", notices[0].id), "nothing behind an untold gap"
            async with client.post(client.announce(4, 1)) as call:
                await call.until_answer()
            assert texts(await answer.take(1)) == ["notice:///1"], "the stream goes on"
    assert [type(verdict) for verdict in bench.verdicts] == [Resumed, Gap]


@with_each_kit
async def test_a_revision_without_priming_resumes_too(kit: str) -> None:
    bench = Bench(kit)
    async with run_app(bench.app) as upstream:
        client = Client(upstream)
        client.revision = "2025-06-18"
        await client.initialize()
        async with client.post(client.call(1, "a")) as answer:
            (first,) = await answer.take(1)
            await bench.gate.of("a")[0].wait()
        await bench.finish("a", events=3)
        async with client.get(first.id) as answer:
            assert texts(await answer.until_answer()) == ["a 2", "a 3", "a 4", "receipt a"]


@with_each_kit
async def test_a_session_that_is_over_leaves_nothing_behind(kit: str) -> None:
    bench = Bench(kit)
    async with bench.clients(2) as [client, other]:
        await bench.cut_call(client, 1, "a")
        await bench.cut_call(other, 1, "b")
        assert await client.delete() == 200
        bench.gate.of("a")[1].set()  # FastMCP 3 keeps a session for as long as a tool of it runs

        def is_forgotten() -> bool:
            gc.collect()
            return bench.store.statistics().live_streams == 1

        await until(is_forgotten)


@with_each_kit
async def test_a_call_that_finds_no_room_is_relayed_without_ids(
    kit: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(kit, session_streams=1)
    async with bench.clients() as [client]:
        await bench.cut_call(client, 1, "a")
        bench.gate.of("b")[1].set()
        async with client.post(client.call(2, "b")) as answer:
            events = await answer.until_answer()
        assert texts(events) == ["b 1", "b 2", "b 3", "b 4", "receipt b"]
        assert {event.id or None for event in events} == {None}
    assert bench.event_store.unresumable == len(events)
    assert "session_streams" in caplog.text


# --- the interface by itself


def message(**members: Any) -> Any:
    return read_message(json.dumps({"jsonrpc": "2.0", **members}).encode())


async def test_storing_never_waits() -> None:
    store = ReplayEventStore(ReplayStore(keys=KeyRing.random()), session="s")
    for given in (None, message(method="notifications/x"), message(id=1, result={})):
        step = store.store_event("1", given)
        with pytest.raises(StopIteration) as done:
            step.send(None)
        assert EventId.parse(done.value.value).stream.request_id == 1


async def test_a_caller_that_names_no_session_is_refused_and_reads_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = ReplayEventStore(ReplayStore(keys=KeyRing.random()))
    with pytest.raises(SessionUnknown, match="for_session"):
        await store.store_event("1", None)
    bound = store.for_session("s")
    event_id = await bound.store_event("1", message(method="notifications/x"))

    async def send(event: Any) -> None:
        raise AssertionError(event)

    assert await store.replay_events_after(event_id, send) is None
    assert "a resume failed" in caplog.text


async def test_a_client_that_goes_during_a_replay_ends_it_in_peace(caplog: pytest.LogCaptureFixture) -> None:
    store = ReplayEventStore(ReplayStore(keys=KeyRing.random()), session="s")
    first = await store.store_event("1", None)
    await store.store_event("1", message(method="notifications/x"))

    async def send(event: Any) -> None:
        raise anyio.BrokenResourceError

    assert await store.replay_events_after(first, send) is None
    assert caplog.records == []


async def test_events_that_are_stored_during_a_replay_are_part_of_it() -> None:
    store = ReplayEventStore(ReplayStore(keys=KeyRing.random()), session="s")
    first = await store.store_event("1", None)
    await store.store_event("1", message(method="notifications/0"))
    seen: list[str] = []

    async def send(event: Any) -> None:
        seen.append(json.loads(write_message(event.message))["method"])
        if len(seen) < 20:
            await anyio.lowlevel.checkpoint()
            await store.store_event("1", message(method=f"notifications/{len(seen)}"))

    assert await store.replay_events_after(first, send) == "1"
    assert seen == [f"notifications/{number}" for number in range(20)]


async def test_a_reader_that_the_window_overtakes_gets_a_prefix_and_a_typed_end() -> None:
    store = ReplayEventStore(ReplayStore(keys=KeyRing.random(), limits=Limits(window_events=8)), session="s")
    first = await store.store_event("1", None)
    # More than one piece of the reader, so that the rest is still in the log when the window moves.
    await store.store_event("1", message(method="notifications/0", params={"fill": "x" * 400_000}))
    await store.store_event("1", message(method="notifications/1"))
    seen: list[Any] = []

    async def send(event: Any) -> None:
        seen.append((json.loads(write_message(event.message)), event.event_id))
        if len(seen) == 1:
            for number in range(2, 20):
                await store.store_event("1", message(method=f"notifications/{number}"))

    await store.replay_events_after(first, send)
    assert seen[0][0]["method"] == "notifications/0"
    error = read_inband_error(seen[1][0])
    assert error is not None
    assert (error.request_id, error.why, seen[1][1], len(seen)) == (1, Why.SLOW, None, 2)


async def test_an_answer_too_large_to_keep_settles_the_call_as_executed() -> None:
    store = ReplayEventStore(ReplayStore(keys=KeyRing.random(), limits=Limits(event_bytes=4096)), session="s")
    first = await store.store_event("1", None)
    assert await store.store_event("1", message(id=1, result={"fill": "x" * 5000})) == ""
    assert store.unresumable == 1
    seen: list[Any] = []

    async def send(event: Any) -> None:
        seen.append(read_inband_error(write_message(event.message)))

    await store.replay_events_after(first, send)
    assert [(error.request_id, error.why, error.executed) for error in seen] == [
        (1, Why.TOO_LARGE, Executed.YES)
    ]
