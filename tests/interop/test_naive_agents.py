"""Agents that know nothing of us and re-issue what failed: one effect per call with adoption, two without.

A tool that answers at least 0.3 s after the cut: an answer that was handed over counts as delivered, and has
a test of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from interop.gateways import Gateway, start_gateway
from interop.plans import (
    CutTable,
    Plan,
    call_key,
    cut_after_answer,
    cut_after_id,
    cut_before_id,
    cut_calls,
    plan_calls,
)
from interop.processes import Orders
from interop.runs import Run, run_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

STEPS = 4
#: Long enough that the answer comes well after the cut on a busy machine too.
PAUSE_MS = 250
SHOWN = 10
USER = {"x-user": "alice"}
OF_USERS = ["--principal", "header:x-user", "--trusted-proxy", "127.0.0.1"]
#: One user's many agents leave a session behind at every cut.
OF_USERS += ["--set", "gateway.principal_sessions=2000"]

CLIENTS = ("python-1", "python-2")
TYPESCRIPT = ("typescript-1", "typescript-2")


def cut_early(rng: random.Random) -> Cut:
    """Draw a cut in the first notes, so that the answer is still to come."""
    cut = cut_after_id(rng)
    return Cut(cut.place, cut.how, frames=1, position=cut.position)


EARLY = "before the head or the id"
PLACES = {EARLY: cut_before_id, "after the id": cut_early}


class CutTimes:
    """A plan for the link: of the calls of each key the first `times` break, each at a place of its own."""

    def __init__(self, draw: Callable[[random.Random], Cut], times: int) -> None:
        self._draw = draw
        self._times = times
        self._made: dict[str, int] = {}

    def __call__(self, exchange: Exchange) -> Cut | None:
        key = call_key(exchange)
        if key is None or self._made.get(key, 0) >= self._times:
            return None
        self._made[key] = self._made.get(key, 0) + 1
        return self._draw(random.Random(f"7 {key} {self._made[key]}"))


def plan_agents(name: str, count: int, *, pause_ms: int = PAUSE_MS, **options: object) -> Plan:
    plan = plan_calls(
        name,
        count,
        sessions=count,
        steps=STEPS,
        pause_ms=pause_ms,
        tries=3,
        timeout_s=3.0,
        at_once=64,
        headers=USER,
    )
    return msgspec.structs.replace(plan, **options)


async def run_agents(client: str, port: int, plan: Plan, draw: Callable[[random.Random], Cut]) -> Run:
    table = CutTable.draw(plan.keys(), seed=7, draw=draw)
    async with open_link(port, plan=table) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    assert set(cut_calls(link)) == set(plan.keys())
    return run


def check_once(run: Run, orders: Orders, gateway: Gateway, *, has_progress: bool = True) -> None:
    for call in run.calls.values():
        assert call.is_right, call
        assert orders.count_effects(call.key) == 1, (call, gateway.log)
        assert not has_progress or call.has_all_progress(STEPS), call


@pytest.fixture(scope="module")
def of_users(orders_for: Callable[..., Orders]) -> Iterator[Gateway]:
    """The gateway that knows whose a call is."""
    with start_gateway(orders_for().server, "asyncio", *OF_USERS) as gateway:
        yield gateway


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("client", CLIENTS)
async def test_with_adoption_each_call_has_one_effect_and_its_own_answer(
    client: str, name: str, place: str, orders: Orders, of_users: Gateway, scaled: Callable[[int, int], int]
) -> None:
    plan = plan_agents(name, scaled(8, 100))
    check_once(await run_agents(client, of_users.port, plan, PLACES[place]), orders, of_users)


@pytest.mark.parametrize("same_session", [False, True], ids=["new-session", "same-session"])
@pytest.mark.parametrize("client", TYPESCRIPT)
async def test_an_agent_whose_client_cancels_what_times_out_has_one_effect_too(
    client: str,
    name: str,
    same_session: bool,
    orders: Orders,
    of_users: Gateway,
    scaled: Callable[[int, int], int],
) -> None:
    """These clients hang where they have no id, and send `notifications/cancelled` at their time-out."""
    plan = plan_agents(name, scaled(4, 100), same_session=same_session)
    run = await run_agents(client, of_users.port, plan, cut_before_id)
    check_once(run, orders, of_users)
    assert all(call.tries >= 2 for call in run.calls.values()), run.calls


async def test_an_answer_that_was_handed_over_before_the_cut_is_the_clients_and_nothing_runs_again(
    name: str, orders: Orders, of_users: Gateway, scaled: Callable[[int, int], int]
) -> None:
    plan = plan_agents(name, scaled(4, 100))
    async with open_link(of_users.port, plan=CutTimes(cut_after_answer, 1)) as link:
        run = await run_client("python-2", f"{link.url}/mcp", plan)
    assert link.cuts  # a client that has its answer may close before the last byte
    check_once(run, orders, of_users)
    assert all(call.tries == 1 for call in run.calls.values()), run.calls


async def test_an_adopter_that_dies_too_leaves_the_call_to_the_next(
    name: str, orders: Orders, of_users: Gateway, scaled: Callable[[int, int], int]
) -> None:
    # Its answer is still to come when the adopter dies.
    plan = plan_agents(name, scaled(4, 100), pause_ms=scaled(600, 1_500), timeout_s=15.0)
    async with open_link(of_users.port, plan=CutTimes(cut_before_id, 2)) as link:
        run = await run_client("python-2", f"{link.url}/mcp", plan)
    assert len(link.cuts) == 2 * len(plan.keys())
    check_once(run, orders, of_users)
    assert all(call.tries == 3 for call in run.calls.values()), run.calls


async def test_equal_calls_in_parallel_keep_their_count_though_as_many_were_cut(
    name: str, orders: Orders, of_users: Gateway, scaled: Callable[[int, int], int]
) -> None:
    # A time-out on a living connection cancels, and runs again: none is wanted here.
    plan = plan_agents(name, scaled(12, 50), pause_ms=600, timeout_s=20.0)
    arguments = plan.sessions[0][0]["arguments"]
    equal = [[{**call, "arguments": arguments} for call in calls] for calls in plan.sessions]
    count, key = len(equal), arguments["key"]
    async with open_link(of_users.port, plan=CutTimes(cut_before_id, count)) as link:
        run = await run_client(
            "python-2", f"{link.url}/mcp", msgspec.structs.replace(plan, sessions=equal, tries=5)
        )
    assert len(link.cuts) == count
    assert all(call.text == f"receipt ☂ {key}" for call in run.calls.values()), run.calls
    assert orders.count_effects(key) == count, of_users.log


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("way", ["direct", "adopt_s=0"])
async def test_without_adoption_a_cut_before_the_id_doubles_effects(
    client: str, name: str, way: str, orders: Orders
) -> None:
    plan = plan_agents(name, SHOWN)
    if way == "direct":
        run = await run_agents(client, orders.server.port, plan, cut_before_id)
    else:
        with start_gateway(orders.server, "asyncio", *OF_USERS, "--set", "gateway.adopt_s=0") as gateway:
            run = await run_agents(client, gateway.port, plan, cut_before_id)
    effects = [orders.count_effects(key) for key in run.calls]
    assert sum(count > 1 for count in effects) >= SHOWN // 2, effects
