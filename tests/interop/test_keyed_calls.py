"""Keyed calls in the revision without sessions, through a real gateway, ledger and server: one effect each.

Every call asks for `detach`, is cut, and is made again under a new JSON-RPC id; in one test the gateway is
killed halfway.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
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

REVISION = "2026-07-28"
FIELDS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": REVISION,
    "mcp-method": "tools/call",
    "mcp-name": "order",
    "x-user": "alice",
}
OF_USERS = ["--principal", "header:x-user", "--trusted-proxy", "127.0.0.1"]
AT_ONCE = 64


class Caller:
    """Makes keyed calls as often as it takes; each try has a JSON-RPC id of its own."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http = http
        self.url = url
        self.tries = 0
        self.acknowledged: set[str] = set()

    async def call(self, key: str) -> dict[str, Any]:
        """Return the first answer that comes whole."""
        while True:
            try:
                answer = await self._try(key)
            except httpx2.HTTPError:
                answer = None
            if answer is not None:
                return answer
            await anyio.sleep(0.05)

    async def _try(self, key: str) -> dict[str, Any] | None:
        self.tries += 1
        meta = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.counterfoil/call": {"v": 1, "key": key, "on_disconnect": "detach"},
        }
        arguments = {"key": key, "steps": 1, "pause_ms": 20}
        params = {"name": "order", "arguments": arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": self.tries, "method": "tools/call", "params": params}
        parser = SseParser()
        async with self.http.stream("POST", self.url, json=message, headers=FIELDS) as answer:
            self.acknowledged.update(
                word for word in ("detach", "attached", "stored")
                if f"call={word}" in answer.headers.get("stream-continuity", "")
            )  # fmt: skip
            async for piece in answer.aiter_raw():
                for event in parser.feed(piece):
                    said = json.loads(event.data) if event.data else {}
                    if said.get("id") == message["id"]:
                        return dict(said)
        return None


class CutFirst:
    """A plan for the link: the first answer of each key breaks, before its head or right after it."""

    def __init__(self) -> None:
        self.made: set[str] = set()

    def __call__(self, exchange: Exchange) -> Cut | None:
        key = call_key(exchange)
        if key is None or key in self.made:
            return None
        self.made.add(key)
        rng = random.Random(f"9 {key}")
        cut = cut_before_id(rng)
        return cut if rng.random() < 0.5 else Cut("in-frame", cut.how, frames=0, position=rng.randint(1, 20))


async def call_all(caller: Caller, keys: list[str]) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = {}
    slots = anyio.Semaphore(AT_ONCE)

    async def call(key: str) -> None:
        async with slots:
            answers[key] = await caller.call(key)

    async with anyio.create_task_group() as tasks:
        for key in keys:
            tasks.start_soon(call, key)
    return answers


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await anyio.sleep(0.02)
    raise AssertionError("it did not come true")


def doubts(ledger: Path) -> set[str]:
    """Return the keys of the calls that the ledger reports as indeterminate."""
    command = [sys.executable, "-m", "counterfoil", "ledger", "indeterminate", str(ledger), "--json"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {json.loads(line)["idempotency_key"] for line in listed.splitlines()}


def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=30, limits=httpx2.Limits(max_connections=AT_ONCE))


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
