"""One ledger for two worker processes: keyed calls through a real gateway whose workers are killed with -9.

One worker owns the file, the other one asks it.  Whichever dies, no call has two effects, and every doubtful
one is reported, by the `ledger` program too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from counterfoil.testing.link import open_link
from interop import unkeyed
from interop.gateways import Gateway, start_gateway
from interop.keyed import OF_USERS, Caller, CutFirst, call_all, client, doubts, until
from interop.processes import Orders

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


class Host:
    """A gateway of two workers with one ledger."""

    def __init__(self, folder: Path) -> None:
        self.ledger = folder / "calls.db"
        self.admin = folder / "admin.sock"
        self.options = [*OF_USERS, "--workers", "2", "--ledger", str(self.ledger)]
        self.options += ["--admin", f"unix:{self.admin}"]

    async def status(self) -> dict[str, Any]:
        transport = httpx2.AsyncHTTPTransport(uds=str(self.admin))
        async with httpx2.AsyncClient(transport=transport) as http:
            return dict((await http.get("http://admin/status")).json())

    async def metric(self, name: str) -> float:
        transport = httpx2.AsyncHTTPTransport(uds=str(self.admin))
        async with httpx2.AsyncClient(transport=transport) as http:
            text = (await http.get("http://admin/metrics")).text
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))

    async def kill(self, worker: int) -> None:
        """End a worker as the kernel does, and wait until another life has its place."""
        before = (await self.status())["workers"][worker - 1]
        os.kill(before["process"], signal.SIGKILL)
        with anyio.fail_after(30):
            while True:
                after = (await self.status())["workers"][worker - 1]
                if after["ready"] and after["process"] != before["process"]:
                    return
                await anyio.sleep(0.02)


def owner_of(gateway: Gateway) -> int:
    """Return the worker that owns the ledger now, as the log says."""
    said = [json.loads(line) for line in gateway.log if '"ledger-owner"' in line]
    return int(said[-1]["worker"])


async def test_each_of_many_calls_at_two_workers_has_one_effect(
    tmp_path: Path, orders: Orders, scaled: Callable[[int, int], int]
) -> None:
    keys = [f"{tmp_path.name}-{number}" for number in range(scaled(60, 1_000))]
    host = Host(tmp_path)
    with start_gateway(orders.server, "asyncio", *host.options) as gateway:
        async with open_link(gateway.port, plan=CutFirst()) as link, client() as http:
            caller = Caller(http, f"{link.url}/mcp")
            answers = await call_all(caller, keys)
            assert len(link.cuts) == len(keys)
        assert await host.metric("counterfoil_ledger_owner") == 1
        assert await host.metric("counterfoil_ledger_reachable") == 2
        # The program reads beside the owner, whichever process that is.
        assert doubts(host.ledger) == set()
    assert all(f"receipt ☂ {key}" in str(answers[key]["result"]) for key in keys)
    assert [key for key in keys if orders.count_effects(key) != 1] == []
    assert caller.acknowledged >= {"detach", "stored"}


@pytest.mark.parametrize("victim", ["owner", "guest"])
async def test_a_worker_is_killed_and_no_call_has_two_effects_and_every_doubtful_one_is_reported(
    tmp_path: Path, orders: Orders, scaled: Callable[[int, int], int], victim: str
) -> None:
    keys = [f"{tmp_path.name}-{number}" for number in range(scaled(120, 1_000))]
    kills = scaled(1, 2)
    host = Host(tmp_path)
    answers: dict[str, dict[str, Any]] = {}
    with start_gateway(orders.server, "asyncio", *host.options) as gateway:
        async with (
            client() as http,
            open_link(gateway.port, plan=CutFirst()) as link,
            anyio.create_task_group() as tasks,
        ):
            caller = Caller(http, f"{link.url}/mcp", pause_ms=200)

            async def collect() -> None:
                answers.update(await call_all(caller, keys))

            tasks.start_soon(collect)
            for _ in range(kills):
                done = sum(map(orders.count_effects, keys))
                await until(lambda done=done: sum(map(orders.count_effects, keys)) >= done + 15)
                owner = owner_of(gateway)
                await host.kill(owner if victim == "owner" else 3 - owner)
            await until(lambda: len(answers) == len(keys))
        in_doubt = {key for key, answer in answers.items() if "error" in answer}
        assert in_doubt <= doubts(host.ledger)
        seen = sorted(in_doubt)[:2]
        for key in seen:  # through the owner of the hour
            resolve(host.ledger, key)
        assert not doubts(host.ledger) & set(seen)
        takeovers = sum('"ledger-owner"' in line for line in gateway.log) - 1
        assert takeovers == (kills if victim == "owner" else 0)
    effects = {key: orders.count_effects(key) for key in keys}
    assert [key for key, count in effects.items() if count > 1] == []
    assert all(effects[key] == 1 for key in keys if key not in in_doubt)
    for key in in_doubt:
        assert answers[key]["error"]["data"]["io.counterfoil"]["executed"] == "unknown", answers[key]
    assert in_doubt, "the kills came when nothing was under way: they prove nothing"


def resolve(ledger: Path, key: str) -> None:
    """Settle a doubt as `counterfoil ledger resolve` does, beside the workers."""
    command = [sys.executable, "-m", "counterfoil", "ledger", "resolve", str(ledger), key, "completed"]
    subprocess.run([*command, "--note", "seen"], check=True, capture_output=True)


class Leaver(unkeyed.Agent):
    """An agent whose first patience is short: it leaves, and makes the call again a little later."""

    async def _try(self) -> dict[str, Any] | None:
        if self.tries:
            return await super()._try()
        with anyio.move_on_after(0.3):
            said = await super()._try()
            if said is not None:
                return said
        await anyio.sleep(random.Random(self.key).random() * 2)
        return None


@pytest.mark.parametrize("victim", ["owner", "guest"])
async def test_a_worker_is_killed_with_calls_open_and_undelivered_and_none_without_a_key_has_two_effects(
    tmp_path: Path, orders: Orders, scaled: Callable[[int, int], int], victim: str
) -> None:
    """What the dead worker held is taken in by the one that owns the ledger then, to be told or adopted."""
    keys = [f"{tmp_path.name}-{number}" for number in range(scaled(24, 400))]
    host = Host(tmp_path)
    options = [*host.options, "--set", "gateway.principal_sessions=8000"]
    options += ["--set", "gateway.adopt_return_s=0.2"]

    def count_effects() -> Counter[str]:
        return Counter(orders.effects.read_text().split("\n") if orders.effects.exists() else ())

    # A connection for each request, so that every try may reach either worker.
    limits = httpx2.Limits(max_connections=unkeyed.AT_ONCE, max_keepalive_connections=0)
    async with httpx2.AsyncClient(timeout=30, limits=limits) as http:
        world = unkeyed.World(http)
        world.started_anew.set()  # the other worker is there
        # An answer that is handed over to who leaves at that moment counts as delivered: it is far off.
        agents = [unkeyed.Agent(world, key, pause_ms=250) for key in keys[::2]]
        agents += [Leaver(world, key, pause_ms=1_000) for key in keys[1::2]]
        random.Random(3).shuffle(agents)
        with start_gateway(orders.server, "asyncio", *options) as gateway:
            async with anyio.create_task_group() as tasks:
                world.url = f"http://127.0.0.1:{gateway.port}/mcp"
                for agent in agents:
                    tasks.start_soon(agent.run)
                for part in (3, 2)[: scaled(1, 2)]:
                    await until(lambda part=part: len(count_effects() & Counter(keys)) >= len(keys) // part)
                    owner = owner_of(gateway)
                    await host.kill(owner if victim == "owner" else 3 - owner)
                await until(lambda: all(each.result or len(each.said) == unkeyed.TRIES for each in agents))
            doubts = unkeyed.listed(host.ledger, "indeterminate")
            adopted = unkeyed.listed(host.ledger, "adopted")
    effects = count_effects()
    assert [key for key in keys if effects[key] > 1] == []
    in_doubt = [agent for agent in agents if agent.result is None]
    assert all(effects[agent.key] == 1 for agent in agents if agent not in in_doubt)
    for agent in in_doubt:
        told = [said["error"]["data"]["io.counterfoil"]["executed"] for said in agent.said]
        assert told == ["unknown"] * unkeyed.TRIES
    assert len(doubts) == len(in_doubt)
    assert in_doubt, "the kills came when nothing was under way: they prove nothing"
    assert adopted
