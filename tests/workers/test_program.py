"""`counterfoil gateway --workers N`: one command, one socket, one log; calls survive their neighbours."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
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


async def test_an_owner_is_killed_with_calls_open_and_every_call_ends(
    anyio_backend: str, folder: Path, scaled: Callable[[int, int], int]
) -> None:
    """Those of the dead worker end typed and at once; those of the other go on; nothing runs twice."""
    count = scaled(60, 200)
    effects = Effects()
    async with serving(Upstream(effects)) as port:
        server = Server(None, port)  # type: ignore[arg-type]
        options = ["--workers", "2", "--admin", f"unix:{folder}/admin"]
        options += ["--set", "limits.session_streams=1000"]
        starting = start_gateway(server, anyio_backend, *options)
        gateway = await anyio.to_thread.run_sync(starting.__enter__)
        try:
            await _kill_with_open_calls(gateway, effects, folder, count)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(starting.__exit__, None, None, None)


async def _kill_with_open_calls(gateway: Gateway, effects: Effects, folder: Path, count: int) -> None:
    url = f"http://127.0.0.1:{gateway.port}"
    ended: dict[int, Any] = {}
    owners: dict[int, int] = {}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(timeout=30, limits=limits) as http:
        client = Raw(http, url)
        await client.initialize()

        async def call(number: int) -> None:
            async with client.call(number) as stream:
                cursor = (await stream.next()).id
                assert cursor is not None
                owner = Owner.of(EventId.parse(cursor).stream.owner)
                assert owner is not None
                owners[number] = owner.place.worker
                while await stream._read():
                    pass
                messages = [json.loads(event.data) for event in stream.events if event.data]
            if not any("result" in message for message in messages):
                async with client.get(cursor) as stream:
                    messages = await stream.rest()
            ended[number] = messages[-1]

        admin = httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=f"{folder}/admin"))
        async with admin, anyio.create_task_group() as tasks:
            for number in range(1, count + 1):
                tasks.start_soon(call, number)
            await until(lambda: len(owners) == effects.waiting == count)
            killed = Counter(owners.values()).most_common(1)[0][0]
            status = (await admin.get("http://admin/status")).json()
            assert status["store"]["live_streams"] == count
            os.kill(status["workers"][killed - 1]["process"], signal.SIGKILL)
            lost = [number for number, owner in owners.items() if owner == killed]
            await until(lambda: len(ended) == len(lost))
            metrics = (await admin.get("http://admin/metrics")).text
            effects.go.set()
        assert 'outcome="unreachable"' not in metrics  # nobody was held for
        assert set(ended) == set(range(1, count + 1))
        for number, message in ended.items():
            assert message["id"] == number
            if owners[number] == killed:
                assert in_band(message)["executed"] == "unknown"
                assert in_band(message)["why"] == "unknown-stream"
            else:
                assert message["result"] == number
        assert effects.applied == dict.fromkeys(range(1, count + 1), 1)
        await until(lambda: len(events(gateway, "worker-ready")) == 3)
        assert events(gateway, "worker-died")[0]["worker"] == killed
        assert all(line["start_ms"] < 30_000 for line in events(gateway, "worker-ready"))


async def test_every_line_of_the_one_log_names_its_worker(anyio_backend: str, folder: Path) -> None:
    async def on_call(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.result()
        await exchange.end()

    async with serving(Upstream(on_call)) as port:
        starting = start_gateway(Server(None, port), anyio_backend, "--workers", "2")  # type: ignore[arg-type]
        gateway = await anyio.to_thread.run_sync(starting.__enter__)
        try:
            limits = httpx2.Limits(max_keepalive_connections=0)
            async with httpx2.AsyncClient(timeout=20, limits=limits) as http:
                client = Raw(http, f"http://127.0.0.1:{gateway.port}")
                await client.initialize()
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
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(starting.__exit__, None, None, None)
