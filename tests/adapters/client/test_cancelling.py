"""Every await of a caller cancelled once, by scope and by `Task.cancel()`: no leak, no silent ticket."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from counterfoil.adapters.client.opening import connect
from counterfoil.adapters.client.tickets import CallTicket
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.handlers import Delivery, Handlers
from counterfoil.stores.ledger_memory import MemoryLedger
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.scripted import ScriptedServer, Wire, open_scripted
from counterfoil.testing.scripted_mcp import ScriptedSession, note, result_of

pytestmark = pytest.mark.anyio
QUICK = ReconnectLimits(failures=3, first_delay_ms=1, longest_delay_ms=5)


class Steps:
    """Runs a coroutine and calls `cancel` while it waits for the `at`-th time."""

    def __init__(self, at: int | None, cancel: Callable[[], object]) -> None:
        self.count = 0
        self._at = at
        self._cancel = cancel

    @types.coroutine
    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        sent: Any = None
        error: BaseException | None = None
        while True:
            try:
                trap = coroutine.send(sent) if error is None else coroutine.throw(error)
            except StopIteration as done:
                return done.value
            if self.count == self._at:
                self._cancel()
            self.count += 1
            try:
                sent, error = (yield trap), None
            except BaseException as raised:
                error = raised


async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
    await wire.stream()
    await wire.event(event_id=f"p-{message['id']}")
    await wire.event(note(1), event_id=f"n-{message['id']}")
    await wire.event(result_of(message["id"]), event_id=f"a-{message['id']}")
    await wire.end()


async def play_get(_exchange: Exchange, wire: Wire) -> None:
    await wire.stream()
    await wire.event(note(7), event_id="s-7")


async def use_everything(url: str, tickets: list[CallTicket], *, with_handlers: bool) -> None:
    handled = anyio.Event()
    handlers = Handlers()

    @handlers.on("notifications/message", kind="idempotent")
    async def take(_delivery: Delivery, *, idempotency_key: str) -> None:
        await anyio.lowlevel.checkpoint()
        handled.set()

    async with MemoryLedger() as ledger:
        options: dict[str, Any] = {"ledger": ledger, "reconnect": QUICK}
        if with_handlers:
            options["handlers"] = handlers
        async with connect(url, **options) as connection:
            tickets.append(await connection.submit("tools/call", {"n": 1}))
            await tickets[-1]
            tickets.append(await connection.submit("tools/call", {"n": 2}, idempotency_key="k"))
            await tickets[-1]
            await connection.ping()
            await connection.notify("notifications/roots/list_changed")
            if with_handlers:
                await handled.wait()
            else:
                async with connection.deliveries() as deliveries:
                    assert (await anext(deliveries)).method == "notifications/message"


async def run_once(
    server: ScriptedServer, at: int | None, style: str, *, with_handlers: bool
) -> tuple[int, list[CallTicket]]:
    tickets: list[CallTicket] = []
    use = use_everything(server.url, tickets, with_handlers=with_handlers)
    if style == "native":
        steps = Steps(at, lambda: task.cancel())
        task: asyncio.Task[Any] = asyncio.ensure_future(_as_coroutine(steps.run(use)))
        try:
            await task
        except asyncio.CancelledError:
            assert at is not None
        return steps.count, tickets
    with anyio.CancelScope() as scope:
        steps = Steps(at, scope.cancel)
        await steps.run(use)
    return steps.count, tickets


async def _as_coroutine(awaitable: Any) -> Any:
    return await awaitable


@pytest.mark.parametrize("with_handlers", [False, True])
@pytest.mark.parametrize("style", ["scope", "native"])
async def test_every_await_cancelled_once_leaves_nothing_behind(
    style: str, with_handlers: bool, anyio_backend: str, scaled: Any
) -> None:
    if style == "native" and anyio_backend == "trio":
        return  # trio has scopes alone
    async with open_scripted(ScriptedSession(play, play_get)) as server:
        with anyio.fail_after(20):
            whole, tickets = await run_once(server, None, style, with_handlers=with_handlers)
        assert [ticket.outcome for ticket in tickets] == ["completed", "completed"]
        tasks_before = len(anyio.get_running_tasks()) if anyio_backend == "asyncio" else None
        every = max(1, whole // scaled(25, whole))
        for at in range(0, whole, every):
            with anyio.fail_after(10):
                _, tickets = await run_once(server, at, style, with_handlers=with_handlers)
                while server.open_connections:  # noqa: ASYNC110 - the server notices by itself
                    await anyio.sleep(0.002)
            assert "pending" not in [ticket.outcome for ticket in tickets], f"await {at}"
        if tasks_before is not None:
            await anyio.sleep(0.01)
            assert len(anyio.get_running_tasks()) <= tasks_before
