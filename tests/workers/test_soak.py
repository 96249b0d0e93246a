"""Two workers, many sessions, random cuts and worker kills: every call ends once, and nothing is kept."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from counterfoil.adapters.serving import serving
from gateway_kit import Exchange, Raw, Upstream, in_band
from interop.gateways import Gateway, start_gateway
from interop.processes import Server

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

CLIENTS = 20
KILL_EVERY_S = 4.0
_BREAKS = (httpx2.HTTPError, AssertionError)


class Counted:
    """Calls of three notes and an answer, a little apart; it counts what was applied."""

    def __init__(self) -> None:
        self.applied: Counter[str] = Counter()

    async def __call__(self, exchange: Exchange) -> None:
        key = exchange.message["params"]["arguments"]["of"]
        self.applied[key] += 1
        await exchange.start()
        for number in (1, 2, 3):
            await exchange.note(number)
            await anyio.sleep(0.01)
        await exchange.result(key)
        await exchange.end()


async def follow(client: Raw, key: str, rng: random.Random) -> Any:
    """Make one call, break its connections at random, and resume until it ends; None if it had no id yet."""
    cursor: str | None = None
    for attempt in range(200):
        opening = client.call(key) if cursor is None and attempt == 0 else client.get(cursor)
        try:
            async with opening as stream:
                if stream.status == 404:
                    return None
                leaves_after = rng.randint(1, 6)
                for _ in range(leaves_after):
                    event = await stream.next()
                    cursor = event.id or cursor
                    message = json.loads(event.data) if event.data else {}
                    if "result" in message or "error" in message:
                        return message
        except _BREAKS:
            pass
        if cursor is None:
            return None  # lost before its first id, as it is to every client
        await anyio.sleep(0.01)
    raise AssertionError(f"{key} never ended")


async def test_calls_end_once_while_workers_die_and_nothing_is_kept(
    anyio_backend: str, folder: Path, scaled: Callable[[int, int], int]
) -> None:
    seconds = scaled(10, 300)
    counted = Counted()
    options = ["--workers", "2", "--admin", f"unix:{folder}/admin", "--set", "limits.grace_s=1"]
    options += ["--set", "gateway.adopt_s=0", "--set", "limits.sessions=100000"]
    async with serving(Upstream(counted)) as port:
        starting = start_gateway(Server(None, port), anyio_backend, *options)  # type: ignore[arg-type]
        gateway = await anyio.to_thread.run_sync(starting.__enter__)
        try:
            await _soak(gateway, counted, folder, seconds)
        finally:
            gateway.log[:] = [line for line in gateway.log if line.startswith("{")]  # kills are told
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(starting.__exit__, None, None, None)


async def _soak(gateway: Gateway, counted: Counted, folder: Path, seconds: int) -> None:
    ends: Counter[str] = Counter()
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    admin = httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(uds=f"{folder}/admin"), base_url="http://admin", timeout=20
    )
    until_s = anyio.current_time() + seconds
    async with admin, httpx2.AsyncClient(timeout=30, limits=limits) as http:

        async def use(number: int) -> None:
            rng = random.Random(number)
            client, calls = Raw(http, f"http://127.0.0.1:{gateway.port}"), 0
            while anyio.current_time() < until_s:
                if calls % 5 == 0:
                    client.fields.pop("mcp-session-id", None)
                    try:
                        await client.initialize()
                    except (httpx2.HTTPError, KeyError):
                        await anyio.sleep(0.05)
                        continue
                calls += 1
                key = f"{number}-{calls}"
                message = await follow(client, key, rng)
                if message is None:
                    ends["lost before its id"] += 1
                elif "result" in message:
                    assert message["result"] == key
                    ends["result"] += 1
                else:
                    assert in_band(message)["executed"] == "unknown"
                    assert message["id"] == key
                    ends["unknown"] += 1

        async def kill() -> None:
            rng = random.Random(7)
            while anyio.current_time() + KILL_EVERY_S < until_s:
                await anyio.sleep(KILL_EVERY_S)
                workers = (await admin.get("/status")).json()["workers"]
                if all(worker["ready"] for worker in workers):
                    os.kill(rng.choice(workers)["process"], signal.SIGKILL)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            for number in range(CLIENTS):
                tasks.start_soon(use, number)
        assert max(counted.applied.values()) == 1
        assert ends["result"] > 10 * ends["unknown"]
        assert ends["result"] > CLIENTS
        status: dict[str, Any] = {}

        async def settle() -> None:
            """Streams are swept by whoever comes next, so somebody has to come."""
            nonlocal status
            client, number = Raw(http, f"http://127.0.0.1:{gateway.port}"), 0
            await client.initialize()
            while True:
                for _ in range(4):
                    number += 1
                    async with client.call(f"last-{number}") as stream:
                        await stream.rest()
                await anyio.sleep(1.1)
                status = (await admin.get("/status")).json()
                store = status["store"]
                if not store["live_streams"] and not store["readers"] and store["ended_streams"] <= 16:
                    return

        with anyio.fail_after(60):
            await settle()
        assert status["store"]["window_bytes"] < 64 << 10
        assert sum(worker["restarts"] for worker in status["workers"]) >= 1
