"""Who takes over whose call, at the wire: a raw client, the gateway, a scripted upstream.

The schedules are those of the decisions, part 2 (L3 to L10, L17 to L20) and S9, S18.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import anyio
import httpx2
import pytest
from adoption_kit import Agent, agents, answer_of, until
from gateway_kit import Exchange, in_band, note

pytestmark = pytest.mark.anyio

PATIENT = 60


async def test_a_reissue_in_a_new_session_takes_the_running_call_over() -> None:
    with anyio.fail_after(15):
        async with agents() as world:
            first, second = await world.session(), await world.session()
            async with first.call(meta={"progressToken": "a"}) as stream:
                await stream.next()  # the id
                await world.tool.started(1)
            await first.end()
            async with second.call(request_id="again", meta={"progressToken": 7}) as stream:
                assert "why=adopted" in stream.claim
                progress = {**note(1), "params": {"progressToken": "a", "progress": 1}}
                await world.tool.runs[0].event(progress)
                assert (await stream.message())["params"] == {"progressToken": 7, "progress": 1}
                await world.tool.finish()
                answer = await answer_of(stream)
            assert answer == {"jsonrpc": "2.0", "id": "again", "result": "run 1"}
            assert len(world.tool.runs) == 1
            assert world.counts.adopted == 1


async def leave_behind(world: Any, agent: Agent, **call: Any) -> str:
    """Make a call and go away once it runs and has an id; return the id."""
    runs = len(world.tool.runs)
    async with agent.call(**call) as stream:
        first_id = str((await stream.next()).id)
        await world.tool.started(runs + 1)
    return first_id


async def test_an_answer_that_came_when_nobody_was_there_is_adopted() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first, second = await world.session(), await world.session()
            await leave_behind(world, first)
            await world.tool.finish()
            await until(lambda: world.behind.store.statistics().ended_streams)
            await first.end()
            async with second.call(request_id=9) as stream:
                assert (await answer_of(stream)) == {"jsonrpc": "2.0", "id": 9, "result": "run 1"}
            assert len(world.tool.runs) == 1


async def test_a_call_cut_before_its_id_is_free_at_once_in_the_same_session() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(prime_after_ms=5_000, adopt_return_s=60) as world:
            agent = await world.session()
            world.tool.opens = False
            with anyio.move_on_after(0.3):
                async with agent.call():
                    raise AssertionError("there is no head yet")
            async with anyio.create_task_group() as tasks:

                async def finish() -> None:
                    await until(lambda: world.counts.adopted)
                    await world.tool.runs[0].start()
                    await world.tool.finish()

                tasks.start_soon(finish)
                async with agent.call(request_id=2) as stream:
                    assert (await answer_of(stream))["result"] == "run 1"
            assert len(world.tool.runs) == 1


async def test_a_whole_json_answer_that_nobody_got_is_adopted() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(prime_after_ms=5_000) as world:
            agent = await world.session()
            world.tool.opens = False
            with anyio.move_on_after(0.3):
                async with agent.call():
                    raise AssertionError("there is no head yet")
            run = world.tool.runs[0]
            await run.json({"jsonrpc": "2.0", "id": 1, "result": "as a whole"})
            async with agent.call(request_id=2) as stream:
                assert (await answer_of(stream)) == {"jsonrpc": "2.0", "id": 2, "result": "as a whole"}
            assert len(world.tool.runs) == 1


async def test_l3_the_cancellation_of_a_client_that_is_gone_is_held_and_an_adopter_undoes_it() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_s=0.6) as world:
            first, second = await world.session(), await world.session()
            await leave_behind(world, first)
            answer = await first.say("notifications/cancelled", {"requestId": 1, "reason": "timeout"})
            assert answer.status_code == 202
            await first.end()
            async with second.call() as stream:
                await anyio.sleep(0.8)  # longer than the window, which runs only while nobody is attached
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"
            assert len(world.tool.runs) == 1
            assert not world.notices("notifications/cancelled")


async def test_l3_a_held_cancellation_is_passed_on_when_the_window_ends() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_s=0.3) as world:
            first = await world.session()
            await leave_behind(world, first)
            await first.say("notifications/cancelled", {"requestId": 1})
            assert not world.notices("notifications/cancelled")
            await until(lambda: world.notices("notifications/cancelled"))
            (passed,) = world.notices("notifications/cancelled")
            assert passed.message["params"]["requestId"] == 1
            assert passed.headers["mcp-session-id"] == first.raw.fields["mcp-session-id"]


async def test_l3_one_cancelled_on_a_living_connection_is_passed_on_at_once_and_runs_again() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            agent = await world.session()
            async with agent.call() as stream:
                await stream.next()
                await world.tool.started(1)
                await agent.say("notifications/cancelled", {"requestId": 1})
                assert len(world.notices("notifications/cancelled")) == 1
            async with agent.call(request_id=2) as stream:
                await world.tool.started(2)
                await world.tool.finish(1)
                assert (await answer_of(stream))["result"] == "run 2"


async def test_l3_an_adopter_that_cancels_cancels_the_call_in_its_own_session() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first, second = await world.session(), await world.session()
            await leave_behind(world, first, request_id="a")
            await first.end()
            async with second.call(request_id="b") as stream:
                await stream.next()
                await second.say("notifications/cancelled", {"requestId": "b", "reason": "enough"})
            (passed,) = world.notices("notifications/cancelled")
            assert passed.message["params"] == {"requestId": "a", "reason": "enough"}
            assert passed.headers["mcp-session-id"] == first.raw.fields["mcp-session-id"]
            third = await world.session()
            async with third.call():
                await world.tool.started(2)


async def test_l4_a_session_that_ends_first_leaves_its_answer_to_the_reissue() -> None:
    """(a) the tool ends, the agent gives up, DELETE, and the same call again."""
    with anyio.fail_after(PATIENT):
        async with agents(adopt_return_s=60) as world:
            first = await world.session()
            await leave_behind(world, first)
            await world.tool.finish()
            await until(lambda: world.behind.store.statistics().ended_streams)
            await first.end()
            assert world.upstream.count("DELETE") == 1  # nothing of it runs: passed on at once
            second = await world.session()
            async with second.call() as stream:
                assert (await answer_of(stream))["result"] == "run 1"
            assert len(world.tool.runs) == 1


async def test_l4_a_delete_before_the_connection_closes_detaches_the_call_and_is_held() -> None:
    """(b) and (c): SDKs delete first; and an adopted call is not killed by it when a window ends."""
    with anyio.fail_after(PATIENT):
        async with agents(adopt_s=0.4, adopt_return_s=60) as world:
            first, second = await world.session(), await world.session()
            async with first.call() as stream:
                first_id = str((await stream.next()).id)
                await world.tool.started(1)
                assert (await first.end()).status_code == 200
                error = await answer_of(stream)
                assert in_band(error)["why"] == "session"  # and that is no hand-over
            async with first.raw.get(first_id) as again:
                assert again.status == 404
            async with second.call() as stream:
                await anyio.sleep(0.6)
                assert world.upstream.count("DELETE") == 0
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"
            await until(lambda: world.upstream.count("DELETE") == 1)
            assert len(world.tool.runs) == 1


async def test_l4_a_held_delete_is_passed_on_when_nobody_came() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_s=0.3) as world:
            first = await world.session()
            await leave_behind(world, first)
            await first.end()
            assert world.upstream.count("DELETE") == 0
            await until(lambda: world.upstream.count("DELETE") == 1)


async def test_l4_without_a_principal_a_delete_is_passed_on_at_once() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(principal=False) as world:
            first = await world.session(None)
            await leave_behind(world, first)
            await first.end()
            assert world.upstream.count("DELETE") == 1


async def test_l5_an_adopter_that_goes_too_leaves_the_call_to_the_next() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            sessions = [await world.session() for _ in range(4)]
            await leave_behind(world, sessions[0])
            await sessions[0].end()
            for agent in sessions[1:3]:
                async with agent.call() as stream:
                    assert "why=adopted" in stream.claim
                    await stream.next()
                await agent.end()
            async with sessions[3].call(request_id="last") as stream:
                await world.tool.finish()
                assert await answer_of(stream) == {"jsonrpc": "2.0", "id": "last", "result": "run 1"}
            assert len(world.tool.runs) == 1
            assert world.counts.adopted == 3


@pytest.mark.parametrize("strict", [False, True])
async def test_l6_a_first_caller_who_comes_back_is_told_that_its_answer_was_adopted(strict: bool) -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_return_s=0.05) as world:
            first, second = await world.session(), await world.session()
            first_id = await leave_behind(world, first, request_id="mine")
            await anyio.sleep(0.2)
            async with second.call() as stream:
                assert "why=adopted" in stream.claim
                fields = {"stream_continuity": "v=1, want=(strict)"} if strict else {}
                async with first.raw.get(first_id, **fields) as again:
                    assert again.status == (409 if strict else 200)
                    assert "why=adopted" in again.claim
                    await again.rest()
                    assert b'"executed":"unknown"' in again.raw
                    assert b'"id":"mine"' in again.raw
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"
            assert len(world.tool.runs) == 1


async def test_s9_an_equal_call_waits_for_the_first_client_which_resumes_and_both_get_their_own() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_return_s=60) as world:
            agent = await world.session()
            first_id = await leave_behind(world, agent)
            async with agent.call(request_id=2) as second:
                assert "why=first" in second.claim  # opened early: it has an id while it waits
                async with agent.raw.get(first_id) as again:
                    await again.next()  # the echo
                    await world.tool.started(2)
                    await world.tool.finish(0)
                    await world.tool.finish(1)
                    assert (await answer_of(again))["result"] == "run 1"
                    assert (await answer_of(second))["result"] == "run 2"
            assert world.counts.adopted == 0


async def test_s9_a_client_with_an_id_that_does_not_come_back_in_time_loses_its_call_to_the_waiter() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_return_s=0.4) as world:
            agent = await world.session()
            await leave_behind(world, agent)
            async with agent.call(request_id=2) as second:
                await until(lambda: world.counts.adopted)
                await world.tool.finish()
                assert (await answer_of(second))["id"] == 2
            assert len(world.tool.runs) == 1


async def test_a_waiting_call_whose_client_leaves_is_never_sent() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_return_s=0.5) as world:
            first, second, third = [await world.session() for _ in range(3)]
            await leave_behind(world, first)
            async with second.call() as waiting:
                await waiting.next()
            await second.end()
            async with third.call(request_id=3) as stream:
                await until(lambda: world.counts.adopted)
                await world.tool.finish()
                assert (await answer_of(stream))["id"] == 3
            assert len(world.tool.runs) == 1


async def test_a_waiting_call_whose_client_comes_back_by_its_id_goes_on_waiting() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_return_s=0.8) as world:
            agent = await world.session()
            await leave_behind(world, agent)
            async with agent.call(request_id=2) as waiting:
                own_id = str((await waiting.next()).id)
            async with agent.raw.get(own_id) as again:
                await until(lambda: world.counts.adopted)
                await world.tool.finish()
                assert (await answer_of(again))["id"] == 2
            assert len(world.tool.runs) == 1


async def test_an_equal_call_after_a_delivered_answer_runs_again_and_is_counted() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            agent = await world.session()
            for run in range(2):
                async with agent.call(request_id=run) as stream:
                    await world.tool.started(run + 1)
                    await world.tool.finish(run)
                    assert (await answer_of(stream))["result"] == f"run {run + 1}"
            assert (world.counts.adopted, world.counts.passed_over) == (0, 1)


async def test_l9_a_reissue_that_overtakes_the_notice_waits_for_it() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_settle_ms=1_000) as world:
            first, second = await world.session(), await world.session()
            async with anyio.create_task_group() as tasks:
                reissued = anyio.Event()

                async def reissue() -> None:
                    reissued.set()
                    async with second.call(request_id=2) as stream:
                        await until(lambda: world.counts.adopted)
                        await world.tool.finish()
                        assert (await answer_of(stream))["result"] == "run 1"

                async with first.call() as stream:
                    await stream.next()
                    await world.tool.started(1)
                    tasks.start_soon(reissue)
                    await reissued.wait()
                    await anyio.sleep(0.2)
                    await first.end()
            assert len(world.tool.runs) == 1


async def test_l9_a_loop_that_is_late_hears_of_a_disconnect_before_it_gives_up_waiting_for_it() -> None:
    """The wait of `adopt_settle_ms` ends in the same turn in which the loop finds the disconnect."""
    settle_ms = 100
    with anyio.fail_after(PATIENT):
        async with agents(adopt_settle_ms=settle_ms, prime_after_ms=10_000) as world:
            world.tool.opens = False  # without a head there is no id: the call is free at once
            port = httpx2.URL(world.url).port
            assert port is not None
            sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
            sessions = [await world.session() for _ in sockets]
            first, second = (raw_call(agent, number) for number, agent in enumerate(sessions))
            sockets[0].sendall(first)
            await world.tool.started(1)
            sockets[1].sendall(second)
            adoption = world.behind.gateway.adoption
            assert adoption is not None
            await until(lambda: len(adoption._adopting.table) == 2)
            sockets[0].close()
            time.sleep(2 * settle_ms / 1000)  # noqa: ASYNC251 - the loop is late
            await until(lambda: world.counts.adopted or len(world.tool.runs) > 1)
            assert len(world.tool.runs) == 1
            sockets[1].close()


def raw_call(agent: Agent, number: int) -> bytes:
    """Write a call as it goes over a bare socket."""
    message = agent.raw.message("tools/call", {"name": "order", "arguments": {"item": 1}}, number)
    body = json.dumps(message).encode()
    fields = {"host": "127.0.0.1", "content-type": "application/json", **agent.raw.fields}
    lines = [f"{name}: {value}" for name, value in fields.items()]
    head = "\r\n".join(["POST /mcp HTTP/1.1", *lines, f"content-length: {len(body)}"])
    return head.encode() + b"\r\n\r\n" + body


async def test_equal_calls_in_parallel_keep_their_count_whatever_is_cut(scaled: Any) -> None:
    count = scaled(12, 50)
    with anyio.fail_after(60):
        async with agents(adopt_settle_ms=10, limits=world_limits(count)) as world:
            sessions = [await world.session() for _ in range(2 * count)]
            answers: list[Any] = []

            async def ask(agent: Agent) -> None:
                async with agent.call() as stream:
                    answers.append((await answer_of(stream))["result"])

            async with anyio.create_task_group() as tasks:

                async def be_cut(agent: Agent) -> None:
                    async with agent.call() as stream:
                        await stream.next()
                        await world.tool.started(count)
                    await agent.end()

                for agent in sessions[:count]:
                    tasks.start_soon(be_cut, agent)
            async with anyio.create_task_group() as tasks:
                for agent in sessions[count:]:
                    tasks.start_soon(ask, agent)
                await until(lambda: world.counts.adopted == count)
                for which in range(count):
                    await world.tool.finish(which)
            assert sorted(answers) == sorted(f"run {which + 1}" for which in range(count))
            assert len(world.tool.runs) == count


def world_limits(count: int) -> Any:
    from counterfoil.limits import Limits

    return Limits(sessions=4 * count + 100)


OTHERS = {
    "another principal": {"principal": "bob"},
    "another argument": {"arguments": {"item": 2}},
    "another type of argument": {"arguments": {"item": "1"}},
    "another tool": {"tool": "cancel_order"},
}


@pytest.mark.parametrize("other", OTHERS, ids=str)
async def test_what_differs_is_never_adopted(other: str) -> None:
    facts = dict(OTHERS[other])
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first = await world.session()
            second = await world.session(facts.pop("principal", "alice"))
            await leave_behind(world, first)
            await first.end()
            async with second.call(**facts):
                await world.tool.started(2)
            assert world.counts.adopted == 0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"items": [1, 2]}, {"items": [2, 1]}),
        ({"from": 1, "to": 2}, {"from": 2, "to": 1}),
        ({"text": "\u00e9"}, {"text": "e\u0301"}),
        ({"n": 9_007_199_254_740_993}, {"n": 9_007_199_254_740_992}),
    ],
    ids=["items", "members", "characters", "numbers"],
)
async def test_arguments_in_an_order_or_a_form_that_differs_in_value_are_another_call(
    ours: Any, theirs: Any
) -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first, second = await world.session(), await world.session()
            await leave_behind(world, first, arguments=ours)
            await first.end()
            async with second.call(theirs):
                await world.tool.started(2)
            assert world.counts.adopted == 0


async def test_two_tenants_and_two_routes_never_adopt_each_others_calls() -> None:
    """One user's name in two tenants is two users; two routes to one server are two servers."""
    with anyio.fail_after(PATIENT):
        async with agents(tenant=True, routes=("/a", "/b")) as world:
            places = [("/a", "one"), ("/a", "two"), ("/b", "one")]
            for number, (route, tenant) in enumerate(places):
                agent = await world.session(route=route, x_tenant=tenant)
                await leave_behind(world, agent)
                await agent.end()
                assert len(world.tool.runs) == number + 1
            assert world.counts.adopted == 0
            for number, (route, tenant) in enumerate(places):  # and each finds its own
                agent = await world.session(route=route, x_tenant=tenant)
                async with agent.call(request_id=f"again {number}") as stream:
                    await world.tool.finish(number)
                    assert (await answer_of(stream))["result"] == f"run {number + 1}"
            assert (world.counts.adopted, len(world.tool.runs)) == (3, 3)


