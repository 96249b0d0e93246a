"""Calls without a key and a ledger: what a restart of the gateway, or a failing disk, leaves of adoption.

Decision L17: intent before the call is sent, outcome before its answer is read, the mark of delivery last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from adoption_kit import Agents, Tool, agents, answer_of, until
from counterfoil.adapters.gateway.adoption import front
from counterfoil.adapters.serving import serving
from counterfoil.errors import LedgerFailed
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger
from counterfoil.stores.ledger_sqlite.reading import LedgerReader
from gateway_kit import Upstream, in_band

pytestmark = pytest.mark.anyio
PATIENT = 60


@asynccontextmanager
async def recorded(folder: Path, **options: Any) -> AsyncIterator[Agents]:
    with anyio.fail_after(PATIENT):
        async with SqliteLedger(folder / "calls.db") as ledger, agents(ledger=ledger, **options) as world:
            world.ledger = ledger
            yield world


class Lives:
    """Lives of one gateway, one after the other, before one upstream and over one ledger."""

    def __init__(self, folder: Path, tool: Tool, port: int) -> None:
        self.tool = tool
        self._folder = folder
        self._port = port

    @asynccontextmanager
    async def next(self, **options: Any) -> AsyncIterator[Agents]:
        async with recorded(self._folder, tool=self.tool, upstream_port=self._port, **options) as world:
            yield world


@asynccontextmanager
async def lives(folder: Path) -> AsyncIterator[Lives]:
    tool = Tool()
    async with serving(Upstream(tool)) as port:
        yield Lives(folder, tool, port)


def rows(folder: Path) -> list[Any]:
    with LedgerReader(folder / "calls.db") as reader:
        return list(reader.entries())


async def test_l17_an_answer_that_nobody_got_is_adopted_after_a_restart(tmp_path: Path) -> None:
    async with lives(tmp_path) as gateway:
        tool = gateway.tool
        async with gateway.next() as world:
            agent = await world.session()
            async with agent.call() as stream:
                await stream.next()
                await tool.started(1)
            await tool.finish()
            await until(lambda: world.behind.store.statistics().ended_streams)
        (row,) = rows(tmp_path)
        assert (row.what, row.outcome, row.delivered, row.label) == ("unkeyed", "completed", False, "order")
        async with gateway.next() as world:
            agent = await world.session()
            async with agent.call(request_id="again") as stream:
                assert "why=adopted" in stream.claim
                assert await answer_of(stream) == {"jsonrpc": "2.0", "id": "again", "result": "run 1"}
            async with agent.call(request_id=3) as stream:  # that one was handed over: this one is meant
                await tool.started(2)
                await tool.finish(1)
                assert (await answer_of(stream))["result"] == "run 2"
        (row,) = rows(tmp_path)
        assert (row.delivered, row.adopted) == (True, 1)


async def test_a_call_that_the_end_interrupted_is_told_to_every_equal_one_and_reported(
    tmp_path: Path,
) -> None:
    async with lives(tmp_path) as gateway:
        tool = gateway.tool
        async with gateway.next() as world:
            agent = await world.session()
            async with agent.call() as stream:
                await stream.next()
                await tool.started(1)
        async with gateway.next(adopt_s=1.0) as world:
            for number in (2, 3):
                agent = await world.session()
                async with agent.call(request_id=number) as stream:
                    told = await answer_of(stream)
                assert (told["id"], in_band(told)["executed"]) == (number, "unknown")
            assert len(tool.runs) == 1
            await anyio.sleep(1.1)
            async with agent.call(request_id=4) as stream:  # the window has ended
                await tool.started(2)
                await tool.finish(1)
                assert (await answer_of(stream))["result"] == "run 2"
        (doubt,) = rows(tmp_path)
        assert (doubt.what, doubt.outcome) == ("unkeyed", "indeterminate")


async def test_no_call_is_begun_while_what_a_dead_process_left_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ledger names this process already, which does not have it yet."""
    is_held, may_end, restore = anyio.Event(), anyio.Event(), front.restore

    async def restore_late(*arguments: Any, **options: Any) -> None:
        is_held.set()
        await may_end.wait()
        await restore(*arguments, **options)

    async def skip(*arguments: Any, **options: Any) -> None:
        """At the start nothing is taken in: the process dies later."""

    async with lives(tmp_path) as gateway:
        async with gateway.next() as world:
            agent = await world.session()
            async with agent.call() as stream:
                await stream.next()
                await gateway.tool.started(1)
        monkeypatch.setattr(front, "restore", skip)
        async with gateway.next() as world:
            agent = await world.session()  # it has started
            monkeypatch.setattr(front, "restore", restore_late)
            world.behind.gateway.take_in_orphans()
            await is_held.wait()
            async with anyio.create_task_group() as tasks:
                told: list[Any] = []

                async def ask() -> None:
                    async with agent.call(request_id=2) as stream:
                        told.append(await answer_of(stream))

                tasks.start_soon(ask)
                await until(lambda: world.behind.store.statistics().live_streams)
                await anyio.wait_all_tasks_blocked()
                may_end.set()
            assert in_band(told[0])["executed"] == "unknown"
        assert len(gateway.tool.runs) == 1


