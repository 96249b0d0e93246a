"""Resuming under load, over the wire: a stream that emits meanwhile, and many streams at once."""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Callable

import anyio
import pytest
from interop.gateways import Gateway, start_gateway
from interop.processes import Orders, resident_bytes, start_crowd
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
            assert "error" not in message, message
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


class Caller:
    """One session of a crowd, and what its two open calls gave."""

    def __init__(self, session: WireSession, number: int) -> None:
        self.readings = {key: Reading() for key in (f"crowd-{number}-1", f"crowd-{number}-2")}
        self.refusals: list[str] = []
        self._session = session

    async def leave_idle_streams(self, count: int) -> None:
        """Make calls whose answers are read and stay in the store."""
        for number in range(count):
            arguments = {"key": "idle", "notes": 3, "size": 1_000}
            async with self._session.call(f"idle-{number}", "quick", arguments) as answer:
                await answer.body()

    async def hold(self, key: str, is_open: anyio.Event, cut: anyio.Event) -> None:
        """Open a call, keep its connection until `cut`, and break it."""
        arguments = {"key": key, "notes": 5, "size": 100}
        async with self._session.call(key, "hold", arguments) as answer:
            await self.readings[key].read(answer, 1)
            is_open.set()
            await cut.wait()
            answer.reset()

    async def resume(self, key: str) -> None:
        async with self._session.resume(self.readings[key].cursor) as answer:
            if answer.status == 200 and "verdict=resumed" in answer.headers["stream-continuity"]:
                await self.readings[key].read(answer)
            else:
                self.refusals.append((await answer.body()).decode())


async def test_a_storm_of_resumes_is_answered_whole_and_memory_keeps_its_bound(
    open_files: int, anyio_backend: str, scaled: Callable[[int, int], int]
) -> None:
    """1 000 sessions with ten idle streams and two open connections each, which break and resume at once.

    A machine with a low limit of open files gets fewer.
    """
    sessions = min(scaled(40, 1_000), open_files // 8)
    budget = sessions * 64 << 10  # which what is charged for these streams nearly fills
    limits = ("--set", f"limits.total_bytes={budget}", "--set", "limits.grace_s=600")
    with start_crowd() as upstream, start_gateway(upstream, anyio_backend, *limits) as gateway:
        await storm(await gather_crowd(gateway.port, 5), gateway.port)  # what is loaded at first use
        baseline = resident_bytes(gateway)
        callers = await gather_crowd(gateway.port, sessions)
        await storm(callers, gateway.port)
        peak = resident_bytes(gateway, peak=True)
    for caller in callers:
        for key, reading in caller.readings.items():
            assert reading.steps == [1, 2, 3, 4, 5] or caller.refusals
            assert reading.receipt == f"receipt {key}" or caller.refusals
        assert all("io.counterfoil" in refusal for refusal in caller.refusals)
    connections = 2 * 2 * sessions  # each with one upstream
    refused = sum(len(caller.refusals) for caller in callers)
    each = (peak - baseline - 1.2 * budget) / connections / 1024
    print(f"{connections} connections, {each:.1f} KiB each; {refused} of {2 * sessions} resumes refused")
    assert peak <= baseline + 1.2 * budget + (48 << 10) * connections


async def make_caller(port: int, number: int, *, idle: int) -> Caller:
    caller = Caller(await open_session(port), number)
    await caller.leave_idle_streams(idle)
    return caller


async def gather_crowd(port: int, sessions: int) -> list[Caller]:
    callers: list[Caller] = []
    slots = anyio.Semaphore(20)

    async def come(number: int) -> None:
        async with slots:
            callers.append(await make_caller(port, number, idle=10))

    async with anyio.create_task_group() as tasks:
        for number in range(sessions):
            tasks.start_soon(come, number)
    return callers


async def storm(callers: list[Caller], port: int) -> None:
    """Open two calls of every session, break all connections, let the answers come, and resume at once."""
    cut = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for caller in callers:
            for key in caller.readings:
                is_open = anyio.Event()
                tasks.start_soon(caller.hold, key, is_open, cut)
                await is_open.wait()
        cut.set()
    async with anyio.create_task_group() as tasks:
        for caller in callers:
            for key in caller.readings:
                tasks.start_soon(caller.resume, key)
        tasks.start_soon(release, port)


async def release(port: int) -> None:
    """Let the upstream answer every call that it holds, while the resumes come in."""
    async with (await open_session(port)).call(1, "release", {"key": "release"}) as answer:
        await answer.body()
