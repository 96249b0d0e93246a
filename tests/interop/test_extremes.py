"""Too large, too many, too slow and without end, all at once: typed ends, bounded memory, calm others."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from interop.gateways import start_gateway
from interop.processes import resident_bytes, start_crowd
from interop.wire import WireSession, open_session

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

BUDGET = 32 << 20
WRITE_DEADLINE_S = 1
#: What uvicorn says of the only way to have it close a connection.
UNCOMPLETED = "ASGI callable returned without completing response."
#: A line and an event that are being read, each copied once as it grows, and a whole answer.
BEING_READ = 3 * 2 * (16 << 20)


async def read_messages(session: WireSession, request_id: str, tool: str, **arguments: Any) -> list[Any]:
    """Make a call and return its messages; a connection that ends without the answer is resumed."""
    messages: list[Any] = []
    cursor = ""
    async with session.call(request_id, tool, {"key": request_id, **arguments}) as answer:
        if answer.headers["content-type"] == "application/json":
            return [json.loads(await answer.body())]
        while (event := await answer.next_event()) is not None:
            cursor = event.id or cursor
            messages += [json.loads(event.data)] if event.data else []
    while not messages or "method" in messages[-1]:
        async with session.resume(cursor) as answer:
            assert answer.status == 200
            while (event := await answer.next_event()) is not None:
                cursor = event.id or cursor
                messages += [json.loads(event.data)] if event.data else []
    return messages


async def read_never(session: WireSession, is_over: anyio.Event) -> None:
    async with session.call("never", "quick", {"key": "never", "notes": 400, "size": 50_000}):
        await is_over.wait()


async def read_a_byte_a_second(session: WireSession, is_over: anyio.Event) -> None:
    async with session.call("slow", "quick", {"key": "slow", "notes": 400, "size": 50_000}) as answer:
        while not is_over.is_set():
            await answer.receive_raw(1)
            with anyio.move_on_after(1):
                await is_over.wait()


class Calm:
    """A client that makes small calls all the time."""

    def __init__(self) -> None:
        self.elapsed_s: list[float] = []

    async def run(self, session: WireSession, is_over: anyio.Event) -> None:
        while not is_over.is_set():
            began, key = time.monotonic(), f"calm-{len(self.elapsed_s)}"
            messages = await read_messages(session, key, "quick", notes=3, size=10)
            assert [message.get("params", {}).get("progress") for message in messages] == [1, 2, 3, None]
            assert messages[-1]["result"]["content"][0]["text"] == f"receipt {key}"
            self.elapsed_s.append(time.monotonic() - began)
            await anyio.sleep(0.02)


def why_of(message: Any) -> str:
    return str(message["error"]["data"]["io.counterfoil"]["why"])


async def count_slow_ends(admin: Path) -> int:
    transport = httpx2.AsyncHTTPTransport(uds=str(admin))
    async with httpx2.AsyncClient(transport=transport) as client:
        text = (await client.get("http://admin/metrics")).text
    found = re.search(r'reader_ends_total\{reason="slow"\} (\d+)', text)
    return int(found[1]) if found else 0


async def test_extremes_all_at_once_end_typed_in_bounded_memory_and_others_notice_nothing(
    anyio_backend: str, tmp_path: Path, scaled: Callable[[int, int], int]
) -> None:
    size, count = scaled(24 << 20, 64 << 20), scaled(20_000, 100_000)
    admin = tmp_path / "admin"
    options = ["--admin", f"unix:{admin}", "--set", f"limits.total_bytes={BUDGET}"]
    options += ["--set", f"gateway.write_deadline_s={WRITE_DEADLINE_S}"]
    ended: dict[str, list[Any]] = {}
    calm, is_over = Calm(), anyio.Event()
    with (
        start_crowd() as upstream,
        start_gateway(upstream, anyio_backend, *options, tolerates=UNCOMPLETED) as gateway,
    ):
        sessions = {name: await open_session(gateway.port) for name in ("calm", "never", "slow")}
        await read_messages(sessions["calm"], "warm", "quick", notes=100, size=1_000)
        baseline = resident_bytes(gateway)

        async def overdo(tool: str, **arguments: Any) -> None:
            session = await open_session(gateway.port)
            ended[tool] = await read_messages(session, tool, tool, **arguments)

        async with anyio.create_task_group() as rest:
            rest.start_soon(calm.run, sessions["calm"], is_over)
            rest.start_soon(read_never, sessions["never"], is_over)
            rest.start_soon(read_a_byte_a_second, sessions["slow"], is_over)
            async with anyio.create_task_group() as tasks:
                for tool in ("huge", "json", "endless"):
                    tasks.start_soon(lambda tool=tool: overdo(tool, size=size))
                tasks.start_soon(lambda: overdo("quick", notes=count))
            if anyio_backend == "asyncio":  # hypercorn on trio shields its sends: there TCP ends them
                with anyio.fail_after(30):
                    while await count_slow_ends(admin) < 2:  # noqa: ASYNC110 (the gateway is another process)
                        await anyio.sleep(0.1)
            else:
                await anyio.sleep(2 * WRITE_DEADLINE_S)
            is_over.set()
        peak = resident_bytes(gateway, peak=True)
    print(
        f"{(peak - baseline) >> 20} MiB above {baseline >> 20}, {len(calm.elapsed_s)} calm calls, "
        f"the slowest took {max(calm.elapsed_s):.2f} s"
    )
    assert [why_of(ended[tool][-1]) for tool in ("huge", "endless")] == ["too-large", "too-large"]
    assert "error" in ended["json"][-1]
    assert "result" in ended["quick"][-1] or why_of(ended["quick"][-1]) == "trimmed"
    progress = [message["params"]["progress"] for message in ended["quick"][:-1]]
    assert progress == list(range(1, len(progress) + 1)) or "result" not in ended["quick"][-1]
    assert len(calm.elapsed_s) > 3
    assert max(calm.elapsed_s) < 5
    assert peak <= baseline + 1.2 * BUDGET + BEING_READ