async def test_two_sessions_without_a_principal_never_adopt_each_others_and_one_does_its_own() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(principal=False, adopt_return_s=0.1) as world:
            first, second = await world.session(None), await world.session(None)
            await leave_behind(world, first)
            await anyio.sleep(0.2)
            async with second.call():
                await world.tool.started(2)
            async with first.call(request_id=2) as stream:
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"
            assert len(world.tool.runs) == 2


async def test_a_known_answer_order_does_not_count_and_number_forms_do_not() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first, second = await world.session(), await world.session()
            await leave_behind(world, first, arguments={"a": 10, "b": "\u00e9"})
            await first.end()
            async with second.call({"b": "\u00e9", "a": 10.0}) as stream:
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"
            assert len(world.tool.runs) == 1


@pytest.mark.parametrize(
    "settings",
    [{"adopt_scope": "session"}, {"adopt_scopes": ("order=session",)}, {"adopt_scopes": ("/mcp:order=off",)}],
)
async def test_l18_state_that_lives_in_the_session_stays_there(settings: Any) -> None:
    with anyio.fail_after(PATIENT):
        async with agents(**settings) as world:
            first, second = await world.session(), await world.session()
            await leave_behind(world, first)
            await first.end()
            assert world.upstream.count("DELETE") == 1
            async with second.call():
                await world.tool.started(2)


