"""Calls under their caller's key, at the wire and over a real database: one effect, one answer for all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from adoption_kit import Agents, Tool, agents, answer_of, until
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger
from gateway_kit import in_band

pytestmark = pytest.mark.anyio
PATIENT = 60


def key(name: str = "order-17", **members: Any) -> dict[str, Any]:
    return {"io.counterfoil/call": {"v": 1, "key": name, **members}}


@asynccontextmanager
async def keyed(folder: Path, **options: Any) -> AsyncIterator[Agents]:
    with anyio.fail_after(PATIENT):
        async with SqliteLedger(folder / "calls.db") as ledger, agents(ledger=ledger, **options) as world:
            yield world


async def test_a_key_is_offered_and_the_same_key_again_gets_the_stored_answer(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        agent = await world.session()
        answer = await agent.raw.post("initialize", {"protocolVersion": "2025-11-25"}, request_id=0)
        assert "call=offered" in answer.headers["stream-continuity"]
        async with agent.call(meta=key()) as stream:
            assert "call=detach" in stream.claim
            await world.tool.started(1)
            await world.tool.finish()
            assert (await answer_of(stream))["result"] == "run 1"
        other = await world.session()
        async with other.call(meta=key(), request_id="again") as stream:
            assert "call=stored" in stream.claim
            assert await answer_of(stream) == {"jsonrpc": "2.0", "id": "again", "result": "run 1"}
        assert len(world.tool.runs) == 1


async def test_the_same_key_in_flight_waits_for_the_one_that_runs(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        first, second = await world.session(), await world.session()
        async with first.call(meta=key()) as stream:
            await world.tool.started(1)
            async with second.call(meta=key(), request_id=2) as waiting:
                assert "call=attached" in waiting.claim
                await world.tool.finish()
                assert (await answer_of(waiting)) == {"jsonrpc": "2.0", "id": 2, "result": "run 1"}
            assert (await answer_of(stream))["id"] == 1
        assert len(world.tool.runs) == 1


async def test_a_caller_that_was_cut_off_finds_the_answer_under_its_key(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        first, second = await world.session(), await world.session()
        async with first.call(meta=key()) as stream:
            await stream.next()
            await world.tool.started(1)
        async with second.call(meta=key(), request_id="later") as stream:
            await world.tool.finish()
            assert (await answer_of(stream))["result"] == "run 1"
        assert len(world.tool.runs) == 1


async def test_l8_other_arguments_under_a_used_key_are_a_conflict_and_never_run(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        agent = await world.session()
        async with agent.call(meta=key()) as stream:
            await world.tool.started(1)
            await world.tool.finish()
            await answer_of(stream)
        async with agent.call({"item": 2}, meta=key(), request_id=2) as stream:
            assert "call=conflict" in stream.claim
            told = in_band(await answer_of(stream))
        assert (told["why"], told["executed"]) == ("fingerprint", "no")
        assert len(world.tool.runs) == 1


async def test_another_principal_or_key_is_another_call(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        alice, bob = await world.session("alice"), await world.session("bob")
        for run, (agent, name) in enumerate([(alice, "k1"), (bob, "k1"), (alice, "k2")]):
            async with agent.call(meta=key(name), request_id=run) as stream:
                await world.tool.started(run + 1)
                await world.tool.finish(run)
                assert (await answer_of(stream))["result"] == f"run {run + 1}"


async def test_an_upstream_lost_in_between_is_indeterminate_for_good_and_never_sent_again(
    tmp_path: Path,
) -> None:
    async with keyed(tmp_path) as world:
        agent = await world.session()
        async with agent.call(meta=key()) as stream:
            await world.tool.started(1)
            await world.tool.runs[0].end()
            assert in_band(await answer_of(stream))["executed"] == "unknown"
        for number in (2, 3):
            async with agent.call(meta=key(), request_id=number) as stream:
                answer = await answer_of(stream)
                assert (answer["id"], in_band(answer)["executed"]) == (number, "unknown")
        assert len(world.tool.runs) == 1


async def test_l2_a_refusal_before_any_answer_frees_the_key(tmp_path: Path) -> None:
    async with keyed(tmp_path, prime_after_ms=5_000) as world:
        agent = await world.session()
        world.tool.opens = False
        async with anyio.create_task_group() as tasks:

            async def refuse() -> None:
                await world.tool.started(1)
                await world.tool.runs[0].json({"error": "busy"}, 429)

            tasks.start_soon(refuse)
            async with agent.call(meta=key()) as stream:
                assert stream.status == 429
        world.tool.opens = True
        async with agent.call(meta=key(), request_id=2) as stream:
            await world.tool.started(2)
            await world.tool.finish(1)
            assert (await answer_of(stream))["result"] == "run 2"


async def test_an_error_of_the_server_is_final_for_its_key(tmp_path: Path) -> None:
    """B205: a failure is stored, and told at once ever after."""
    async with keyed(tmp_path) as world:
        first, second = await world.session(), await world.session()
        error = {"code": -32_000, "message": "no such item"}
        async with first.call(meta=key()) as stream:
            await world.tool.started(1)
            await world.tool.runs[0].event({"jsonrpc": "2.0", "id": 1, "error": error})
            assert (await answer_of(stream))["error"] == error
        async with second.call(meta=key(), request_id="again") as stream:
            assert "call=stored" in stream.claim
            assert await answer_of(stream) == {"jsonrpc": "2.0", "id": "again", "error": error}
        assert len(world.tool.runs) == 1


@pytest.mark.parametrize("name", ['"id"', '"\\u0069d"'], ids=["plain", "escaped"])
async def test_an_answer_is_known_by_its_id_however_that_is_spelled(tmp_path: Path, name: str) -> None:
    async with keyed(tmp_path) as world:
        agent = await world.session()
        async with agent.call(meta=key()) as stream:
            await world.tool.started(1)
            run = world.tool.runs[0]
            await run.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"id": 1}})
            await run.event(f'{{"jsonrpc": "2.0", {name}: 1, "result": "run 1"}}')
            assert (await answer_of(stream))["result"] == "run 1"
        async with agent.call(meta=key(), request_id=2) as stream:
            assert "call=stored" in stream.claim
            assert (await answer_of(stream))["result"] == "run 1"
        assert len(world.tool.runs) == 1


async def test_a_whole_json_answer_is_recorded_before_it_is_passed(tmp_path: Path) -> None:
    async with keyed(tmp_path, prime_after_ms=5_000) as world:
        agent = await world.session()
        world.tool.opens = False
        async with anyio.create_task_group() as tasks:

            async def answer() -> None:
                await world.tool.started(1)
                await world.tool.runs[0].json({"jsonrpc": "2.0", "id": 1, "result": "whole"})

            tasks.start_soon(answer)
            async with agent.call(meta=key()) as stream:
                assert (await answer_of(stream))["result"] == "whole"
        async with agent.call(meta=key(), request_id=2) as stream:
            assert (await answer_of(stream)) == {"jsonrpc": "2.0", "id": 2, "result": "whole"}
        assert len(world.tool.runs) == 1


async def test_answers_survive_a_restart_and_what_it_interrupted_is_reported(tmp_path: Path) -> None:
    tool = Tool()
    async with keyed(tmp_path, tool=tool) as world:
        agent = await world.session()
        async with agent.call(meta=key("done")) as stream:
            await tool.started(1)
            await tool.finish()
            await answer_of(stream)
        async with agent.call(meta=key("doubtful"), request_id=2):
            await tool.started(2)
    async with keyed(tmp_path, tool=tool) as world:
        agent = await world.session()
        async with agent.call(meta=key("done")) as stream:
            assert (await answer_of(stream))["result"] == "run 1"
        async with agent.call(meta=key("doubtful"), request_id=3) as stream:
            assert in_band(await answer_of(stream))["executed"] == "unknown"
    async with SqliteLedger(tmp_path / "calls.db") as ledger:
        (entry,) = [entry async for entry in ledger.indeterminate()]
    assert entry.what == "call"
    assert len(tool.runs) == 2


async def test_without_its_ledger_a_keyed_call_is_refused_whatever_is_configured(tmp_path: Path) -> None:
    async with SqliteLedger(tmp_path / "calls.db") as ledger:
        pass
    with anyio.fail_after(PATIENT):
        async with agents(ledger=ledger, on_ledger_failure="relay-unresumable") as world:
            agent = await world.session()
            async with agent.call(meta=key()) as stream:
                assert (stream.status, stream.answer.headers["retry-after"]) == (503, "5")
            assert not world.tool.runs


async def test_a_key_that_cannot_be_read_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        agent = await world.session()
        async with agent.call(meta=key(v=2)) as stream:
            assert stream.status == 400
            await stream.rest()
            assert b"io.counterfoil/call" in stream.raw
        await until(lambda: not world.tool.runs)
