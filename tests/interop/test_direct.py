"""Published clients straight to a stock server through the same cuts: the harness sees every kind of fault.

What these tests count is what the gateway is measured against; if they found none, they would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counterfoil.testing.link import open_link
from interop.environments import PAIRS, on_pairs
from interop.plans import STEPS, CutTable, cut_after_id, cut_calls, plan_calls
from interop.processes import Orders
from interop.runs import run_client

pytestmark = [pytest.mark.anyio, on_pairs(PAIRS)]


async def test_without_cuts_every_call_ends_in_its_result(client: str, name: str, orders: Orders) -> None:
    plan = plan_calls(name, 6, sessions=2, tools=("order", "ask"))
    async with open_link(orders.server.port) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    for call in run.calls.values():
        assert call.is_right, call
        assert call.has_all_progress(STEPS), call
        assert orders.count_effects(call.key) == 1
    assert not any(run.strays.values())


async def test_without_a_store_every_cut_call_is_lost_though_its_effect_was_applied(
    client: str, name: str, orders: Orders
) -> None:
    plan = plan_calls(name, 6, sessions=2, timeout_s=2)
    table = CutTable.draw(plan.keys(), 1, cut_after_id)
    async with open_link(orders.server.port, plan=table) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert set(cut_calls(link)) == set(plan.keys())
    for call in run.calls.values():
        assert call.outcome == "error", call
        assert call.evidence is None
        assert orders.count_effects(call.key) == 1


async def test_a_store_shared_by_sessions_gives_calls_the_answers_of_others(
    client: str, name: str, orders_for: Callable[..., Orders]
) -> None:
    plan = plan_calls(name, 12, sessions=3, slower_ms=20, timeout_s=3)
    table = CutTable.draw(plan.keys(), 2, cut_after_id)
    async with open_link(orders_for("--store", "shared").server.port, plan=table) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert any(call.is_anothers for call in run.calls.values()), run.calls
