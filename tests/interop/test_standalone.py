"""Published clients whose standalone stream breaks during a call: the call is untouched, notices go on."""

from __future__ import annotations

import random

import pytest
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from interop.environments import PAIRS, on_pairs
from interop.gateways import Gateway
from interop.plans import STEPS, cut_standalone, plan_calls, resumptions
from interop.processes import Orders
from interop.runs import run_client

pytestmark = pytest.mark.anyio


class StandaloneCuts:
    """A plan for the link: every session's standalone stream breaks once, in or behind a notice."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.sessions: set[str] = set()

    def __call__(self, exchange: Exchange) -> Cut | None:
        session = exchange.headers.get("mcp-session-id", "")
        if exchange.method != "GET" or session in self.sessions:
            return None
        self.sessions.add(session)
        return cut_standalone(self._rng)


@on_pairs(PAIRS)
async def test_every_notice_comes_once_and_the_call_is_untouched(
    client: str, name: str, orders: Orders, gateway: Gateway
) -> None:
    plan = plan_calls(name, 4, sessions=4, tools=["announce"], last_notice=f"notice {STEPS}", linger_s=10)
    cuts = StandaloneCuts(seed=7)
    async with open_link(gateway.port, plan=cuts) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert len(link.cuts) == len(cuts.sessions) == len(plan.keys())
    assert len(resumptions(link)) == len(plan.keys())
    for call in run.calls.values():
        assert call.is_right, call
        assert call.has_all_progress(STEPS), call
        notices = [f"{call.key} ☂ notice {number}" for number in range(1, STEPS + 1)]
        assert run.notices[call.session] == notices
        assert orders.count_effects(call.key) == 1
