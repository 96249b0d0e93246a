"""Every await of a caller cancelled once, by scope and by `Task.cancel()`: no leak, no silent ticket."""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import sniffio
import trio
from counterfoil.adapters.client.opening import connect
from counterfoil.adapters.client.tickets import CallTicket
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.handlers import Delivery, Handlers
from counterfoil.stores.ledger_memory import MemoryLedger
from counterfoil.stores.ledger_sqlite import SqliteLedger
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.scripted import ScriptedServer, Wire, open_scripted
from counterfoil.testing.scripted_mcp import ScriptedSession, note, result_of

pytestmark = pytest.mark.anyio
QUICK = ReconnectLimits(failures=3, first_delay_ms=1, longest_delay_ms=5)


class Steps:
    """Counts the waits of coroutines and calls `cancel` in the `at`-th one."""

    def __init__(self, at: int | None, cancel: Callable[[], object]) -> None:
        self.count = 0
        self._at = at
        self._cancel = cancel

    def note(self) -> None:
        if self.count == self._at:
            self._cancel()
        self.count += 1

    @types.coroutine
    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                trap = coroutine.send(sent) if error is None else coroutine.throw(error)
            except StopIteration as done:
                return done.value
            self.note()
            try:
                sent, error = (yield trap), None
            except BaseException as raised:
                error = raised

    @contextmanager
    def of_every_task(self) -> Iterator[None]:
        """Count the steps of every task that runs in the block, whoever started it."""
        if sniffio.current_async_library() == "trio":
            instrument = _TrioSteps(self)
            trio.lowlevel.add_instrument(instrument)
            try:
                yield
            finally:
                trio.lowlevel.remove_instrument(instrument)
            return
        loop = asyncio.get_running_loop()

        def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
            return asyncio.Task(_as_coroutine(self.run(coroutine)), loop=loop, **more)

        loop.set_task_factory(make)  # type: ignore[arg-type]
        try:
            yield
        finally:
            loop.set_task_factory(None)


class _TrioSteps(trio.abc.Instrument):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps.note()


async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
    await wire.stream()
    await wire.event(event_id=f"p-{message['id']}")
    await wire.event(note(1), event_id=f"n-{message['id']}")
    await wire.event(result_of(message["id"]), event_id=f"a-{message['id']}")
    await wire.end()


async def play_get(_exchange: Exchange, wire: Wire) -> None:
    await wire.stream()
    await wire.event(note(7), event_id="s-7")


async def use_everything(url: str, tickets: list[CallTicket], database: Path, *, with_handlers: bool) -> None:
    handled = anyio.Event()
    handlers = Handlers()

    @handlers.on("notifications/message", kind="idempotent")
    async def take(_delivery: Delivery, *, idempotency_key: str) -> None:
        await anyio.lowlevel.checkpoint()
        handled.set()

    # With its thread, and without one.
    async with SqliteLedger(database) if with_handlers else MemoryLedger() as ledger:
        options: dict[str, Any] = {"ledger": ledger, "reconnect": QUICK}
        if with_handlers:
            options["handlers"] = handlers
        async with connect(url, **options) as connection:
            tickets.append(await connection.submit("tools/call", {"n": 1}))
            await tickets[-1]
            tickets.append(await connection.submit("tools/call", {"n": 2}, idempotency_key=str(len(tickets))))
            await tickets[-1]
            await connection.ping()
            await connection.notify("notifications/roots/list_changed")
            if with_handlers:
                await handled.wait()
            else:
                async with connection.deliveries() as deliveries:
                    assert (await anext(deliveries)).method == "notifications/message"


def threads_of_ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("counterfoil")]


class World:
    """One server, and what must be as it was after each run against it."""

    def __init__(self, server: ScriptedServer, folder: Path, *, with_handlers: bool) -> None:
        self._server = server
        self._folder = folder
        self._with_handlers = with_handlers
        self._runs = 0

    async def run(self, at: int | None, style: str, *, everywhere: bool) -> tuple[int, list[CallTicket]]:
        """Use everything, cancelled in the `at`-th wait; give how many there were, and the tickets."""
        tickets: list[CallTicket] = []
        self._runs += 1
        database = self._folder / f"{self._runs}.db"
        use = use_everything(self._server.url, tickets, database, with_handlers=self._with_handlers)
        with anyio.fail_after(20):
            if style == "native":
                steps = await self._run_native(use, at, everywhere=everywhere)
            else:
                steps = await self._run_scoped(use, at, everywhere=everywhere)
            # Both are noticed by others, in their time.
            while self._server.open_connections or threads_of_ours():  # noqa: ASYNC110
                await anyio.sleep(0.002)
        return steps.count, tickets

    async def _run_native(self, use: Coroutine[Any, Any, Any], at: int | None, *, everywhere: bool) -> Steps:
        steps = Steps(at, lambda: task.cancel())
        with steps.of_every_task() if everywhere else nullcontext():
            own = use if everywhere else _as_coroutine(steps.run(use))
            task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(own)
            try:
                await task
            except asyncio.CancelledError:
                assert at is not None
        return steps

    async def _run_scoped(self, use: Coroutine[Any, Any, Any], at: int | None, *, everywhere: bool) -> Steps:
        with anyio.CancelScope() as scope:
            steps = Steps(at, scope.cancel)
            with steps.of_every_task() if everywhere else nullcontext():
                await (use if everywhere else _as_coroutine(steps.run(use)))
        return steps


async def _as_coroutine(awaitable: Any) -> Any:
    return await awaitable


@pytest.mark.parametrize("with_handlers", [False, True])
@pytest.mark.parametrize("style", ["scope", "native"])
@pytest.mark.parametrize("everywhere", [False, True])
async def test_every_await_cancelled_once_leaves_nothing_behind(
    style: str,
    with_handlers: bool,
    everywhere: bool,
    anyio_backend: str,
    tmp_path: Path,
    scaled: Callable[[int, int], int],
) -> None:
    """Every wait of the caller itself, and a sample of those of all tasks; all of these in full."""
    if style == "native" and anyio_backend == "trio":
        return  # trio has scopes alone
    async with open_scripted(ScriptedSession(play, play_get)) as server:
        world = World(server, tmp_path, with_handlers=with_handlers)
        whole, tickets = await world.run(None, style, everywhere=everywhere)
        assert [ticket.outcome for ticket in tickets] == ["completed", "completed"]
        tasks_before = len(anyio.get_running_tasks()) if anyio_backend == "asyncio" else None
        every = max(1, whole // scaled(15, whole)) if everywhere else 1
        for at in range(0, whole, every):
            _, tickets = await world.run(at, style, everywhere=everywhere)
            assert "pending" not in [ticket.outcome for ticket in tickets], f"await {at}"
        if tasks_before is not None:
            await anyio.sleep(0.01)
            assert len(anyio.get_running_tasks()) <= tasks_before