async def test_a_doubt_that_its_caller_was_told_is_told_again_after_a_restart(tmp_path: Path) -> None:
    """L10: told to every identical call until the window ends, which a restart does not shorten."""
    async with lives(tmp_path) as gateway:
        tool = gateway.tool
        async with gateway.next() as world:
            agent = await world.session()
            async with agent.call() as stream:
                await tool.started(1)
                await tool.runs[0].end()  # the upstream breaks off
                assert in_band(await answer_of(stream))["executed"] == "unknown"
        (row,) = rows(tmp_path)
        assert (row.outcome, row.delivered) == ("indeterminate", True)
        for number in (2, 3):
            async with gateway.next() as world:
                agent = await world.session()
                async with agent.call(request_id=number) as stream:
                    told = await answer_of(stream)
                assert (told["id"], in_band(told)["executed"]) == (number, "unknown")
        assert len(tool.runs) == 1


async def test_what_a_former_life_left_is_settled_though_adoption_is_off_now(tmp_path: Path) -> None:
    async with lives(tmp_path) as gateway:
        async with gateway.next() as world:
            agent = await world.session()
            async with agent.call() as stream:
                await stream.next()
                await gateway.tool.started(1)
        (row,) = rows(tmp_path)
        assert row.state == "intended"
        async with gateway.next(adopt_s=0) as world:
            agent = await world.session()
            async with agent.call(request_id=2) as stream:
                await gateway.tool.started(2)
                await gateway.tool.finish(1)
                assert (await answer_of(stream))["result"] == "run 2"
        (row,) = rows(tmp_path)
        assert (row.state, row.outcome) == ("settled", "indeterminate")


async def test_what_was_handed_over_refused_or_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    async with recorded(tmp_path) as world:
        agent = await world.session()
        async with agent.call() as stream:
            await world.tool.started(1)
            await world.tool.finish()
            await answer_of(stream)
        world.tool.opens = False
        async with anyio.create_task_group() as tasks:

            async def refuse() -> None:
                await world.tool.started(2)
                await world.tool.runs[1].json({}, 429)

            tasks.start_soon(refuse)
            async with agent.call({"item": 2}, request_id=2):
                pass
        world.tool.opens = True
        async with agent.call({"item": 3}, request_id=3) as stream:
            await world.tool.started(3)
            await stream.next()
            await agent.say("notifications/cancelled", {"requestId": 3})
            await world.tool.runs[2].end()
            await stream.rest()
        await until(lambda: not rows(tmp_path))


async def test_equal_calls_keep_their_count_across_a_restart(tmp_path: Path) -> None:
    async with lives(tmp_path) as gateway:
        tool = gateway.tool
        async with gateway.next() as world:
            first, second = await world.session(), await world.session()
            async with first.call() as one, second.call() as two:
                await tool.started(2)
                await one.next()
                await two.next()
            await tool.finish(0)
            await tool.finish(1)
            await until(lambda: world.behind.store.statistics().ended_streams == 2)
        async with gateway.next() as world:
            answers = set()
            for number in range(2):
                agent = await world.session()
                async with agent.call(request_id=number) as stream:
                    answers.add((await answer_of(stream))["result"])
        assert answers == {"run 1", "run 2"}
        assert len(tool.runs) == 2


async def test_without_its_ledger_no_call_is_sent_unless_it_is_told_to(tmp_path: Path) -> None:
    async with SqliteLedger(tmp_path / "calls.db") as ledger:
        pass
    with anyio.fail_after(PATIENT):
        async with agents(ledger=ledger) as world:
            agent = await world.session()
            async with agent.call() as stream:
                assert (stream.status, stream.answer.headers["retry-after"]) == (503, "5")
            assert not world.tool.runs
        async with agents(ledger=ledger, on_ledger_failure="relay-unresumable") as world:
            agent = await world.session()
            async with agent.call() as stream:
                await world.tool.started(1)
                assert "why=unresumable" in stream.claim
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"


async def test_l32_a_write_that_fails_after_the_upstream_answered_delivers_the_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk cannot be made to fail between two writes, so the ledger's method is replaced for one."""
    for meta in (None, {"io.counterfoil/call": {"v": 1, "key": "order-17"}}):
        folder = tmp_path / str(bool(meta))
        folder.mkdir()
        caplog.clear()
        async with recorded(folder) as world:
            agent = await world.session()

            def fail(*_: Any) -> Any:
                raise LedgerFailed("the disk is full")

            world.ledger.settle = fail
            async with agent.call(meta=meta) as stream:
                await world.tool.started(1)
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"
            assert "ledger-failure" in caplog.text
            world.ledger.close_call = fail
        if meta is not None:
            (row,) = rows(folder)
            assert row.state == "intended"
