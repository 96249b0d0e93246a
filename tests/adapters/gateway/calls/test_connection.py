"""What one connection of an adoptable call tells, and what it leaves behind."""

from __future__ import annotations

import gc
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from adoption_kit import agents, answer_of
from clock_kit import asked
from counterfoil.adapters.gateway.adoption.entries import AdoptableCall
from counterfoil.adapters.gateway.calls.connection import Connection
from gateway_kit import REVISION, Behind, Exchange, Upstream

pytestmark = pytest.mark.anyio

START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}
ANSWER: dict[str, Any] = {"type": "http.response.body", "body": b"the answer", "more_body": False}


class Told:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.news: list[str] = []

    def note_id(self) -> None:
        self.news.append("id")

    def note_attached(self, connection: Connection) -> None:
        self.news.append("attached")

    def note_handed_over(self, connection: Connection) -> None:
        self.news.append("handed over")

    def note_gone(self, connection: Connection) -> None:
        self.news.append("gone")


async def never() -> Any:
    await anyio.sleep_forever()


async def gone() -> Any:
    return {"type": "http.disconnect"}


class Answered:
    """A reader that has read the answer."""

    is_attached = True
    has_read_answer = True


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_answer_that_is_there_at_once_leaves_with_its_head_in_one_turn(anyio_backend: str) -> None:
    turn = 0
    sent: list[tuple[int, Any]] = []

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await anyio.lowlevel.checkpoint()

    async def send(message: Any) -> None:
        sent.append((turn, message["type"].rpartition(".")[2], message.get("more_body")))

    told = Told()
    connection = Connection(told, never, send)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count_turns)
        await anyio.lowlevel.checkpoint()
        await connection.send(START)
        await connection.send(ANSWER)
        tasks.cancel_scope.cancel()
    assert [what for _, *what in sent] == [["start", None], ["body", True], ["body", False]]
    assert len({turn for turn, *_ in sent}) == 1
    assert told.news == ["handed over"]


async def test_an_answer_is_not_handed_over_where_a_disconnect_was_on_its_way() -> None:
    async def send(message: Any) -> None:
        return None

    told = Told()
    connection = Connection(told, gone, send)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.receive)
        await connection.send(START)
        await anyio.lowlevel.checkpoint()
        await connection.send(ANSWER)
    assert told.news == ["gone"]


async def test_after_a_wait_a_disconnect_is_told_before_the_answer() -> None:
    async def send(message: Any) -> None:
        return None

    told = Told()
    connection = Connection(told, gone, send)
    await connection.send(START)
    await connection.send({"type": "http.response.body", "body": b"the lead", "more_body": True})
    connection.watch(cast(Any, Answered()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.receive)
        await connection.send(ANSWER)
    assert told.news == ["attached", "gone"]


async def test_a_delivered_call_is_nothing_for_the_garbage_collector() -> None:
    with anyio.fail_after(20):
        async with agents() as world:
            agent = await world.session()
            gc.collect()
            gc.disable()
            try:
                for number in range(3):
                    async with agent.call(request_id=number + 1, arguments={"number": number}) as stream:
                        await world.tool.started(number + 1)
                        await world.tool.finish(number)
                        assert (await answer_of(stream))["result"] == f"run {number + 1}"
                left = [found for found in gc.get_objects() if isinstance(found, AdoptableCall)]
                assert len(left) <= 1  # the last one may still be at its last step
            finally:
                gc.enable()


async def test_a_client_that_leaves_after_the_gateway_has_ended_starts_nothing() -> None:
    async def stays_open(x: Exchange) -> None:
        await x.start()
        await x.wait_gone()

    behind = Behind(Upstream(stays_open), prime_after_ms=0)
    params = {"protocolVersion": REVISION, "capabilities": {}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "order"}}
    began, ends, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def run() -> None:
        async with behind.gateway.running():
            began.set()
            await ends.wait()
        ended.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await began.wait()
            async with asked(behind.gateway, "POST", hello) as opened:
                await opened.is_complete.wait()
            fields = {"mcp_session_id": opened.headers["mcp-session-id"], "mcp_protocol_version": REVISION}
            async with asked(behind.gateway, "POST", call, **fields) as answered:
                await answered.is_open.wait()
                ends.set()
                await ended.wait()
