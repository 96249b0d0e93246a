"""One timer wakes each stream at its latest plan, and forgets what was replaced."""

from __future__ import annotations

import anyio
import pytest
from counterfoil.adapters.client.wakeups import Wakeup, Wakeups, loop_clock

pytestmark = pytest.mark.anyio


async def test_a_later_plan_replaces_an_earlier_one_and_the_order_is_that_of_time() -> None:
    called: list[str] = []
    wakeups = Wakeups()
    first, second, never = (Wakeup(lambda name=name: called.append(name)) for name in "abc")
    now = anyio.current_time()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wakeups.run)
            wakeups.plan(first, now + 0.02)
            wakeups.plan(never, now + 0.01)
            wakeups.plan(first, now + 0.08)
            wakeups.plan(second, now + 0.04)
            wakeups.forget(never)
            while len(called) < 2:  # noqa: ASYNC110 - the timer is what is tested
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    assert called == ["b", "a"]


async def test_replaced_plans_take_no_room() -> None:
    wakeups = Wakeups()
    wakeup = Wakeup(lambda: None)
    for number in range(10_000):
        wakeups.plan(wakeup, 1e9 + number)
    assert len(wakeups._heap) < 200


async def test_the_loops_clock_is_the_clock_of_anyio() -> None:
    assert abs(loop_clock()() - anyio.current_time()) < 0.5