async def test_switched_off_the_reissue_runs_again() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_s=0) as world:
            first, second = await world.session(), await world.session()
            await leave_behind(world, first)
            await first.end()
            async with second.call():
                await world.tool.started(2)


async def test_a_tool_that_was_listed_as_read_only_runs_again_and_an_unlisted_one_does_not() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            agent, second = await world.session(), await world.session()
            for each in (agent, second):
                await each.raw.post("tools/list", request_id=5)
            await leave_behind(world, agent, tool="look")
            await agent.end()
            async with second.call(tool="look"):
                await world.tool.started(2)


async def test_keyed_calls_neither_adopt_nor_are_adopted() -> None:
    """Decision L7 (a): a key lives in `_meta`, and two keys are two intents."""
    key = {"io.counterfoil/call": {"v": 1, "key": "k1"}}
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first, second = await world.session(), await world.session()
            await leave_behind(world, first, meta=key)
            await first.end()
            async with second.call(meta={"io.counterfoil/call": {"v": 1, "key": "k2"}}):
                await world.tool.started(2)
            third = await world.session()
            async with third.call():
                await world.tool.started(3)


async def test_l10_an_indeterminate_outcome_is_told_to_every_identical_call_until_the_window_ends() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(adopt_s=1.0) as world:
            sessions = [await world.session() for _ in range(4)]
            async with sessions[0].call() as stream:
                await world.tool.started(1)
                await world.tool.runs[0].end()  # the upstream's stream ends without an answer
                told = in_band(await answer_of(stream))
            for agent in sessions[1:3]:
                async with agent.call(request_id="r") as stream:
                    error = await answer_of(stream)
                    assert error["id"] == "r"
                    assert in_band(error)["executed"] == told["executed"] == "unknown"
            assert len(world.tool.runs) == 1
            assert world.counts.told == 2
            await anyio.sleep(1.2)
            async with sessions[3].call():
                await world.tool.started(2)


