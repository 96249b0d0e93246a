"""Calls without a key over a ledger, through a real gateway that is killed with -9: at most one effect each.

Agents know nothing of us: a call that failed is made again, in a new session, at the gateway that was started
anew.  Some had an answer that nobody got by then, some were under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import anyio
import httpx2
import pytest
from counterfoil.testing.link import open_link
from interop.gateways import start_gateway
from interop.processes import Orders
from interop.unkeyed import (
    AT_ONCE,
    OF_USERS,
    TRIES,
    Agent,
    CutSome,
    World,
    listed,
    tell_when_cut,
    until,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def test_killed_with_calls_open_and_undelivered_none_has_two_effects_and_each_ends(
    tmp_path: Path, orders: Orders, scaled: Callable[[int, int], int]
) -> None:
    keys = [f"{tmp_path.name}-{number}" for number in range(scaled(80, 1_000))]
    ledger = tmp_path / "calls.db"
    options = [*OF_USERS, "--ledger", str(ledger)]
    # Who was cut waits for the next life, however long that takes: its window is not to end before.
    options += ["--set", "limits.grace_s=600", "--set", "gateway.adopt_s=600"]

    def count_effects() -> Counter[str]:
        return Counter(orders.effects.read_text().split("\n") if orders.effects.exists() else ())

    async with httpx2.AsyncClient(timeout=30, limits=httpx2.Limits(max_connections=AT_ONCE)) as http:
        world = World(http)
        agents = [Agent(world, key, tool="order_when_told", pause_ms=20) for key in keys]
        plan = CutSome(keys)
        for key in keys:
            if key not in plan.cuts:
                orders.tell(key)
        with start_gateway(orders.server, "asyncio", *options) as gateway:
            async with (
                open_link(gateway.port, plan=plan) as link,
                anyio.create_task_group() as tasks,
            ):
                world.url = f"{link.url}/mcp"
                tasks.start_soon(tell_when_cut, link, orders)
                for agent in agents:
                    tasks.start_soon(agent.run)
                await until(lambda: len(count_effects() & Counter(keys)) >= len(keys) // 2)
                gateway.process.kill()
                gateway.process.wait()
                undelivered = len(listed(ledger, "undelivered"))
                for key in plan.cuts:
                    orders.tell(key)
                with start_gateway(orders.server, "asyncio", *options) as second:
                    world.url = f"http://127.0.0.1:{second.port}/mcp"
                    world.started_anew.set()
                    await until(lambda: all(a.said and (a.result or len(a.said) == TRIES) for a in agents))
                    await until(lambda: not listed(ledger, "undelivered"))
                    doubts = listed(ledger, "indeterminate")
                    adopted = listed(ledger, "adopted")
                tasks.cancel_scope.cancel()
    effects = count_effects()
    assert [key for key in keys if effects[key] > 1] == []
    in_doubt = [agent for agent in agents if agent.result is None]
    for agent in agents:
        if agent not in in_doubt:
            assert effects[agent.key] == 1, agent.said
            assert f"receipt ☂ {agent.key}" in str(agent.result)
    for agent in in_doubt:
        told = [said["error"]["data"]["io.counterfoil"] for said in agent.said]
        assert [each["executed"] for each in told] == ["unknown"] * TRIES, told
    # Every doubtful one is reported, and nothing else is.
    assert len(doubts) == len(in_doubt)
    assert {(doubt["what"], doubt["label"]) for doubt in doubts} <= {("unkeyed", "order_when_told")}
    # The kill came when some were under way, and some had an answer that nobody had got.
    assert undelivered
    assert in_doubt
    assert adopted
    assert any("why=adopted" in claim for agent in agents for claim in agent.claims)
