"""Nothing depends on which worker a POST reaches: answers, cancellations, ends of session find their work."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from counterfoil.adapters.gateway.arrival.scopes import scope_from_header
from gateway_kit import Exchange, Stream, Upstream
from workers_kit import Held, Workers, until, workers

pytestmark = pytest.mark.anyio

PRINCIPAL = scope_from_header("x-tenant", trusted_proxies=["127.0.0.1"], principal="x-user")
WHO = {"x-tenant": "t", "x-user": "u"}


class Asking:
    """A call that asks its client something, and answers with what it was told."""

    def __init__(self, method: str = "elicitation/create") -> None:
        self.answered = anyio.Event()
        self.answers: list[Any] = []
        self.upstream = Upstream(self)
        self._method = method

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.start()
        await exchange.event({"jsonrpc": "2.0", "id": "q1", "method": self._method, "params": {}})
        await self.answered.wait()
        await exchange.result(self.answers[0])
        await exchange.end()

    def heard(self, body: bytes) -> None:
        messages = json.loads(body)
        for message in messages if isinstance(messages, list) else [messages]:
            if message.get("id") == "q1" and "result" in message:
                self.answers.append(message["result"])
                self.answered.set()


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
async def test_an_answer_that_reaches_the_other_worker_reaches_its_server(folder: Path, method: str) -> None:
    asking = Asking(method)
    async with workers(asking.upstream, folder) as host:
        async with host.clients[0].call(5) as stream:
            question = await stream.message()
            assert (question["id"], question["method"]) == ("q1", method)
            client = host.clients[1]
            answer = {"jsonrpc": "2.0", "id": "q1", "result": {"action": "accept"}}
            sent = await client.http.post(client.url, json=answer, headers=client.fields)
            assert sent.status_code == 202
            asking.heard(asking.upstream.seen[-1].body)
            assert (await stream.message())["result"] == {"action": "accept"}
        # Everybody knows that it has passed, so nobody settles it in the client's stead.
        facts = host.each[0].gateway._answering.sessions.of(client.fields["mcp-session-id"])
        assert facts.server_requests.is_answered("q1")
        assert asking.upstream.count("POST") == 3


async def test_an_answer_that_was_settled_at_the_other_worker_is_taken_and_dropped(folder: Path) -> None:
    asking = Asking()
    async with workers(asking.upstream, folder) as host:
        facts = host.each[0].gateway._answering.sessions.of(host.clients[0].fields["mcp-session-id"])
        assert facts.server_requests.take_lost(["q1"]) == ["q1"]
        client = host.clients[1]
        answer = {"jsonrpc": "2.0", "id": "q1", "result": {"action": "accept"}}
        sent = await client.http.post(client.url, json=answer, headers=client.fields)
        assert sent.status_code == 202
        assert asking.upstream.count("POST") == 1


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
async def test_an_answer_through_a_stream_that_the_other_worker_passes_on_reaches_its_server(
    folder: Path, method: str
) -> None:
    """The question is read through one worker, and asked by another; the answer may land at either."""
    for at in (0, 1):
        asking = Asking(method)
        async with workers(asking.upstream, folder / str(at)) as host:
            async with host.clients[0].call(5) as stream:
                first = (await stream.next()).id
            async with host.clients[1].get(first) as stream:
                assert 'via="worker 2"' in stream.claim
                assert (await stream.message())["method"] == method
                client = host.clients[at]
                answer = {"jsonrpc": "2.0", "id": "q1", "result": {"role": "assistant"}}
                sent = await client.http.post(client.url, json=answer, headers=client.fields)
                assert sent.status_code == 202
                asking.heard(asking.upstream.seen[-1].body)
                assert (await stream.message())["result"] == {"role": "assistant"}


@asynccontextmanager
async def adopted_question(
    asking: Asking, folder: Path, **fields: str
) -> AsyncIterator[tuple[Workers, Stream, Any]]:
    """Have a call's question asked of the session that adopted the call, and yield it."""
    async with workers(asking.upstream, folder, scope=PRINCIPAL, opens=False, adopt_return_s=0.1) as host:
        for client in host.clients:
            client.fields |= {**WHO, **fields}
        await host.initialize()
        first, other = host.clients
        async with first.call(5):
            pass  # cut before it had an id
        await first.initialize(capabilities={"elicitation": {}, "sampling": {}})
        async with first.call(5) as stream:
            question = await stream.message()
            assert question["id"].startswith("cf-")
            other.fields = dict(first.fields)
            yield host, stream, question


async def test_the_answer_to_an_adopted_question_goes_where_it_was_asked(folder: Path) -> None:
    """The adopter was asked with an id of ours; only the process that gave it knows what stands behind."""
    asking = Asking()
    async with adopted_question(asking, folder) as (host, stream, question):
        other = host.clients[1]
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        sent = await other.http.post(other.url, json=answer, headers=other.fields)
        assert sent.status_code == 202
        asking.heard(asking.upstream.seen[-1].body)
        assert (await stream.message())["result"] == {"action": "accept"}


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside a notification"])
async def test_it_goes_there_from_within_a_batch_too(folder: Path, at: int, is_alone: bool) -> None:
    asking = Asking("sampling/createMessage")
    fields = {"mcp-protocol-version": "2025-03-26"}
    async with adopted_question(asking, folder, **fields) as (host, stream, question):
        client = host.clients[at]
        note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"role": "assistant"}}
        batch = [answer] if is_alone else [note, answer]
        before = len(asking.upstream.seen)
        sent = await client.http.post(client.url, json=batch, headers=client.fields)
        assert sent.status_code == 202
        arrived = [json.loads(seen.body) for seen in asking.upstream.seen[before:]]
        assert {"jsonrpc": "2.0", "id": "q1", "result": {"role": "assistant"}} in arrived
        assert [body for body in arrived if isinstance(body, list)] == ([] if is_alone else [[note]])
        for body in arrived:
            asking.heard(json.dumps(body).encode())
        assert (await stream.message())["result"] == {"role": "assistant"}


