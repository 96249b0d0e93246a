"""Agents that know nothing of us and re-issue what failed: one effect per call with adoption, two without.

A tool that answers at least 0.3 s after the cut: an answer that was handed over counts as delivered.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from counterfoil.testing.cuts import Cut
from counterfoil.testing.link import open_link
from interop.gateways import start_gateway
from interop.plans import CutTable, Plan, cut_after_id, cut_before_id, cut_calls, plan_calls
from interop.processes import Orders
from interop.runs import Run, run_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

STEPS = 4
PAUSE_MS = 150
SHOWN = 10
USER = {"x-user": "alice"}
OF_USERS = ["--principal", "header:x-user", "--trusted-proxy", "127.0.0.1"]

CLIENTS = ("python-1", "python-2")


def cut_early(rng: random.Random) -> Cut:
    """Draw a cut in the first notes, so that the answer is still to come."""
    cut = cut_after_id(rng)
    return Cut(cut.place, cut.how, frames=1, position=cut.position)


PLACES = {"before the head or the id": cut_before_id, "after the id": cut_early}


def plan_agents(name: str, count: int) -> Plan:
    return plan_calls(
        name,
        count,
        sessions=count,
        steps=STEPS,
        pause_ms=PAUSE_MS,
        tries=3,
        timeout_s=3.0,
        at_once=64,
        headers=USER,
    )


async def run_agents(client: str, port: int, plan: Plan, place: str) -> Run:
    table = CutTable.draw(plan.keys(), seed=7, draw=PLACES[place])
    async with open_link(port, plan=table) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert set(cut_calls(link)) == set(plan.keys())
    return run


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_with_adoption_each_call_has_one_effect_and_its_own_answer(
    client: str, name: str, place: str, orders: Orders, scaled: Callable[[int, int], int]
) -> None:
    plan = plan_agents(name, scaled(10, 100))
    with start_gateway(orders.server, "asyncio", *OF_USERS) as gateway:
        run = await run_agents(client, gateway.port, plan, place)
    for call in run.calls.values():
        assert call.is_right, call
        assert orders.count_effects(call.key) == 1, (call, gateway.log)
        assert call.has_all_progress(STEPS), call


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("way", ["direct", "adopt_s=0"])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_without_adoption_a_cut_before_the_id_doubles_effects(
    client: str, name: str, way: str, orders: Orders
) -> None:
    plan = plan_agents(name, SHOWN)
    place = "before the head or the id"
    if way == "direct":
        run = await run_agents(client, orders.server.port, plan, place)
    else:
        with start_gateway(orders.server, "asyncio", *OF_USERS, "--set", "gateway.adopt_s=0") as gateway:
            run = await run_agents(client, gateway.port, plan, place)
    effects = [orders.count_effects(key) for key in run.calls]
    assert sum(count > 1 for count in effects) >= SHOWN // 2, effects
