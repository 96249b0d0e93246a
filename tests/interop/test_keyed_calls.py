"""Keyed calls in the revision without sessions, through a real gateway, ledger and server: one effect each.

Every call asks for `detach`, is cut, and is made again under a new JSON-RPC id; in one test the gateway is
killed halfway.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from counterfoil.testing.link import open_link
from interop.gateways import start_gateway
from interop.keyed import OF_USERS, Caller, CutFirst, call_all, client, doubts, until
from interop.processes import Orders

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def test_each_of_many_calls_that_are_cut_and_made_again_has_one_effect(
    tmp_path: Path, orders: Orders, scaled: Callable[[int, int], int]
) -> None:
    keys = [f"{tmp_path.name}-{number}" for number in range(scaled(60, 1_000))]
    options = [*OF_USERS, "--ledger", str(tmp_path / "calls.db")]
    with start_gateway(orders.server, "asyncio", *options) as gateway:
        async with open_link(gateway.port, plan=CutFirst()) as link, client() as http:
            caller = Caller(http, f"{link.url}/mcp")
            answers = await call_all(caller, keys)
            assert len(link.cuts) == len(keys)
    assert all(f"receipt ☂ {key}" in str(answers[key]["result"]) for key in keys)
    assert [key for key in keys if orders.count_effects(key) != 1] == []
    assert caller.acknowledged >= {"detach", "stored"}
    assert doubts(tmp_path / "calls.db") == set()


async def test_killed_halfway_no_call_has_two_effects_and_every_doubtful_one_is_reported(
    tmp_path: Path, orders: Orders, scaled: Callable[[int, int], int]
) -> None:
    keys = [f"{tmp_path.name}-{number}" for number in range(scaled(60, 1_000))]
    ledger = tmp_path / "calls.db"
    options = [*OF_USERS, "--ledger", str(ledger)]
    answers: dict[str, dict[str, Any]] = {}
    async with client() as http:
        caller = Caller(http, "")
        with start_gateway(orders.server, "asyncio", *options) as gateway:
            async with open_link(gateway.port, plan=CutFirst()) as link, anyio.create_task_group() as tasks:
                caller.url = f"{link.url}/mcp"

                async def collect() -> None:
                    answers.update(await call_all(caller, keys))

                tasks.start_soon(collect)
                await until(lambda: sum(map(orders.count_effects, keys[:: len(keys) // 20])) >= 10)
                gateway.process.kill()
                gateway.process.wait()
                with start_gateway(orders.server, "asyncio", *options) as second:
                    caller.url = f"http://127.0.0.1:{second.port}/mcp"
                    await until(lambda: len(answers) == len(keys))
    effects = {key: orders.count_effects(key) for key in keys}
    assert [key for key, count in effects.items() if count > 1] == []
    in_doubt = {key for key, answer in answers.items() if "error" in answer}
    assert all(effects[key] == 1 for key in keys if key not in in_doubt)
    for key in in_doubt:
        evidence = answers[key]["error"]["data"]["io.counterfoil"]
        assert evidence["executed"] == "unknown", answers[key]
    assert in_doubt == doubts(ledger)
    assert in_doubt, "the kill came when nothing was under way: it proves nothing"
