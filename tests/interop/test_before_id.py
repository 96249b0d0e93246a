"""Calls cut before their client had an ID: nobody can ask for the answer, which is kept all the same."""

from __future__ import annotations

from pathlib import Path

import anyio
import httpx2
import pytest
from counterfoil.testing.link import open_link
from interop.gateways import start_gateway
from interop.plans import CutTable, cut_before_id, cut_calls
from interop.processes import Orders
from interop.wire import open_session

pytestmark = pytest.mark.anyio

GRACE_S = 3
CALLS = 8
#: Each call's answer, and the answer of the `initialize` that its session began with.
KEPT = 2 * CALLS


async def count_kept(admin: Path) -> int:
    """Return how many ended streams the gateway keeps, by its own account."""
    transport = httpx2.AsyncHTTPTransport(uds=str(admin))
    async with httpx2.AsyncClient(transport=transport) as client:
        return int((await client.get("http://admin/status")).json()["store"]["ended_streams"])


async def test_an_answer_that_nobody_can_ask_for_stays_until_its_grace_ends(
    anyio_backend: str, orders: Orders, name: str, tmp_path: Path
) -> None:
    admin = tmp_path / "admin"
    grace = ("--set", f"limits.grace_s={GRACE_S}", "--set", "gateway.adopt_s=0")
    options = ("--admin", f"unix:{admin}", *grace)
    keys = [f"{name}-{number}" for number in range(CALLS)]
    table = CutTable.draw(keys, seed=13, draw=cut_before_id)

    async def lose_call(port: int, key: str) -> None:
        session = await open_session(port)
        try:
            async with session.call(1, "order", {"key": key, "steps": 2, "pause_ms": 20}) as answer:
                assert await answer.next_event() is None
        except AssertionError:
            pass  # the connection broke before the head was whole

    with start_gateway(orders.server, anyio_backend, *options) as gateway:
        async with open_link(gateway.port, plan=table) as link, anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(lose_call, link.port, key)
        assert set(cut_calls(link)) == set(keys)

        with anyio.fail_after(10):
            while await count_kept(admin) < KEPT:  # noqa: ASYNC110 (the gateway is another process)
                await anyio.sleep(0.05)
        assert await count_kept(admin) == KEPT
        assert all(orders.count_effects(key) == 1 for key in keys)
        session = await open_session(gateway.port)
        with anyio.fail_after(GRACE_S + 10):
            # A store sweeps when it is used, so one call a second is made; of those, few are kept at a time.
            while await count_kept(admin) > GRACE_S + 2:
                async with session.call("touch", "whoami", {"key": name, "pause_ms": 1}) as answer:
                    await answer.body()
                await anyio.sleep(1)
