"""An answer that nobody got belongs to the next identical call, whichever process that reaches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import pytest
from counterfoil.adapters.gateway.arrival.scopes import scope_from_header
from gateway_kit import Exchange, Upstream, in_band
from workers_kit import Held, until, workers

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


@pytest.mark.anyio
async def test_the_other_worker_knows_of_an_undelivered_call_within_the_time_a_call_is_settled_for(
    folder: Path,
) -> None:
    """The bound of the race: from the disconnect to the news is less than `adopt_settle_ms` (50), by far."""
    held = Held()
    waits = Counter[str]()
    async with workers(Upstream(held), folder, scope=PRINCIPAL, opens=False) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        offers = host.each[1].gateway._across.offers  # type: ignore[union-attr]
        for number in range(10):
            async with host.clients[0].call(number) as stream:
                await stream.message()
            began = anyio.current_time()
            await until(lambda number=number: len(offers) == number + 1)
            waits["late"] += anyio.current_time() - began > 0.05
        held.go.set()
    assert waits["late"] <= 5  # a busy machine may be late; a mechanism that polls would always be
