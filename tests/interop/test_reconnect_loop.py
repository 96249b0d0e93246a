"""A client that asks for one stream 500 times a second gets its answer, and others notice nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import anyio
import pytest
from interop.environments import on_pairs
from interop.gateways import Gateway
from interop.plans import STEPS, plan_calls
from interop.processes import Orders
from interop.runs import run_client
from interop.wire import Answer, WireSession, open_session

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PER_SECOND = 500


async def read_until_result(answer: Answer) -> str:
    while (event := await answer.next_event()) is not None:
        message = json.loads(event.data) if event.data else {}
        if "result" in message:
            return str(message["result"]["content"][0]["text"])
    raise AssertionError("the stream ended without the result")


async def ask_again_and_again(session: WireSession, event_id: str, stop: anyio.Event) -> int:
    """Ask at the full rate, whatever became of the last one; each connection is dropped after 50 ms.

    A machine that cannot keep up asks less often: what is late is not made up for.
    """
    asked = 0
    at_once = anyio.CapacityLimiter(PER_SECOND // 20)

    async def ask() -> None:
        async with at_once:
            with anyio.move_on_after(0.05):
                async with session.resume(event_id) as answer:
                    assert answer.status == 200
                    await answer.body()

    async with anyio.create_task_group() as tasks:
        while not stop.is_set():
            if at_once.available_tokens:
                tasks.start_soon(ask)
                asked += 1
            await anyio.sleep(1 / PER_SECOND)
    return asked


@on_pairs([("python-2", "asyncio"), ("typescript-2", "trio")])
async def test_a_reconnect_loop_is_endured_by_everybody(
    client: str, name: str, orders: Orders, gateway: Gateway, scaled: Callable[[int, int], int]
) -> None:
    calm = await run_client(client, gateway.url, plan_calls(f"{name}-calm", 8, sessions=2))
    calm_s = max(call.elapsed_s for call in calm.calls.values())
    session = await open_session(gateway.port)
    looped = f"{name}-looped"
    # An ID at once, and nothing more for a while.
    arguments = {"key": looped, "steps": 1, "pause_ms": scaled(1_500, 10_000)}
    async with session.call(1, "order", arguments) as answer:
        first = await answer.next_event()
        assert first is not None
        assert first.id
    stop = anyio.Event()
    asked = 0

    async def loop() -> None:
        nonlocal asked
        asked = await ask_again_and_again(session, first.id, stop)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop)
        plan = plan_calls(name, 8, sessions=2)
        run = await run_client(client, f"{gateway.url}", plan)
        stop.set()
    assert asked > PER_SECOND / 10
    for call in run.calls.values():
        assert call.is_right, call
        assert call.has_all_progress(STEPS), call
        assert call.elapsed_s < 5 * calm_s + 2, (
            call,
            calm_s,
        )  # the loop itself takes its share of the machine
    with anyio.fail_after(30):
        async with session.resume(first.id) as answer:
            assert await read_until_result(answer) == f"receipt ☂ {looped}"
    assert orders.count_effects(looped) == 1