async def test_l20_a_refusal_before_any_answer_is_never_adopted() -> None:
    with anyio.fail_after(PATIENT):
        async with agents(prime_after_ms=5_000) as world:
            first, second = await world.session(), await world.session()
            world.tool.opens = False
            with anyio.move_on_after(0.3):
                async with first.call():
                    raise AssertionError("there is no head yet")
            await world.tool.runs[0].json({"error": "slow down"}, 429)
            await anyio.sleep(0.1)
            world.tool.opens = True
            async with second.call() as stream:
                await world.tool.started(2)
                await world.tool.finish(1)
                assert (await answer_of(stream))["result"] == "run 2"


ELICIT = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": "sure?"}}


@pytest.mark.parametrize("asked", ["before the cut", "after the adoption"])
async def test_l19_the_servers_questions_go_to_the_adopter_and_its_answers_back(asked: str) -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first = await world.session(capabilities={"elicitation": {}})
            second = await world.session(capabilities={"elicitation": {}})
            async with first.call() as stream:
                await stream.next()
                await world.tool.started(1)
                if asked == "before the cut":
                    await world.tool.runs[0].event(ELICIT)
                    await stream.message()
            await first.end()
            async with second.call(request_id="b") as stream:
                if asked != "before the cut":
                    await world.tool.runs[0].event(ELICIT)
                question = await stream.message()
                assert question["params"] == ELICIT["params"]
                assert question["id"] != 1  # the adopter's own session may know a question 1
                reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
                answer = await second.raw.http.post(second.raw.url, json=reply, headers=second.raw.fields)
                assert answer.status_code == 202
                (arrived,) = [x for x in world.upstream.seen if x.message and x.message.get("result")]
                assert arrived.message == {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}
                assert arrived.headers["mcp-session-id"] == first.raw.fields["mcp-session-id"]
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"


