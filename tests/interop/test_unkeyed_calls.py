"""Calls without a key over a ledger, through a real gateway that is killed with -9: at most one effect each.

Agents know nothing of us: a call that failed is made again, in a new session, at the gateway that was started
anew.  Some had an answer that nobody got by then, some were under way.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from counterfoil.native import SseParser
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from interop.gateways import start_gateway
from interop.plans import call_key, cut_before_id
from interop.processes import Orders

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

OF_USERS = ["--principal", "header:x-user", "--trusted-proxy", "127.0.0.1"]
OF_USERS += ["--set", "gateway.principal_sessions=8000"]
#: Few, so that at the kill some answers have come already, and to nobody.
AT_ONCE = 16
#: What an agent does after an error: the same once more, so often in all.
TRIES = 3


class Agent:
    """Makes one call until it has an answer, or was told three times that nobody knows what became of it."""

    def __init__(self, world: World, key: str) -> None:
        self.world = world
        self.key = key
        self.tries = 0
        #: How the first lines of its responses began.
        self.claims: list[str] = []
        self.said: list[dict[str, Any]] = []

    @property
    def result(self) -> Any:
        return self.said[-1].get("result")

    async def run(self) -> None:
        """Make the call; what fails is made again at the gateway that was started anew."""
        while len(self.said) < TRIES and not (self.said and "result" in self.said[-1]):
            try:
                async with self.world.slots:
                    said = await self._try()
            except httpx2.HTTPError:
                said = None
            if said is not None:
                self.said.append(said)
            else:
                await self.world.started_anew.wait()

    async def _try(self) -> dict[str, Any] | None:
        http, url = self.world.http, self.world.url
        fields = {"accept": "application/json, text/event-stream", "x-user": "alice"}
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "a", "version": "1"},
        }
        opened = await http.post(url, json=_request(0, "initialize", hello), headers=fields)
        fields["mcp-session-id"] = opened.headers["mcp-session-id"]
        fields["mcp-protocol-version"] = "2025-11-25"
        await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=fields)
        self.tries += 1
        arguments = {"key": self.key, "steps": 2, "pause_ms": 60}
        call = _request(self.tries, "tools/call", {"name": "order", "arguments": arguments})
        parser = SseParser()
        async with http.stream("POST", url, json=call, headers=fields) as answer:
            self.claims.append(answer.headers.get("stream-continuity", ""))
            async for piece in answer.aiter_raw():
                for event in parser.feed(piece):
                    said = json.loads(event.data) if event.data else {}
                    if said.get("id") == self.tries:
                        return dict(said)
        return None


class World:
    """What all agents share: the way to the gateway that lives."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.url = ""
        self.slots = anyio.Semaphore(AT_ONCE)
        self.started_anew = anyio.Event()


class CutSome:
    """A plan for the link: a third of the calls break before their caller has an ID."""

    def __call__(self, exchange: Exchange) -> Cut | None:
        key = call_key(exchange)
        rng = random.Random(f"7 {key}")
        return cut_before_id(rng) if key is not None and rng.random() < 1 / 3 else None


def _request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def listed(ledger: Path, what: str) -> list[dict[str, Any]]:
    """Return what `counterfoil ledger` lists, beside the living owner."""
    command = [sys.executable, "-m", "counterfoil", "ledger", what, str(ledger), "--json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await anyio.sleep(0.02)
    raise AssertionError("it did not come true")


async def test_killed_with_calls_open_and_undelivered_none_has_two_effects_and_each_ends(
    tmp_path: Path, orders: Orders, scaled: Callable[[int, int], int]
) -> None:
    keys = [f"{tmp_path.name}-{number}" for number in range(scaled(80, 1_000))]
    ledger = tmp_path / "calls.db"
    options = [*OF_USERS, "--ledger", str(ledger)]

    def count_effects() -> Counter[str]:
        return Counter(orders.effects.read_text().split("\n") if orders.effects.exists() else ())

    async with httpx2.AsyncClient(timeout=30, limits=httpx2.Limits(max_connections=AT_ONCE)) as http:
        world = World(http)
        agents = [Agent(world, key) for key in keys]
        with start_gateway(orders.server, "asyncio", *options) as gateway:
            async with (
                open_link(gateway.port, plan=CutSome()) as link,
                anyio.create_task_group() as tasks,
            ):
                world.url = f"{link.url}/mcp"
                for agent in agents:
                    tasks.start_soon(agent.run)
                await until(lambda: len(count_effects() & Counter(keys)) >= len(keys) // 2)
                gateway.process.kill()
                gateway.process.wait()
                undelivered = len(listed(ledger, "undelivered"))
                with start_gateway(orders.server, "asyncio", *options) as second:
                    world.url = f"http://127.0.0.1:{second.port}/mcp"
                    world.started_anew.set()
                    await until(lambda: all(a.said and (a.result or len(a.said) == TRIES) for a in agents))
                    await until(lambda: not listed(ledger, "undelivered"))
                    doubts = listed(ledger, "indeterminate")
                    adopted = listed(ledger, "adopted")
    effects = count_effects()
    assert [key for key in keys if effects[key] > 1] == []
    in_doubt = [agent for agent in agents if agent.result is None]
    for agent in agents:
        if agent not in in_doubt:
            assert effects[agent.key] == 1, agent.said
            assert f"receipt ☂ {agent.key}" in str(agent.result)
    for agent in in_doubt:
        told = [said["error"]["data"]["io.counterfoil"] for said in agent.said]
        assert [each["executed"] for each in told] == ["unknown"] * TRIES, told
    # Every doubtful one is reported, and nothing else is.
    assert len(doubts) == len(in_doubt)
    assert {(doubt["what"], doubt["label"]) for doubt in doubts} <= {("unkeyed", "order")}
    # The kill came when some were under way, and some had an answer that nobody had got.
    assert undelivered
    assert in_doubt
    assert adopted
    assert any("why=adopted" in claim for agent in agents for claim in agent.claims)
