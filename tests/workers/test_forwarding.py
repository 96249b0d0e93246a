"""Any process answers for any stream: a resume that reaches another one is passed to the owner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from counterfoil.adapters.peers.peers import PeerPace
from counterfoil.limits import Limits
from counterfoil.native import EventId
from gateway_kit import Exchange, Upstream, in_band
from workers_kit import Held, until, workers

pytestmark = pytest.mark.anyio


async def test_a_resume_at_the_other_worker_gets_every_missed_event_and_the_answer(folder: Path) -> None:
    held = Held()
    async with workers(Upstream(held), folder) as host:
        async with host.clients[0].call(5) as stream:
            first = (await stream.next()).id
            assert (await stream.message())["params"]["progress"] == 1
        async with host.clients[1].get(first) as stream:
            assert [(await stream.message())["params"]["progress"] for _ in (1, 2)] == [1, 2]
            held.go.set()
            *notes, answer = await stream.rest()
            assert [message["params"]["progress"] for message in notes] == [3]
            assert answer["result"] == "done"
            assert answer["id"] == 5
            assert "verdict=resumed" in stream.claim
            assert 'via="worker 2"' in stream.claim
            assert stream.comments[0] == "stream-continuity " + stream.claim
        assert held.calls == 1
        await until(lambda: host.each[1].forwards("answered") == 1)
        assert [verdict.why for verdict in host.each[0].resumed] == ["held"]
        assert not host.each[1].resumed


async def test_the_owner_stands_in_the_token_and_a_resume_where_it_is_goes_nowhere(folder: Path) -> None:
    held = Held()
    held.go.set()
    async with workers(Upstream(held), folder) as host:
        for client, worker in zip(host.clients, host.each, strict=True):
            async with client.call(1) as stream:
                first = (await stream.next()).id
            assert first is not None
            assert EventId.parse(first).stream.owner == worker.peers.own.number
            async with client.get(first) as stream:
                assert (await stream.rest())[-1]["result"] == "done"
                assert "via" not in stream.claim
        assert not any(worker.peers.counts for worker in host.each)


async def test_a_client_that_leaves_the_one_leaves_the_other(folder: Path) -> None:
    held = Held()
    async with workers(Upstream(held), folder) as host:
        async with host.clients[0].call(5) as stream:
            first = (await stream.next()).id
        async with host.clients[1].get(first) as stream:
            await stream.message()
            assert host.each[0].store.statistics().readers == 1
        await until(lambda: not host.each[0].store.statistics().readers)
        held.go.set()


async def test_a_stream_of_an_earlier_life_is_refused_at_once_and_the_call_gets_its_own_error(
    folder: Path,
) -> None:
    """The kernel says that nobody listens there any more: nothing is waited for."""
    held = Held()
    async with workers(Upstream(held), folder) as host:
        async with host.clients[0].call("mine") as stream:
            first = (await stream.next()).id
        host.each[0].unlink_socket()
        with anyio.fail_after(2):
            async with host.clients[1].get(first) as stream:
                (error,) = await stream.rest()
        assert error["id"] == "mine"
        assert in_band(error)["why"] == "unknown-stream"
        assert in_band(error)["executed"] == "unknown"
        await until(lambda: host.each[1].forwards("gone") == 1)
        held.go.set()


@pytest.mark.slow
async def test_200_calls_of_a_dead_owner_end_typed_and_nobody_is_held_for_it(
    folder: Path, scaled: Callable[[int, int], int]
) -> None:
    """Time stands still for holds: whoever were held would be held for an hour."""
    count = scaled(40, 200)
    held = Held()
    patient = {"pace": PeerPace(hold_s=3_600), "hold_s": 3_600, "limits": Limits(session_streams=1_000)}
    async with workers(Upstream(held), folder, **patient) as host:
        cursors: dict[int, str | None] = {}

        async def call(number: int) -> None:
            async with host.clients[0].call(number) as stream:
                cursors[number] = (await stream.next()).id

        async with host.clients[1].call("of the other") as other:
            await other.message()
            async with anyio.create_task_group() as tasks:
                for number in range(count):
                    tasks.start_soon(call, number)
            host.each[0].unlink_socket()

            async def resume(number: int) -> None:
                async with host.clients[1].get(cursors[number]) as stream:
                    (error,) = await stream.rest()
                assert error["id"] == number
                assert in_band(error)["why"] == "unknown-stream"
                assert in_band(error)["executed"] == "unknown"

            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    for number in range(count):
                        tasks.start_soon(resume, number)
            held.go.set()
            assert (await other.rest())[-1]["result"] == "done"
        assert held.calls == count + 1  # nothing ran twice
        await until(lambda: host.each[1].forwards("gone") == count)
        assert not host.each[1].forwards("unreachable")


async def test_an_owner_that_says_nothing_is_held_for_and_then_asked_for_again_later(folder: Path) -> None:
    held = Held()
    async with workers(Upstream(held), folder, pace=PeerPace(hold_s=0.4)) as host:
        async with host.clients[0].call("mine") as stream:
            first = (await stream.next()).id
        path = host.each[0].unlink_socket()
        await host.each[1].drop_connections()
        async with await anyio.create_unix_listener(path):  # it takes connections and says nothing
            for _ in range(3):
                began = anyio.current_time()
                async with host.clients[1].get(first) as stream:
                    echo = await stream.next()
                    assert echo.id == first
                    assert "why=store" in stream.claim
                    assert "next=retry" in stream.claim
                assert 0.35 < anyio.current_time() - began < 2
            async with host.clients[1].get(first) as stream:
                (error,) = await stream.rest()
                assert in_band(error)["why"] == "unknown-stream"
        held.go.set()


async def test_a_standalone_stream_has_one_home_whoever_is_asked(folder: Path) -> None:
    """Its upstream is read once; `New` is said only where the session has been held since `initialize`."""
    told = anyio.Event()

    async def on_get(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": 1}})
        await told.wait()
        await exchange.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": 2}})
        await exchange.wait_gone()

    upstream = Upstream(None, on_get)
    async with workers(upstream, folder, count=3) as host:
        async with host.clients[0].get() as stream:
            assert "verdict=new" in stream.claim
            assert (await stream.message())["params"]["n"] == 1
            last = stream.events[-1].id
        told.set()
        for client in host.clients:
            async with client.get(last) as stream:
                assert "verdict=resumed" in stream.claim
                assert (await stream.message())["params"]["n"] == 2
        assert upstream.count("GET") == 1
        await until(lambda: sum(sum(worker.peers.counts.values()) for worker in host.each) >= 2)