async def test_l19_a_client_that_cannot_be_asked_is_not_and_the_server_is_told() -> None:
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first, second = await world.session(capabilities={"elicitation": {}}), await world.session()
            await leave_behind(world, first)
            await first.end()
            async with second.call() as stream:
                await world.tool.runs[0].event(ELICIT)
                await until(lambda: [x for x in world.upstream.seen if x.message and "error" in x.message])
                await world.tool.finish()
                (answer,) = await stream.rest()
                assert answer["result"] == "run 1"


async def test_an_adopter_that_asked_for_no_progress_gets_none_and_other_notes_pass() -> None:
    log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
    with anyio.fail_after(PATIENT):
        async with agents() as world:
            first, second = await world.session(), await world.session()
            await leave_behind(world, first, meta={"progressToken": 1})
            await world.tool.runs[0].event(note(1))
            await world.tool.runs[0].event(log)
            await first.end()
            async with second.call() as stream:
                await world.tool.finish()
                messages = await stream.rest()
            assert [each.get("method", "answer") for each in messages] == ["notifications/message", "answer"]


async def test_a_client_that_closed_its_standalone_stream_too_has_left_and_is_not_waited_for() -> None:
    async def standalone(x: Exchange) -> None:
        await x.start()
        await x.wait_gone()

    with anyio.fail_after(PATIENT):
        async with agents(adopt_return_s=60, on_get=standalone) as world:
            first, second = await world.session(), await world.session()
            async with first.raw.get():
                await leave_behind(world, first)
            async with second.call() as stream:
                await until(lambda: world.counts.adopted)
                await world.tool.finish()
                assert (await answer_of(stream))["result"] == "run 1"
            assert len(world.tool.runs) == 1
