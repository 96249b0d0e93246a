"""Resuming under load, over the wire: a stream that emits meanwhile, and many streams at once."""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from interop.gateways import Gateway, start_gateway
from interop.processes import Orders, start_orders
from interop.wire import Answer, WireSession, open_session

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Reading:
    """What one call's stream gave over all its connections."""

    def __init__(self) -> None:
        self.cursor = ""
        self.steps: list[int] = []
        self.receipt: str | None = None

    async def read(self, answer: Answer, at_most: int | None = None) -> None:
        """Take up to `at_most` events with data from one connection."""
        taken = 0
        while (event := await answer.next_event()) is not None:
            if event.id:
                self.cursor = event.id
            if not event.data:
                continue
            message = json.loads(event.data)
            if "result" in message:
                self.receipt = message["result"]["content"][0]["text"]
                return
            self.steps.append(message["params"]["progress"])
            taken += 1
            if at_most is not None and taken >= at_most:
                return


async def test_a_stream_resumed_while_it_emits_loses_and_doubles_nothing(
    name: str, orders: Orders, gateway: Gateway, scaled: Callable[[int, int], int]
) -> None:
    resumes = scaled(100, 1_000)
    rng = random.Random(9)
    session = await open_session(gateway.port)
    reading = Reading()
    async with session.call(1, "order", {"key": name, "steps": resumes * 4, "pause_ms": 1}) as answer:
        await reading.read(answer, 1)
        answer.reset()
    for _ in range(resumes):
        async with session.resume(reading.cursor) as answer:
            assert answer.status == 200
            await reading.read(answer, rng.randint(1, 5))
            if rng.random() < 0.5:
                answer.reset()
    async with session.resume(reading.cursor) as answer:
        await reading.read(answer)
    assert reading.steps == list(range(1, resumes * 4 + 1))
    assert reading.receipt == f"receipt ☂ {name}"
    assert orders.count_effects(name) == 1


@pytest.fixture
def open_files() -> int:
    """Raise the limit of open files for this process and the servers it starts; return what was got."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised = hard if hard != resource.RLIM_INFINITY else 1 << 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, raised), hard))
    return max(soft, raised)


async def test_resumes_issued_all_at_once_are_all_answered(
    open_files: int, anyio_backend: str, scaled: Callable[[int, int], int], tmp_path: Path
) -> None:
    """Two calls a session, all cut before any is resumed; a machine with a low limit of files gets fewer."""
    count = min(scaled(60, 1_000), open_files // 8)
    with start_orders(tmp_path / "effects") as orders, start_gateway(orders.server, anyio_backend) as gateway:
        readings: dict[str, tuple[WireSession, Reading]] = {}
        slots = anyio.Semaphore(50)

        async def begin(number: int) -> None:
            async with slots:
                session = await open_session(gateway.port)
                for request_id in (1, 2):
                    key, reading = f"storm-{number}-{request_id}", Reading()
                    arguments = {"key": key, "steps": 5, "pause_ms": 20}
                    async with session.call(request_id, "order", arguments) as answer:
                        await reading.read(answer, 1)
                    readings[key] = session, reading

        async def resume(session: WireSession, reading: Reading) -> None:
            async with session.resume(reading.cursor) as answer:
                assert answer.status == 200
                await reading.read(answer)

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(begin, number)
        async with anyio.create_task_group() as tasks:
            for session, reading in readings.values():
                tasks.start_soon(resume, session, reading)
        for key, (_, reading) in readings.items():
            assert reading.steps == [1, 2, 3, 4, 5]
            assert reading.receipt == f"receipt ☂ {key}"
            assert orders.count_effects(key) == 1
        assert len(readings) == 2 * count
