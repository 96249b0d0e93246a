"""Published clients whose standalone stream breaks during a call: the call is untouched, notices go on."""

from __future__ import annotations

import random
from collections.abc import Callable

import anyio
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


class LateResumptions:
    """A route for the link: who resumes is held up until every call has but ten notices left."""

    def __init__(self, gateway: Gateway, orders: Orders, keys: list[str]) -> None:
        self._port = gateway.port
        self._orders = orders
        self._awaited = keys

    async def __call__(self, exchange: Exchange) -> int:
        # The server is another process: nothing here is told by it.
        while "last-event-id" in exchange.headers and not self._is_time():  # noqa: ASYNC110
            await anyio.sleep(0.01)
        return self._port

    def _is_time(self) -> bool:
        return all(self._orders.count_effects(f"{key} has ten left") for key in self._awaited)


@on_pairs(PAIRS)
async def test_after_a_loss_notices_go_on_and_the_call_is_untouched(
    client: str, name: str, anyio_backend: str, orders: Orders, gateways: Callable[..., Gateway]
) -> None:
    """The window is so small that what is sent while the client is away falls out of it."""
    gateway = gateways(orders, anyio_backend, "--set", "limits.window_events=2", name="narrow")
    steps, last = 40, "notice 40"
    plan = plan_calls(
        name, 4, sessions=4, tools=["shout"], steps=steps, pause_ms=10, last_notice=last, linger_s=10
    )
    late = LateResumptions(gateway, orders, plan.keys())
    async with open_link(gateway.port, plan=StandaloneCuts(seed=10), route=late) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert len(link.cuts) == len(plan.keys())
    for call in run.calls.values():
        assert call.is_right, call
        heard = [notice_number(text) for text in run.notices[call.session] if call.key in text]
        assert heard == sorted(set(heard)), "none twice, none out of order"
        assert heard[-1] == steps
        assert len(heard) < steps, "nothing was lost: this test has shown nothing"
        told = [text for text in run.notices[call.session] if call.key not in text]
        assert len(told) == 1, "the loss is told once"
    assert not gateway.complaints()


def notice_number(text: str) -> int:
    return int(text.rpartition(" ")[2])
