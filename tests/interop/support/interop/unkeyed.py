"""Agents that know nothing of us: a call that failed is made again, in a new session, until answered."""

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
from counterfoil.testing.link import Link
from interop.plans import call_key, cut_before_id
from interop.processes import Orders

OF_USERS = ["--principal", "header:x-user", "--trusted-proxy", "127.0.0.1"]
OF_USERS += ["--set", "gateway.principal_sessions=8000"]
#: Few, so that at the kill some answers have come already, and to nobody.
AT_ONCE = 16
#: What an agent does after an error: the same once more, so often in all.
TRIES = 3


class Agent:
    """Makes one call until it has an answer, or was told three times that nobody knows what became of it."""

    def __init__(self, world: World, key: str, *, tool: str = "order", pause_ms: int = 60) -> None:
        self.tool = tool
        self.pause_ms = pause_ms
        self.world = world
        self.key = key
        self.tries = 0
        #: How the first lines of its responses began.
        self.claims: list[str] = []
        self.said: list[dict[str, Any]] = []

    @property
    def result(self) -> Any:
        return self.said[-1].get("result") if self.said else None

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
        arguments = {"key": self.key, "steps": 2, "pause_ms": self.pause_ms}
        call = _request(self.tries, "tools/call", {"name": self.tool, "arguments": arguments})
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
    """What all agents share: the way to the gateway that lives, and how often they have been cut off."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.url = ""
        self.slots = anyio.Semaphore(AT_ONCE)
        self.started_anew = anyio.Event()


class CutSome:
    """A plan for the link: a third of the calls break before their caller has an ID."""

    def __init__(self, keys: list[str]) -> None:
        rng = random.Random(7)
        self.cuts = {key: cut_before_id(rng) for key in keys if rng.random() < 1 / 3}

    def __call__(self, exchange: Exchange) -> Cut | None:
        key = call_key(exchange)
        return self.cuts.get(key) if key is not None else None


async def tell_when_cut(link: Link, orders: Orders) -> None:
    """Let each call of `order_when_told` end once it was cut: before that nobody is handed its answer."""
    told = 0
    while True:
        for cut in link.cuts[told:]:
            told += 1
            orders.tell(str(call_key(cut.exchange)))
        await anyio.sleep(0.01)


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
