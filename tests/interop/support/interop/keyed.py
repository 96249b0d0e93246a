"""Calls with keys in the revision without sessions, cut and made again until they have an answer."""

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
from counterfoil.native import SseParser
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from interop.plans import call_key, cut_before_id

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

    def __init__(self, http: httpx2.AsyncClient, url: str, *, pause_ms: int = 20) -> None:
        self.http = http
        self.pause_ms = pause_ms
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
        arguments = {"key": key, "steps": 1, "pause_ms": self.pause_ms}
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
