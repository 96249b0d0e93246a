"""Calls with a key where several processes answer: one effect, whichever of them a call reaches.

Workers of a host share its ledger; hosts have one each, and a key belongs to one of them.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import counterfoil.adapters.host_ledger.ledger as ledger_module
import pytest
from adoption_kit import Agent, Tool, answer_of
from anyio.abc import Process
from counterfoil.adapters.gateway.arrival.scopes import HeaderSource, Scopes
from counterfoil.adapters.peers.members import Replica
from counterfoil.adapters.peers.peers import PeerPace
from gateway_kit import Stream, Upstream, in_band
from workers_kit import Workers, replicas, until, workers

pytestmark = pytest.mark.anyio

OF_USERS = Scopes(principal=HeaderSource("x-user", ["127.0.0.1"]))


def key(name: str = "order-17", **members: Any) -> dict[str, Any]:
    return {"io.counterfoil/call": {"v": 1, "key": name, **members}}


class World:
    """Two processes, and an agent at each; `serve` is `workers` or `replicas`."""

    def __init__(self, host: Workers, tool: Tool) -> None:
        self.host = host
        self.tool = tool
        self.agents = [Agent(client) for client in host.clients]

    async def make(self, agent: Agent, name: str = "order-17", request_id: Any = 1) -> Any:
        """Make a call that runs to its end, and give its answer."""
        async with agent.call(meta=key(name), request_id=request_id) as stream:
            if "call=detach" in stream.claim:
                await self.tool.finish(len(self.tool.runs) - 1)
            return await answer_of(stream)


@asynccontextmanager
async def world(serve: Any, folder: Path, **options: Any) -> AsyncIterator[World]:
    tool = Tool()
    given = {"scope": OF_USERS, "prime_after_ms": 5_000, "has_ledger": True, "opens": False, **options}
    async with serve(Upstream(tool), folder, **given) as host:
        made = World(host, tool)
        for agent in made.agents:
            agent.raw.fields["x-user"] = "alice"
            await agent.raw.initialize()
        yield made


# --- workers of one host


@pytest.mark.parametrize("first", [0, 1], ids=["runs-at-the-owner", "runs-at-the-guest"])
async def test_a_call_attaches_to_the_one_in_flight_at_the_other_worker(folder: Path, first: int) -> None:
    """With its progress: it is passed to the worker that runs the call."""
    async with world(workers, folder) as made:
        here, there = made.agents[first], made.agents[1 - first]
        async with here.call(meta=key()) as stream:
            await made.tool.started(1)
            async with there.call(meta=key(), request_id=2) as waiting:
                assert "call=attached" in waiting.claim
                await made.tool.runs[0].note(1)
                assert (await waiting.message())["params"]["progress"] == 1
                await made.tool.finish()
                assert await answer_of(waiting) == {"jsonrpc": "2.0", "id": 2, "result": "run 1"}
            assert (await answer_of(stream))["id"] == 1
        assert len(made.tool.runs) == 1


async def test_who_was_attached_there_resumes_at_any_worker(folder: Path) -> None:
    async with world(workers, folder) as made:
        here, there = made.agents
        async with here.call(meta=key()) as first:
            await made.tool.started(1)
            async with there.call(meta=key(), request_id=2) as waiting:
                cursor = (await waiting.next()).id
            assert cursor
            async with there.raw.get(cursor) as resumed:
                await made.tool.finish()
                assert (await answer_of(resumed))["id"] == 2
            await answer_of(first)


async def test_every_worker_has_the_stored_answer_and_knows_a_conflict(folder: Path) -> None:
    async with world(workers, folder) as made:
        for number, agent in enumerate(made.agents):
            name = f"k{number}"
            assert (await made.make(agent, name))["result"] == f"run {number + 1}"
        for number, agent in enumerate(reversed(made.agents)):
            async with agent.call(meta=key(f"k{number}"), request_id="again") as stream:
                assert "call=stored" in stream.claim
                assert (await answer_of(stream))["result"] == f"run {number + 1}"
            async with agent.call({"item": 2}, meta=key(f"k{number}")) as stream:
                told = in_band(await answer_of(stream))
                assert (told["why"], told["executed"]) == ("fingerprint", "no")
        assert len(made.tool.runs) == 2


async def test_many_equal_calls_at_two_workers_at_once_have_one_effect_and_one_answer(folder: Path) -> None:
    async with world(workers, folder) as made:
        answers: list[Any] = []

        async def call(agent: Agent, number: int) -> None:
            async with agent.call(meta=key(), request_id=number) as stream:
                answers.append(await answer_of(stream))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(call, made.agents[number % 2], number)
            # Those that wait ask the ledger now and then: on a busy machine one of them always runs.
            await made.tool.started(1)
            await made.tool.finish()
        assert sorted(answer["id"] for answer in answers) == list(range(20))
        assert {answer["result"] for answer in answers} == {"run 1"}
        assert len(made.tool.runs) == 1


async def test_a_doubt_at_one_worker_is_told_at_the_other_and_never_sent_again(folder: Path) -> None:
    async with world(workers, folder) as made:
        here, there = made.agents
        async with here.call(meta=key()) as stream:
            await made.tool.started(1)
            await made.tool.runs[0].end()
            assert in_band(await answer_of(stream))["executed"] == "unknown"
        async with there.call(meta=key()) as stream:
            assert in_band(await answer_of(stream))["executed"] == "unknown"
        assert len(made.tool.runs) == 1


@pytest.mark.slow
async def test_while_nobody_answers_for_the_ledger_calls_are_refused_as_not_executed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_SILENCE_S", 0.3)
    async with owning_process(folder) as owner, world(workers, folder) as made:
        owner.send_signal(signal.SIGSTOP)  # it holds the file and its connections, and says nothing
        for agent in made.agents:
            async with agent.call(meta=key()) as stream:
                assert stream.status == 503
                assert b"it was not executed" in await _text(stream)
        assert not made.tool.runs
        owner.send_signal(signal.SIGCONT)
        await until(lambda: not any(worker.ledger.waits for worker in made.host.each if worker.ledger))
        for agent in made.agents:
            assert (await made.make(agent))["result"] == "run 1"


@asynccontextmanager
async def owning_process(folder: Path) -> AsyncIterator[Process]:
    """Run a process that owns the ledger of a folder, and does nothing else."""
    program = (
        "import sys, anyio\n"
        "from counterfoil.adapters.host_ledger.ledger import HostLedger\n"
        "from counterfoil.adapters.peers.directory import SocketDirectory\n"
        "async def main():\n"
        "    async with HostLedger(sys.argv[1], SocketDirectory(sys.argv[2])):\n"
        "        print('ready', flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    command = [sys.executable, "-c", program, str(folder / "calls.db"), str(folder)]
    async with await anyio.open_process(command, stdin=None, stderr=None) as process:
        try:
            assert process.stdout is not None
            await process.stdout.receive()
            yield process
        finally:
            process.kill()


async def _text(stream: Stream) -> bytes:
    return b"".join([piece async for piece in stream._pieces])


# --- several hosts


async def test_each_key_belongs_to_one_host_wherever_its_calls_arrive(folder: Path) -> None:
    async with world(replicas, folder) as made:
        for number in range(12):
            name = f"k{number}"
            answers = [await made.make(agent, name) for agent in made.agents]
            assert [answer["result"] for answer in answers] == [f"run {number + 1}"] * 2
        assert len(made.tool.runs) == 12
        passed = [worker.forwards("answered") for worker in made.host.each]
        assert sum(passed) >= 12  # each key is away from home at one of the two
        assert all(passed)


async def test_a_call_attaches_to_the_one_in_flight_at_its_keys_host(folder: Path) -> None:
    async with world(replicas, folder) as made:
        here, there = made.agents
        async with here.call(meta=key()) as stream:
            await made.tool.started(1)
            async with there.call(meta=key(), request_id=2) as waiting:
                assert "call=attached" in waiting.claim
                await made.tool.finish()
                assert (await answer_of(waiting))["result"] == "run 1"
            await answer_of(stream)
        assert len(made.tool.runs) == 1


async def test_while_the_host_of_a_key_is_out_of_reach_its_calls_are_refused_and_not_made(
    folder: Path,
) -> None:
    pace = PeerPace(hold_s=0.2)
    async with world(replicas, folder, pace=pace) as made:
        names = [f"k{number}" for number in range(8)]
        for name in names:
            await made.make(made.agents[0], name)
        before = len(made.tool.runs)
        closed = Replica("a", "localhost", unused_port())
        made.host.each[1].peers.members.set_replicas({"a": closed})
        stored = refused = 0
        for name in names:
            async with made.agents[1].call(meta=key(name)) as stream:
                if stream.status == 503:
                    refused += 1
                    assert stream.answer.headers["retry-after"]
                    assert b"the call was not executed" in await _text(stream)
                else:
                    stored += "call=stored" in stream.claim
        assert (stored + refused, len(made.tool.runs)) == (8, before)
        assert refused
        assert stored


def unused_port() -> int:
    """Return a port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
