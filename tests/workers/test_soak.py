"""Two workers, 1 000 sessions, random cuts and worker kills: every call ends once, and nothing is kept."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
SESSIONS = 1_000
KILL_EVERY_S = 4.0
#: The part of the time in which workers are killed; in the rest those that live are measured.
WITH_KILLS = 0.6
#: What a worker may have more at the end of that than at its beginning.
GROWTH_BYTES = 12 << 20
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


class Soak:
    """The clients of a soak, their sessions, and how their calls ended."""

    def __init__(self, gateway: Gateway, http: httpx2.AsyncClient, admin: httpx2.AsyncClient) -> None:
        self._http = http
        self._url = f"http://127.0.0.1:{gateway.port}"
        self._admin = admin
        self._sessions: list[list[Raw]] = [[] for _ in range(CLIENTS)]
        self._calls = itertools.count(1)
        self.ends: Counter[str] = Counter()

    async def open(self) -> None:
        """Open the sessions; each client has as many."""
        async with anyio.create_task_group() as tasks:
            for own in self._sessions:
                tasks.start_soon(self._open_some, own)

    async def _open_some(self, own: list[Raw]) -> None:
        for _ in range(SESSIONS // CLIENTS):
            client = Raw(self._http, self._url)
            await client.initialize()
            own.append(client)

    async def use(self, seconds: float, *, kills: bool) -> None:
        """Have every client call in its sessions, one after the other."""
        until_s = anyio.current_time() + seconds
        async with anyio.create_task_group() as tasks:
            if kills:
                tasks.start_soon(self._kill, until_s)
            for number, own in enumerate(self._sessions):
                tasks.start_soon(self._use_some, own, random.Random(number), until_s)

    async def _use_some(self, own: list[Raw], rng: random.Random, until_s: float) -> None:
        while anyio.current_time() < until_s:
            key = f"call-{next(self._calls)}"
            message = await follow(rng.choice(own), key, rng)
            if message is None:
                self.ends["lost before its id"] += 1
            elif "result" in message:
                assert message["result"] == message["id"] == key
                self.ends["result"] += 1
            else:
                assert in_band(message)["executed"] == "unknown"
                assert message["id"] == key
                self.ends["unknown"] += 1

    async def _kill(self, until_s: float) -> None:
        rng = random.Random(7)
        while anyio.current_time() + KILL_EVERY_S < until_s:
            await anyio.sleep(KILL_EVERY_S)
            workers = (await self.status())["workers"]
            if all(worker["ready"] for worker in workers):
                os.kill(rng.choice(workers)["process"], signal.SIGKILL)

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = (await self._admin.get("/status")).json()
        return status

    async def settle(self) -> dict[str, Any]:
        """Wait until no stream is left but the latest; they are swept by whoever comes next."""
        client = Raw(self._http, self._url)
        await client.initialize()
        with anyio.fail_after(60):
            while True:
                for _ in range(4):
                    async with client.call(f"last-{next(self._calls)}") as stream:
                        await stream.rest()
                await anyio.sleep(1.1)
                status = await self.status()
                store = status["store"]
                is_quiet = not store["live_streams"] and not store["readers"] and store["ended_streams"] <= 16
                if is_quiet and all(worker["ready"] for worker in status["workers"]):
                    return status

    async def end(self) -> None:
        """End every session, wherever that arrives."""
        async with anyio.create_task_group() as tasks:
            for own in self._sessions:
                tasks.start_soon(self._end_some, own)

    async def _end_some(self, own: list[Raw]) -> None:
        for client in own:
            ended = await self._http.delete(client.url, headers=client.fields)
            assert ended.status_code == 200


@asynccontextmanager
async def soaking(counted: Counted, backend: str, folder: Path) -> AsyncIterator[Soak]:
    options = ["--workers", "2", "--admin", f"unix:{folder}/admin", "--set", "limits.grace_s=1"]
    options += ["--set", "gateway.adopt_s=0"]
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with serving(Upstream(counted)) as port:
        starting = start_gateway(Server(None, port), backend, *options)  # type: ignore[arg-type]
        gateway = await anyio.to_thread.run_sync(starting.__enter__)
        transport = httpx2.AsyncHTTPTransport(uds=f"{folder}/admin")
        try:
            async with (
                httpx2.AsyncClient(transport=transport, base_url="http://admin", timeout=20) as admin,
                httpx2.AsyncClient(timeout=30, limits=limits) as http,
            ):
                yield Soak(gateway, http, admin)
        finally:
            gateway.log[:] = [line for line in gateway.log if line.startswith("{")]  # kills are told
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(starting.__exit__, None, None, None)


def resident_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_calls_end_once_while_workers_die_and_nothing_is_kept(
    anyio_backend: str, folder: Path, scaled: Callable[[int, int], int]
) -> None:
    seconds = scaled(20, 300)
    counted = Counted()
    async with soaking(counted, anyio_backend, folder) as soak:
        await soak.open()
        await soak.use(seconds * WITH_KILLS, kills=True)
        before = await soak.settle()
        assert sum(worker["restarts"] for worker in before["workers"]) >= 1
        processes = [worker["process"] for worker in before["workers"]]
        resident = {process: resident_bytes(process) for process in processes}
        await soak.use(seconds * (1 - WITH_KILLS), kills=False)
        after = await soak.settle()
        assert [worker["process"] for worker in after["workers"]] == processes
        grown = {process: resident_bytes(process) - was for process, was in resident.items()}
        assert max(grown.values()) < GROWTH_BYTES, grown
        assert after["store"]["window_bytes"] < 64 << 10
        await soak.end()
        assert (await soak.settle())["store"]["sessions"] <= 16
    assert max(counted.applied.values()) == 1
    assert soak.ends["result"] > 10 * soak.ends["unknown"]
    assert soak.ends["result"] > SESSIONS // 4
    print(f"{dict(soak.ends)}, grown by {[bytes_ >> 10 for bytes_ in grown.values()]} KiB")
