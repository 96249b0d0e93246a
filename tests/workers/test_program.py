"""`counterfoil gateway --workers N`: one command, one socket, one log; calls survive their neighbours."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from counterfoil.adapters.peers.owners import Owner
from counterfoil.adapters.serving import serving
from counterfoil.native import EventId
from gateway_kit import Exchange, Raw, Upstream, in_band
from interop.gateways import Gateway, start_gateway
from interop.processes import Server
from workers_kit import until

pytestmark = [pytest.mark.anyio]


class Effects:
    """Calls that apply an effect each, and answer when they are let go."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.applied: Counter[Any] = Counter()
        self.waiting = 0

    async def __call__(self, exchange: Exchange) -> None:
        self.applied[exchange.message["id"]] += 1
        await exchange.start()
        await exchange.note(1)
        self.waiting += 1
        await self.go.wait()
        await exchange.result(exchange.message["id"])
        await exchange.end()


def events(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in gateway.log if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


@asynccontextmanager
async def two_workers(on_call: Any, backend: str, *options: str) -> AsyncIterator[Gateway]:
    """Run the program before a scripted upstream."""
    async with serving(Upstream(on_call)) as port:
        server = Server(None, port)  # type: ignore[arg-type]
        starting = start_gateway(server, backend, "--workers", "2", *options)
        gateway = await anyio.to_thread.run_sync(starting.__enter__)
        try:
            yield gateway
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(starting.__exit__, None, None, None)


@asynccontextmanager
async def raw_client(gateway: Gateway) -> AsyncIterator[Raw]:
    """A client in a session, with a connection for each request: any worker may get it."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(timeout=30, limits=limits) as http:
        client = Raw(http, f"http://127.0.0.1:{gateway.port}")
        await client.initialize()
        yield client


def owner_of(cursor: str | None) -> int:
    """Return the worker that a stream belongs to."""
    assert cursor is not None
    owner = Owner.of(EventId.parse(cursor).stream.owner)
    assert owner is not None
    return owner.place.worker


async def test_an_owner_is_killed_with_calls_open_and_every_call_ends(
    anyio_backend: str, folder: Path, scaled: Callable[[int, int], int]
) -> None:
    """Those of the dead worker end typed and at once; those of the other go on; nothing runs twice."""
    count = scaled(60, 200)
    effects = Effects()
    options = ["--admin", f"unix:{folder}/admin", "--set", "limits.session_streams=1000"]
    async with two_workers(effects, anyio_backend, *options) as gateway:
        await _kill_with_open_calls(gateway, effects, folder, count)


async def _kill_with_open_calls(gateway: Gateway, effects: Effects, folder: Path, count: int) -> None:
    ended: dict[int, Any] = {}
    cursors: dict[int, str] = {}
    resumed: set[int] = set()
    admin = httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=f"{folder}/admin"))
    async with raw_client(gateway) as client, admin:

        async def call(number: int) -> None:
            async with client.call(number) as stream:
                cursors[number] = (await stream.next()).id or ""
                while await stream._read():
                    pass
                messages = [json.loads(event.data) for event in stream.events if event.data]
            if not any("result" in message for message in messages):
                resumed.add(number)
                async with client.get(cursors[number]) as stream:
                    messages = await stream.rest()
            ended[number] = messages[-1]

        async with anyio.create_task_group() as tasks:
            for number in range(1, count + 1):
                tasks.start_soon(call, number)
            await until(lambda: len(cursors) == effects.waiting == count)
            owners = {number: owner_of(cursor) for number, cursor in cursors.items()}
            killed = Counter(owners.values()).most_common(1)[0][0]
            status = (await admin.get("http://admin/status")).json()
            assert status["store"]["live_streams"] == count
            os.kill(status["workers"][killed - 1]["process"], signal.SIGKILL)
            lost = {number for number, owner in owners.items() if owner == killed}
            await until(lambda: len(ended) == len(lost))
            metrics = (await admin.get("http://admin/metrics")).text
            effects.go.set()
        assert 'outcome="unreachable"' not in metrics  # nobody was held for
        assert resumed == lost  # no other connection was touched
        assert set(ended) == set(range(1, count + 1))
        for number, message in ended.items():
            assert message["id"] == number
            if number in lost:
                assert in_band(message)["executed"] == "unknown"
                assert in_band(message)["why"] == "unknown-stream"
            else:
                assert message["result"] == number
        assert effects.applied == dict.fromkeys(range(1, count + 1), 1)
        await until(lambda: len(events(gateway, "worker-ready")) == 3)
        assert events(gateway, "worker-died")[0]["worker"] == killed
        assert all(0 < line["start_ms"] < 30_000 for line in events(gateway, "worker-ready"))
        await _ask_after_a_former_life(client, {number: cursors[number] for number in sorted(lost)[:20]})
        metrics = (await admin.get("http://admin/metrics")).text
        assert 'outcome="unreachable"' not in metrics
        assert 'outcome="answered"' not in metrics  # nobody was asked about a life that is over


async def _ask_after_a_former_life(client: Raw, cursors: dict[int, str]) -> None:
    """Whichever worker is reached, the new life of the place too, the stream is unknown, and that is said."""
    for number, cursor in cursors.items():
        async with client.get(cursor) as stream:
            assert "why=unknown-stream" in stream.claim
            assert "verdict=unverifiable" in stream.claim
            (error,) = await stream.rest()
        assert error["id"] == number
        assert in_band(error)["executed"] == "unknown"


async def test_a_call_that_is_read_through_another_worker_outlives_the_replacement_of_its_own(
    anyio_backend: str, folder: Path
) -> None:
    """Its worker drains: it has no client of its own any more, and is waited for all the same."""
    effects = Effects()
    async with (
        two_workers(effects, anyio_backend, "--set", "serve.drain_s=10") as gateway,
        raw_client(gateway) as client,
    ):
        cursor = None
        for number in range(100):
            async with client.call(number) as stream:
                cursor = (await stream.next()).id
            if owner_of(cursor) == 1:  # which is replaced first
                break
        via = False
        while not via:
            async with client.get(cursor) as stream:
                if via := 'via="worker 2"' in stream.claim:
                    assert (await stream.message())["params"]["progress"] == 1
                    gateway.process.send_signal(signal.SIGHUP)
                    await until(lambda: any(line["worker"] == 1 for line in events(gateway, "draining")))
                    await anyio.sleep(0.3)  # a worker that waits for nobody is gone by then
                    effects.go.set()
                    assert (await stream.rest())[-1]["result"] == number
        await until(lambda: len(events(gateway, "reloaded")) == 1)
        assert len(events(gateway, "worker-ready")) == 4
        assert not events(gateway, "worker-died")
        assert set(effects.applied.values()) == {1}


async def test_every_line_of_the_one_log_names_its_worker(anyio_backend: str, folder: Path) -> None:
    async def on_call(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.result()
        await exchange.end()

    async with two_workers(on_call, anyio_backend) as gateway:
        async with raw_client(gateway) as client:
            for number in range(20):
                async with client.call(number) as stream:
                    cursor = (await stream.next()).id
                async with client.get(cursor) as stream:
                    assert (await stream.rest())[-1]["result"] == "done"
        resumes = events(gateway, "resume")
        assert len(resumes) == 20
        assert {line["worker"] for line in resumes} <= {1, 2}
        (listening,) = events(gateway, "listening")
        assert listening["workers"] == 2
