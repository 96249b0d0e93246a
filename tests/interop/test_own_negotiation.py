"""A published client that negotiates by itself speaks 2026-07-28 and loses every cut call; two options help.

The cut plans of `test_cut_calls`: as it is, with `max_revision`, and with `resume_grace_s`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from counterfoil.testing.cuts import Cut
from counterfoil.testing.link import open_link
from interop.gateways import Gateway
from interop.plans import (
    CutTable,
    Plan,
    cut_after_id,
    cut_after_primed_id,
    cut_calls,
    plan_calls,
    resumptions,
)
from interop.processes import Orders
from interop.runs import Run, run_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CLIENT = "python-2-auto"
NEWEST, WITH_SESSIONS = "2026-07-28", "2025-11-25"
BACKENDS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def without_characters(draw: Callable[[random.Random], Cut]) -> Callable[[random.Random], Cut]:
    """Draw again where a cut is inside a character: in this revision the server escapes all but ASCII."""

    def draw_again(rng: random.Random) -> Cut:
        while (cut := draw(rng)).place == "in-character":
            pass
        return cut

    return draw_again


async def run_cut(gateway: Gateway, plan: Plan, *, primed: bool) -> tuple[Run, int]:
    """Cut every call once after its first ID (or after its second frame); return the run and the resumes."""
    draw = cut_after_primed_id if primed else cut_after_id
    table = CutTable.draw(plan.keys(), seed=3, draw=without_characters(draw))
    async with open_link(gateway.port, plan=table) as link:
        run = await run_client(CLIENT, f"{link.url}/mcp", plan)
    assert set(cut_calls(link)) == set(plan.keys())
    return run, len(resumptions(link))


def plan_of(name: str, count: int, revision: str) -> Plan:
    return plan_calls(name, count, sessions=min(count, 5), revision=revision, timeout_s=10)


def check_all(run: Run, orders: Orders) -> None:
    for call in run.calls.values():
        assert call.is_right, call
        assert call.has_all_progress(5), call
        assert orders.count_effects(call.key) == 1, call


@BACKENDS
async def test_as_it_is_every_cut_call_is_lost(
    name: str, anyio_backend: str, orders: Orders, gateway: Gateway
) -> None:
    run, resumed = await run_cut(gateway, plan_of(name, 5, NEWEST), primed=False)
    assert not any(call.is_right for call in run.calls.values()), run.calls
    assert not resumed


@BACKENDS
async def test_with_max_revision_none_is_lost(
    name: str,
    anyio_backend: str,
    orders: Orders,
    gateways: Callable[..., Gateway],
    scaled: Callable[[int, int], int],
) -> None:
    gateway = gateways(orders, anyio_backend, "--max-revision", WITH_SESSIONS)
    run, resumed = await run_cut(gateway, plan_of(name, scaled(10, 100), WITH_SESSIONS), primed=True)
    check_all(run, orders)
    assert resumed


@BACKENDS
async def test_with_resume_grace_none_is_lost(
    name: str,
    anyio_backend: str,
    orders: Orders,
    gateways: Callable[..., Gateway],
    scaled: Callable[[int, int], int],
) -> None:
    gateway = gateways(orders, anyio_backend, "--set", "gateway.resume_grace_s=10")
    run, resumed = await run_cut(gateway, plan_of(name, scaled(10, 100), NEWEST), primed=True)
    check_all(run, orders)
    assert resumed
