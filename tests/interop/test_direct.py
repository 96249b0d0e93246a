"""Published clients straight to a stock server through the same cuts: the harness sees every kind of fault.

What these tests count is what the gateway is measured against; if they found none, they would prove nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from counterfoil.testing.link import open_link
from interop.environments import CLIENTS
from interop.plans import STEPS, CutTable, cut_after_id, cut_calls, plan_calls
from interop.processes import start_orders
from interop.runs import run_client

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("client", CLIENTS)]


@pytest.fixture
def anyio_backend() -> str:
    """One backend: nothing of ours runs here but the link, which has tests of its own."""
    return "asyncio"


async def test_without_cuts_every_call_ends_in_its_result(client: str, tmp_path: Path) -> None:
    plan = plan_calls(6, sessions=2, tool="ask")
    with start_orders(tmp_path / "effects") as orders:
        async with open_link(orders.server.port) as link:
            run = await run_client(client, f"{link.url}/mcp", plan)
        for call in run.calls.values():
            assert call.is_right, call
            assert call.has_all_progress(STEPS), call
            assert orders.count_effects(call.key) == 1
    assert not any(run.strays.values())


async def test_without_a_store_every_cut_call_is_lost_though_its_effect_was_applied(
    client: str, tmp_path: Path
) -> None:
    plan = plan_calls(8, sessions=2, timeout_s=3)
    table = CutTable.draw(plan.keys(), 1, cut_after_id)
    with start_orders(tmp_path / "effects") as orders:
        async with open_link(orders.server.port, plan=table) as link:
            run = await run_client(client, f"{link.url}/mcp", plan)
        cut = cut_calls(link)
        assert len(cut) >= 5
        for key in cut:
            assert run.calls[key].outcome != "result", run.calls[key]
            assert run.calls[key].evidence is None
            assert orders.count_effects(key) == 1


async def test_a_store_shared_by_sessions_gives_calls_the_answers_of_others(
    client: str, tmp_path: Path
) -> None:
    plan = plan_calls(12, sessions=3, slower_ms=20, timeout_s=3)
    table = CutTable.draw(plan.keys(), 2, cut_after_id)
    with start_orders(tmp_path / "effects", "--store", "shared") as orders:
        async with open_link(orders.server.port, plan=table) as link:
            run = await run_client(client, f"{link.url}/mcp", plan)
    assert any(call.is_anothers for call in run.calls.values()), run.calls