async def test_a_batch_leaves_out_an_answer_that_was_settled_and_takes_the_others_to_their_server(
    folder: Path,
) -> None:
    asking = Asking()
    async with workers(asking.upstream, folder) as host:
        client = host.clients[1]
        client.fields["mcp-protocol-version"] = "2025-03-26"
        facts = host.each[0].gateway._answering.sessions.of(client.fields["mcp-session-id"])
        assert facts.server_requests.take_lost(["q1"]) == ["q1"]
        answers = [{"jsonrpc": "2.0", "id": name, "result": {}} for name in ("q0", "q1", "q2")]
        sent = await client.http.post(client.url, json=answers, headers=client.fields)
        assert sent.status_code == 202
        assert json.loads(asking.upstream.seen[-1].body) == [answers[0], answers[2]]


@pytest.mark.parametrize("at", [0, 1])
async def test_a_cancellation_ends_the_call_wherever_it_arrives(folder: Path, at: int) -> None:
    held = Held()
    upstream = Upstream(held)
    async with workers(upstream, folder, cancel_settle_s=0.05) as host:
        async with host.clients[0].call(5) as stream:
            await stream.message()
            client = host.clients[at]
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
            sent = await client.http.post(client.url, json=cancelled, headers=client.fields)
            assert sent.status_code == 202
            await stream.rest()
        assert upstream.count("POST", "notifications/cancelled") == 1
        assert host.each[0].store.statistics().live_streams == 0
        held.go.set()


async def test_a_cancellation_of_a_call_that_nobody_knows_is_passed_on(folder: Path) -> None:
    upstream = Upstream()
    async with workers(upstream, folder) as host:
        client = host.clients[1]
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
        await client.http.post(client.url, json=cancelled, headers=client.fields)
        assert upstream.count("POST", "notifications/cancelled") == 1


async def test_the_end_of_a_session_ends_it_everywhere(folder: Path) -> None:
    held = Held()
    upstream = Upstream(held)
    async with workers(upstream, folder) as host:
        async with host.clients[0].call(5) as stream:
            first = (await stream.next()).id
        client = host.clients[1]
        deleted = await client.http.delete(client.url, headers=client.fields)
        assert deleted.status_code == 200
        for client in host.clients:
            async with client.get(first) as stream:
                assert stream.status == 404
            assert (await client.post("tools/call", {"name": "t"})).status_code == 404
        assert upstream.count("DELETE") == 1
        held.go.set()


async def test_the_end_of_a_session_waits_upstream_for_calls_of_every_worker(folder: Path) -> None:
    """Undelivered calls of both run on in their session; its end goes upstream behind the last one."""
    calls = [Held(), Held()]

    async def on_call(exchange: Exchange) -> None:
        await calls[exchange.message["id"]](exchange)

    upstream = Upstream(on_call)
    async with workers(upstream, folder, scope=PRINCIPAL, opens=False) as host:
        for client in host.clients:
            client.fields |= WHO
        await host.initialize()
        for number, client in enumerate(host.clients):
            async with client.call(number) as stream:
                await stream.message()
        await until(lambda: not any(worker.store.statistics().readers for worker in host.each))
        client = host.clients[0]
        deleted = await client.http.delete(client.url, headers=client.fields)
        assert deleted.status_code == 200
        calls[0].go.set()
        await anyio.sleep(0.1)
        assert upstream.count("DELETE") == 0
        calls[1].go.set()
        await until(lambda: upstream.count("DELETE") == 1)


async def test_what_a_session_is_travels_to_every_worker(folder: Path) -> None:
    upstream = Upstream(logging={}, tools={"listChanged": True})
    async with workers(upstream, folder, count=3, opens=False) as host:
        await host.clients[1].initialize(capabilities={"sampling": {}})
        session = host.clients[1].fields["mcp-session-id"]
        for worker in host.each:
            facts = worker.gateway._answering.sessions.of(session)
            await until(lambda facts=facts: facts.capabilities == {"logging", "tools"})
            assert facts.client_capabilities == {"sampling"}
            assert facts.trusted


async def test_what_a_client_wants_to_be_told_is_known_at_its_home(folder: Path) -> None:
    async def on_call(exchange: Exchange) -> None:
        await exchange.json({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {}})

    async with workers(Upstream(on_call), folder, count=3) as host:
        session = host.clients[0].fields["mcp-session-id"]
        for number, client in enumerate(host.clients):
            client.fields = dict(host.clients[0].fields)
            await client.post("resources/subscribe", {"uri": f"r:{number}"})
        known = [worker.gateway._answering.sessions.of(session).resources for worker in host.each]
        await until(lambda: {"r:0", "r:1", "r:2"} in known)


async def test_read_only_tools_are_known_to_every_worker(folder: Path) -> None:
    tool = {"name": "t", "inputSchema": {}, "annotations": {"readOnlyHint": True}}
    calls = 0

    async def on_call(exchange: Exchange) -> None:
        nonlocal calls
        if exchange.message["method"] == "tools/list":
            await exchange.json({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {"tools": [tool]}})
            return
        calls += 1
        await exchange.json({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {}})

    async with workers(Upstream(on_call), folder) as host:
        await host.clients[0].post("tools/list")
        await until(lambda: host.each[1].peers.taken.requests["ToolsNews"] == 1)
        adoption = host.each[1].gateway.adoption
        assert adoption is not None
        assert list(adoption._read_only._known.values()) == [{"t"}]
