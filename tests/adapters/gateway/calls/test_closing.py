"""A closed response where that cancels its call (revision 2026-07-28): at once, or after `resume_grace_s`.

A raw client, the gateway, a scripted upstream; keys over a real database.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from adoption_kit import Agent, Agents, agents, answer_of, until, without_session
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger
from gateway_kit import in_band, note

pytestmark = pytest.mark.anyio
PATIENT = 20


def key(name: str = "order-17", **members: Any) -> dict[str, Any]:
    return {"io.counterfoil/call": {"v": 1, "key": name, **members}}


DETACH = key(on_disconnect="detach")


@asynccontextmanager
async def keyed(folder: Path, **options: Any) -> AsyncIterator[Agents]:
    with anyio.fail_after(PATIENT):
        async with SqliteLedger(folder / "calls.db") as ledger, agents(ledger=ledger, **options) as world:
            yield world


async def leave_behind(world: Agents, agent: Agent, **call: Any) -> str | None:
    """Make a call and go away once it runs; return the id that was given, if one was."""
    runs = len(world.tool.runs)
    async with agent.call(**call) as stream:
        await world.tool.started(runs + 1)
        await world.tool.runs[runs].note(1)
        event = await stream.next()
        return event.id


# --- without options


async def test_without_options_a_close_cancels_at_once_and_the_next_equal_call_runs() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first, second = without_session(world), without_session(world)
            assert await leave_behind(world, first) is None
            await until(lambda: world.tool.runs[0].gone)
            async with second.call(request_id=2) as stream:
                await world.tool.started(2)
                await world.tool.finish(1)
                assert (await answer_of(stream))["result"] == "run 2"
            assert world.counts.adopted == 0


async def test_without_options_no_event_has_an_id_and_a_resume_goes_upstream_as_it_is() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            agent = without_session(world)
            async with agent.call() as stream:
                await world.tool.started(1)
                await world.tool.runs[0].note(1)
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"
                await stream.rest()
            assert not [event for event in stream.events if event.id]
            assert "why=unresumable" in stream.claim
            async with agent.raw.get("cf1.x") as stream:
                assert stream.status == 405


async def test_l10_an_answer_that_was_here_already_is_adopted() -> None:
    """Its client reads nothing and goes: the answer is in the stream, and was not handed over."""
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first, second = without_session(world), without_session(world)
            async with anyio.create_task_group() as tasks:
                async with first.call() as stream:
                    await world.tool.started(1)
                    # More than any socket takes: the last byte cannot have been handed over.
                    await world.tool.runs[0].result("x" * (8 << 20))
                    await until(lambda: world.behind.store.statistics().ended_streams)
                    assert stream.status == 200
                tasks.start_soon(world.tool.runs[0].end)
                async with second.call(request_id=9) as stream:
                    assert "why=adopted" in stream.claim
                    answer = await answer_of(stream)
            assert (answer["id"], len(answer["result"])) == (9, 8 << 20)
            assert len(world.tool.runs) == 1


async def test_two_principals_without_sessions_never_adopt_each_others_calls() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(resume_grace_s=30) as world:
            alice, bob = without_session(world, "alice"), without_session(world, "bob")
            await leave_behind(world, alice)
            async with bob.call(request_id=2) as stream:
                await world.tool.started(2)
                await world.tool.finish(1)
                assert (await answer_of(stream))["result"] == "run 2"
            assert world.counts.adopted == 0


# --- resume_grace_s


async def test_with_a_grace_a_client_resumes_by_its_id_and_nothing_is_cancelled() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(resume_grace_s=30) as world:
            agent = without_session(world)
            event_id = await leave_behind(world, agent)
            assert event_id
            await world.tool.runs[0].note(2)
            async with agent.raw.get(event_id) as stream:
                assert "verdict=resumed" in stream.claim
                assert not world.tool.runs[0].gone
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"


async def test_with_a_grace_and_no_principal_the_id_is_the_capability() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(principal=False, resume_grace_s=30) as world:
            agent = without_session(world, None)
            event_id = await leave_behind(world, agent)
            async with agent.raw.get(event_id) as stream:
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"


async def test_after_the_grace_the_call_is_cancelled_and_its_id_ends_in_an_error() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(resume_grace_s=0.2) as world:
            agent = without_session(world)
            event_id = await leave_behind(world, agent)
            await until(lambda: world.tool.runs[0].gone)
            async with agent.raw.get(event_id) as stream:
                told = in_band(await answer_of(stream))
            assert (told["why"], told["executed"]) == ("unknown-stream", "unknown")


async def test_a_call_in_its_grace_is_adopted_with_live_progress() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(resume_grace_s=30) as world:
            first, second = without_session(world), without_session(world)
            event_id = await leave_behind(world, first, meta={"progressToken": "a"})
            async with second.call(request_id="again", meta={"progressToken": 7}) as stream:
                progress = {**note(2), "params": {"progressToken": "a", "progress": 2}}
                await world.tool.runs[0].event(progress)
                while (message := await stream.message())["params"]["progress"] != 2:
                    pass
                assert message["params"]["progressToken"] == 7
                await world.tool.finish()
                assert await answer_of(stream) == {"jsonrpc": "2.0", "id": "again", "result": "run 1"}
            async with first.raw.get(event_id) as stream:
                assert in_band(await answer_of(stream))["why"] == "adopted"
            assert len(world.tool.runs) == 1


async def test_an_adopter_that_goes_as_well_has_a_grace_of_its_own() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(resume_grace_s=0.4) as world:
            agent = without_session(world)
            await leave_behind(world, agent)
            async with agent.call(request_id=2) as stream:
                await until(lambda: world.counts.adopted)
                await stream.next()
                await anyio.sleep(0.6)  # longer than the grace, which runs only while nobody is there
            assert not world.tool.runs[0].gone
            await until(lambda: world.tool.runs[0].gone)


# --- keys


async def test_keys_are_offered_on_the_answer_to_discover(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        agent = without_session(world)
        async with anyio.create_task_group() as tasks:

            async def answer() -> None:
                await world.tool.started(1)
                await world.tool.runs[0].result({"supportedVersions": []})
                await world.tool.runs[0].end()

            tasks.start_soon(answer)
            answered = await agent.raw.post("server/discover")
        assert "call=offered" in answered.headers["stream-continuity"]


async def test_detach_is_acknowledged_and_the_same_key_attaches_under_a_new_request_id(
    tmp_path: Path,
) -> None:
    async with keyed(tmp_path) as world:
        first, second = without_session(world), without_session(world)
        async with first.call(meta={**DETACH, "progressToken": "a"}) as stream:
            assert "call=detach" in stream.claim
            await world.tool.started(1)
        async with second.call(request_id="again", meta={**DETACH, "progressToken": "b"}) as stream:
            assert "call=attached" in stream.claim
            await world.tool.runs[0].event({**note(1), "params": {"progressToken": "a", "progress": 1}})
            assert (await stream.message())["params"] == {"progressToken": "b", "progress": 1}
            assert not world.tool.runs[0].gone
            await world.tool.finish()
            assert await answer_of(stream) == {"jsonrpc": "2.0", "id": "again", "result": "run 1"}
        async with second.call(request_id="later", meta=DETACH) as stream:
            assert "call=stored" in stream.claim
            assert (await answer_of(stream))["result"] == "run 1"
        assert len(world.tool.runs) == 1


async def test_l11_a_close_without_detach_cancels_and_the_key_is_in_doubt(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        agent = without_session(world)
        async with agent.call(meta=key()) as stream:
            assert "call=cancel" in stream.claim
            await world.tool.started(1)
        await until(lambda: world.tool.runs[0].gone)
        async with agent.call(meta=key(), request_id=2) as stream:
            assert in_band(await answer_of(stream))["executed"] == "unknown"
        assert len(world.tool.runs) == 1
    async with SqliteLedger(tmp_path / "calls.db") as ledger:
        (entry,) = [entry async for entry in ledger.indeterminate()]
    assert entry.why == "cancelled"


async def test_l11_only_the_last_of_several_callers_cancels_by_leaving(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        first, second = without_session(world), without_session(world)
        async with second.call(meta=key(), request_id=2) as waiting:
            await world.tool.started(1)
            async with first.call(meta=key()) as stream:
                assert "call=attached" in stream.claim
            await anyio.sleep(0.1)
            assert not world.tool.runs[0].gone
            await world.tool.finish()
            assert (await answer_of(waiting))["result"] == "run 1"


async def test_l11_an_explicit_cancel_is_at_once_under_a_grace_too_and_a_silent_one_is_not(
    tmp_path: Path,
) -> None:
    async with keyed(tmp_path, resume_grace_s=30) as world:
        agent = without_session(world)
        await leave_behind(world, agent, meta=key("now", on_disconnect="cancel"))
        await until(lambda: world.tool.runs[0].gone)
        event_id = await leave_behind(world, agent, meta=key("later"), request_id=2)
        async with agent.raw.get(event_id) as stream:
            await world.tool.finish(1)
            assert (await answer_of(stream))["result"] == "run 2"


async def test_l23_an_equal_round_gets_the_stored_question_and_another_one_goes_on(tmp_path: Path) -> None:
    async with keyed(tmp_path) as world:
        agent = without_session(world)
        question = {"resultType": "input_required", "inputRequests": {"a": {}}, "requestState": "s"}
        async with agent.call(meta=DETACH) as stream:
            await world.tool.started(1)
            await world.tool.finish(0, question)
            assert (await answer_of(stream))["result"] == question
        async with agent.call(meta=DETACH, request_id=2) as stream:
            assert await answer_of(stream) == {"jsonrpc": "2.0", "id": 2, "result": question}
        assert len(world.tool.runs) == 1
        answered = {"inputResponses": {"a": {"action": "accept"}}, "requestState": "s"}
        async with agent.call(meta=DETACH, request_id=3, more=answered) as stream:
            await world.tool.started(2)
            await world.tool.finish(1)
            assert (await answer_of(stream))["result"] == "run 2"


async def test_l8_a_key_that_others_may_choose_too_is_refused_where_nothing_tells_callers_apart(
    tmp_path: Path,
) -> None:
    async with keyed(tmp_path, principal=False) as world:
        agent = without_session(world, None)
        async with agent.call(meta=DETACH) as stream:
            assert stream.status == 400
        random = key("0123456789abcdef0123456789abcdef", on_disconnect="detach")
        async with agent.call(meta=random, request_id=2) as stream:
            await world.tool.started(1)
            await world.tool.finish()
            assert (await answer_of(stream))["result"] == "run 1"


async def test_a_keyed_question_goes_to_the_caller_that_is_there(tmp_path: Path) -> None:
    """Revisions with sessions: the tool asks, its first caller is gone, the one that attached answers."""
    async with keyed(tmp_path) as world:
        first = await world.session(capabilities={"elicitation": {}})
        second = await world.session(capabilities={"elicitation": {}})
        async with first.call(meta=key()) as stream:
            await stream.next()
            await world.tool.started(1)
        asks = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "?"}}
        await world.tool.runs[0].event(asks)
        async with second.call(meta=key(), request_id=2) as stream:
            asked = await stream.message()
            assert (asked["method"], asked["id"]) != ("elicitation/create", "q")
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}}
            sent = await second.raw.http.post(second.raw.url, json=answer, headers=second.raw.fields)
            assert sent.status_code == 202
            (told,) = [x for x in world.upstream.seen if x.message and "result" in x.message]
            assert told.message["id"] == "q"
            assert told.headers["mcp-session-id"] == first.raw.fields["mcp-session-id"]
            await world.tool.finish()
            assert (await answer_of(stream))["result"] == "run 1"
