"""An answer that nobody got belongs to the next identical call, whichever process that reaches."""

from __future__ import annotations

from pathlib import Path

import pytest
from counterfoil.adapters.gateway.across.offers import Offers
from counterfoil.adapters.gateway.arrival.scopes import scope_from_header
from counterfoil.adapters.peers.peers import PeerPace
from counterfoil.native import Scope
from gateway_kit import Exchange, Upstream, in_band
from workers_kit import Held, Workers, until, workers

PRINCIPAL = scope_from_header("x-tenant", trusted_proxies=["127.0.0.1"], principal="x-user")
WHO = {"x-tenant": "t", "x-user": "u"}


@pytest.mark.anyio
async def test_an_identical_call_at_the_other_worker_takes_the_first_one_over(folder: Path) -> None:
    held = Held()
    async with workers(
        Upstream(held), folder, scope=PRINCIPAL, opens=False, adopt_return_s=0.1, prime_after_ms=5_000
    ) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        first, other = host.clients
        async with first.call(5) as stream:
            await stream.message()
        offers = host.each[1].gateway._across.offers  # type: ignore[union-attr]
        await until(lambda: len(offers) == 1)
        await other.initialize()  # as agents do: in a new session
        async with other.call(5) as stream:
            assert (await stream.message())["params"]["progress"] == 1
            assert "why=adopted" in stream.claim
            held.go.set()
            assert (await stream.rest())[-1]["result"] == "done"
        assert held.calls == 1
        await until(lambda: len(offers) == 0)
        async with other.call(5) as stream:  # it was handed over: the next one is a call of its own
            assert (await stream.rest())[-1]["result"] == "done"
        assert held.calls == 2


@pytest.mark.anyio
async def test_a_doubt_is_told_to_identical_calls_everywhere(folder: Path) -> None:
    """Its first caller has been told; an agent that makes the call again elsewhere is told too."""
    calls = 0

    async def on_call(exchange: Exchange) -> None:
        nonlocal calls
        calls += 1
        await exchange.start()
        await exchange.note(1)
        await exchange.end()  # without an answer

    async with workers(Upstream(on_call), folder, scope=PRINCIPAL, opens=False) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        async with host.clients[0].call(5) as stream:
            assert in_band((await stream.rest())[-1])["executed"] == "unknown"
        offers = host.each[1].gateway._across.offers  # type: ignore[union-attr]
        await until(lambda: len(offers) == 1)
        async with host.clients[1].call(5) as stream:
            assert in_band((await stream.rest())[-1])["executed"] == "unknown"
        assert calls == 1


@pytest.mark.anyio
async def test_an_offer_of_a_worker_that_died_is_passed_over_and_the_call_runs(folder: Path) -> None:
    held = Held()
    async with workers(Upstream(held), folder, scope=PRINCIPAL, opens=False) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        async with host.clients[0].call(5) as stream:
            await stream.message()
        offers = host.each[1].gateway._across.offers  # type: ignore[union-attr]
        await until(lambda: len(offers) == 1)
        host.each[0].unlink_socket()
        held.go.set()
        async with host.clients[1].call(5) as stream:
            assert (await stream.rest())[-1]["result"] == "done"
        assert held.calls == 2


def hear_no_news(host: Workers) -> None:
    """As if the news of an undelivered call were still on its way."""
    for worker in host.each:
        worker.gateway._across.offers.note = lambda *_, **__: None  # type: ignore[union-attr,method-assign]


@pytest.mark.anyio
async def test_a_call_made_again_before_the_news_of_its_cut_is_sent_where_the_first_one_is(
    folder: Path,
) -> None:
    """Neighbours see each other's calls while they run: there is no race between an agent and the news."""
    held = Held()
    async with workers(
        Upstream(held), folder, scope=PRINCIPAL, opens=False, adopt_return_s=0.1, prime_after_ms=5_000
    ) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        hear_no_news(host)
        first, other = host.clients
        await other.initialize()
        async with first.call(5) as stream:
            await stream.next()
        async with other.call(5) as stream:
            assert (await stream.message())["params"]["progress"] == 1
            assert "why=adopted" in stream.claim
            held.go.set()
            assert (await stream.rest())[-1]["result"] == "done"
        assert held.calls == 1
        for number in range(3):  # it was handed over: the next ones are calls of their own, where they arrive
            async with host.clients[number % 2].call(5) as stream:
                await stream.rest()
        assert held.calls == 4
        await until(lambda: host.each[1].forwards("answered") == 1)
        assert not host.each[0].forwards("answered")


