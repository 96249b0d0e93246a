"""Agents that know nothing of us and re-issue what failed: one effect per call with adoption, two without.

The tool answers 0.3 s after the cuts, however late they come: an answer that was handed over counts as
delivered, and has a test of its own, and so has one that its client cancels on a living connection.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import anyio
import msgspec
import pytest
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import Link, open_link
from interop.gateways import Gateway, start_gateway
from interop.plans import (
    Plan,
    call_key,
    cut_after_answer,
    cut_after_id,
    cut_before_id,
    plan_calls,
)
from interop.processes import Orders
from interop.runs import Run, run_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

STEPS = 4
PAUSE_MS = 40
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


def plan_agents(name: str, count: int, *, tool: str = "order_when_told", **options: object) -> Plan:
    plan = plan_calls(
        name,
        count,
        sessions=count,
        tools=(tool,),
        steps=STEPS,
        pause_ms=PAUSE_MS,
        tries=10,
        timeout_s=3.0,
        at_once=64,
        headers=USER,
    )
    return msgspec.structs.replace(plan, **options)


async def run_agents(
    client: str, port: int, plan: Plan, cuts: CutTimes, orders: Orders, *, times: int = 1
) -> Run:
    """Run a plan; a call comes to its end when those of its key were cut `times` times."""
    async with open_link(port, plan=cuts) as link, anyio.create_task_group() as tasks:
        tasks.start_soon(tell_when_cut, link, orders, set(plan.arguments_keys()), times)
        run = await run_client(client, f"{link.url}/mcp", plan)
        tasks.cancel_scope.cancel()
    assert Counter(call_key(cut.exchange) for cut in link.cuts) == dict.fromkeys(plan.arguments_keys(), times)
    return run


async def tell_when_cut(link: Link, orders: Orders, keys: set[str], times: int) -> None:
    """Let each call end once it was cut as often as it is to be."""
    while keys:
        made = Counter(call_key(cut.exchange) for cut in link.cuts)
        for key in {key for key in keys if made[key] >= times}:
            keys.discard(key)
            orders.tell(key)
        await anyio.sleep(0.01)


async def check_once(run: Run, orders: Orders, column: Column) -> None:
    """Each call ended in its own answer, and had one effect but for those that have a column of their own."""
    for call in run.calls.values():
        assert call.is_right, call
        assert call.has_all_progress(STEPS), call
        assert orders.count_effects(call.key), call
    await column.check(sum(orders.count_effects(key) - 1 for key in run.calls))


class Column:
    """Calls that run again as they should: agents that hear nothing for 3 s make them, on a busy machine too.

    The answer of the one before had been handed over, or its client cancelled it while it was there.
    """

    def __init__(self, gateway: Gateway, orders: Orders) -> None:
        self._log = gateway.log
        self._orders = orders
        self._before = self._count()

    def _count(self) -> int:
        handed_over = sum('"not-adopted"' in line for line in self._log)
        return handed_over + self._orders.count_cancellations()

    async def check(self, effects: int) -> None:
        """Fail where there were more effects than that; a log comes a little later."""
        for _ in range(100):
            if self._count() - self._before >= effects:
                break
            await anyio.sleep(0.05)
        assert effects <= self._count() - self._before, "one ran twice"


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
    plan, column = plan_agents(name, scaled(8, 100)), Column(of_users, orders)
    run = await run_agents(client, of_users.port, plan, CutTimes(PLACES[place], 1), orders)
    await check_once(run, orders, column)


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
    plan, column = plan_agents(name, scaled(4, 100), same_session=same_session), Column(of_users, orders)
    run = await run_agents(client, of_users.port, plan, CutTimes(cut_before_id, 1), orders)
    await check_once(run, orders, column)
    assert all(call.tries >= 2 for call in run.calls.values()), run.calls


async def test_an_answer_that_was_handed_over_before_the_cut_is_the_clients_and_nothing_runs_again(
    name: str, orders: Orders, of_users: Gateway, scaled: Callable[[int, int], int]
) -> None:
    plan, column = plan_agents(name, scaled(4, 100), tool="order", timeout_s=30.0), Column(of_users, orders)
    async with open_link(of_users.port, plan=CutTimes(cut_after_answer, 1)) as link:
        run = await run_client("python-2", f"{link.url}/mcp", plan)
    assert link.cuts  # a client that has its answer may close before the last byte
    await check_once(run, orders, column)
    assert all(call.tries == 1 for call in run.calls.values()), run.calls


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_adopter_that_dies_too_leaves_the_call_to_the_next(
    client: str, name: str, orders: Orders, of_users: Gateway, scaled: Callable[[int, int], int]
) -> None:
    plan, column = plan_agents(name, scaled(4, 100)), Column(of_users, orders)
    run = await run_agents(client, of_users.port, plan, CutTimes(cut_before_id, 2), orders, times=2)
    await check_once(run, orders, column)
    assert all(call.tries >= 3 for call in run.calls.values()), run.calls


async def test_equal_calls_in_parallel_keep_their_count_though_as_many_were_cut(
    name: str, orders: Orders, of_users: Gateway, scaled: Callable[[int, int], int]
) -> None:
    # Which of them are cut is not said; none is to give up, as what it made again could not be told apart.
    count = scaled(12, 50)
    plan = plan_agents(name, count, tries=count + 1, timeout_s=60.0)
    arguments = plan.sessions[0][0]["arguments"]
    equal = [[{**call, "arguments": arguments} for call in calls] for calls in plan.sessions]
    plan = msgspec.structs.replace(plan, sessions=equal)
    cuts = CutTimes(cut_before_id, count)
    run = await run_agents("python-2", of_users.port, plan, cuts, orders, times=count)
    assert {call.text for call in run.calls.values()} == {f"receipt ☂ {arguments['key']}"}
    assert orders.count_effects(arguments["key"]) == count


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("way", ["direct", "adopt_s=0"])
async def test_without_adoption_a_cut_before_the_id_doubles_effects(
    client: str, name: str, way: str, orders: Orders
) -> None:
    plan, cuts = plan_agents(name, SHOWN), CutTimes(cut_before_id, 1)
    if way == "direct":
        run = await run_agents(client, orders.server.port, plan, cuts, orders)
    else:
        with start_gateway(orders.server, "asyncio", *OF_USERS, "--set", "gateway.adopt_s=0") as gateway:
            run = await run_agents(client, gateway.port, plan, cuts, orders)
    effects = [orders.count_effects(key) for key in run.calls]
    assert sum(count > 1 for count in effects) >= SHOWN // 2, effects