@pytest.mark.anyio
async def test_the_equal_call_of_another_caller_who_is_there_runs_too(folder: Path) -> None:
    """It is sent to the process of the first one, waits there for a moment, and runs."""
    held = Held()
    async with workers(
        Upstream(held), folder, scope=PRINCIPAL, opens=False, adopt_settle_ms=5, prime_after_ms=5_000
    ) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        async with host.clients[0].call(5) as first:
            await first.message()
            async with host.clients[1].call(5) as second:
                assert (await second.message())["params"]["progress"] == 1
                assert held.calls == 2
                held.go.set()
                for stream in (first, second):
                    assert (await stream.rest())[-1]["result"] == "done"
        assert host.each[0].peers.taken.requests["Forwarded"] == 1


@pytest.mark.anyio
async def test_a_neighbour_that_died_with_an_equal_call_costs_the_next_one_nothing_but_a_look(
    folder: Path,
) -> None:
    held = Held()
    async with workers(
        Upstream(held), folder, scope=PRINCIPAL, opens=False, pace=PeerPace(hold_s=3_600)
    ) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        hear_no_news(host)
        async with host.clients[0].call(5) as stream:
            await stream.message()
        host.each[0].unlink_socket()
        held.go.set()
        for _ in range(2):
            async with host.clients[1].call(5) as stream:
                assert (await stream.rest())[-1]["result"] == "done"
        assert held.calls == 3
        assert host.each[1].forwards("gone") == 1  # not asked again


@pytest.mark.anyio
async def test_a_worker_that_starts_is_told_what_the_others_offered_before(folder: Path) -> None:
    held = Held()
    async with workers(
        Upstream(held), folder, scope=PRINCIPAL, opens=False, adopt_return_s=0.1, prime_after_ms=5_000
    ) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        async with host.clients[0].call(5) as stream:
            await stream.message()
        across = host.each[1].gateway._across
        assert across is not None
        await until(lambda: len(across.offers) == 1)
        across.offers = Offers()  # as in a new life
        await across.learn_offers()
        assert len(across.offers) == 1
        await host.clients[1].initialize()
        async with host.clients[1].call(5) as stream:
            assert "why=adopted" in stream.claim
            held.go.set()
            assert (await stream.rest())[-1]["result"] == "done"
        assert held.calls == 1


@pytest.mark.anyio
async def test_a_client_that_leaves_its_session_leaves_its_calls_at_every_worker(folder: Path) -> None:
    """Its standalone stream is read at one worker, its call runs at the other: it is not waited for there."""
    held = Held()

    async def on_get(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.wait_gone()

    async with workers(
        Upstream(held, on_get), folder, scope=PRINCIPAL, opens=False, adopt_return_s=3_600, retry_ms=50
    ) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        session = host.clients[0].fields["mcp-session-id"]
        scope = Scope(tenant="t", principal="u", session=session)
        home = host.each[0].peers.home_of(scope).worker - 1
        runs = host.clients[1 - home]
        async with host.clients[home].get() as standalone:
            assert "verdict=new" in standalone.claim
            async with runs.call(5) as stream:
                await stream.message()
        table = host.each[1 - home].gateway.adoption._adopting.table  # type: ignore[union-attr]
        await until(lambda: table.has_left(scope))
        again = host.clients[home]
        await again.initialize()
        async with again.call(5) as stream:
            assert (await stream.message())["params"]["progress"] == 1
            held.go.set()
            assert (await stream.rest())[-1]["result"] == "done"
        assert held.calls == 1
        again.fields["mcp-session-id"] = session
        async with again.get():
            await until(lambda: not table.has_left(scope))
