"""Faults that users of other gateways reported, tried on ours over the wire; named by rows of cases.toml."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from counterfoil import KeyRing, ReplayStore
from counterfoil.adapters.gateway.application import Gateway as GatewayApp
from counterfoil.adapters.serving import serving
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from interop.environments import PAIRS, on_pairs
from interop.gateways import Gateway
from interop.plans import STEPS, plan_calls
from interop.processes import Orders
from interop.runs import run_client
from interop.wire import Answer, WireSession, open_session

pytestmark = pytest.mark.anyio


async def read_messages(answer: Answer) -> list[dict[str, Any]]:
    """Read to the end of the connection: every JSON-RPC message that came."""
    messages = []
    while (event := await answer.next_event()) is not None:
        if event.data:
            messages.append(json.loads(event.data))
    return messages


def text_of(message: dict[str, Any]) -> str:
    return str(message["result"]["content"][0]["text"])


async def test_b23_two_sessions_that_both_ask_under_id_0_get_their_own_answers(
    orders: Orders, gateway: Gateway, name: str
) -> None:
    answers: dict[int, dict[str, Any]] = {}

    async def ask(number: int) -> None:
        session = await open_session(gateway.port)
        arguments = {"key": f"{name}-{number}", "steps": 2, "pause_ms": 50}
        async with session.call(0, "order", arguments) as answer:
            answers[number] = (await read_messages(answer))[-1]

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(ask, number)
    for number, message in answers.items():
        assert message["id"] == 0
        assert text_of(message) == f"receipt ☂ {name}-{number}"
        assert orders.count_effects(f"{name}-{number}") == 1


async def test_b25_credentials_go_with_the_call_that_brought_them(gateway: Gateway, name: str) -> None:
    said: dict[str, str] = {}

    async def ask(who: str) -> None:
        session = await open_session(gateway.port, {"authorization": f"Bearer of-{who}"})
        async with session.call(7, "whoami", {"key": who, "pause_ms": 60}) as answer:
            said[who] = text_of((await read_messages(answer))[-1])

    async with anyio.create_task_group() as tasks:
        for who in ("ann", "bob", "eve"):
            tasks.start_soon(ask, f"{name}-{who}")
    assert all(text == f"{who} came with Bearer of-{who}" for who, text in said.items())
    assert len(said) == 3


@on_pairs(PAIRS)
async def test_b59_each_request_of_a_session_may_go_to_another_of_three_gateways(
    client: str, name: str, anyio_backend: str, orders: Orders, gateways: Callable[..., Gateway]
) -> None:
    replicas = [gateways(orders, anyio_backend, name=which) for which in ("home", "sibling", "third")]
    plan = plan_calls(name, 6, sessions=2, tools=("order", "ask"))

    async def route(exchange: Exchange) -> int:
        return replicas[exchange.number % len(replicas)].port

    async with open_link(replicas[0].port, route=route) as link:
        run = await run_client(client, f"{link.url}/mcp", plan)
    for call in run.calls.values():
        assert call.is_right, call
        assert call.has_all_progress(STEPS), call
        assert orders.count_effects(call.key) == 1


async def test_b63_a_server_without_standalone_streams_is_asked_once_and_its_calls_work(
    anyio_backend: str, orders_for: Callable[..., Orders], gateways: Callable[..., Gateway], name: str
) -> None:
    orders = orders_for("--no-get")
    gateway = gateways(orders, anyio_backend)
    before = orders.count_effects("GET")
    session = await open_session(gateway.port)
    async with session.listen() as answer:
        assert answer.status == 405
    async with session.call(1, "order", {"key": name, "steps": 3, "pause_ms": 50}) as answer:
        assert text_of((await read_messages(answer))[-1]) == f"receipt ☂ {name}"
    assert orders.count_effects("GET") == before + 1


async def test_b73_a_call_has_an_id_before_its_first_message(gateway: Gateway, name: str) -> None:
    session = await open_session(gateway.port)
    async with session.call(1, "order", {"key": name, "steps": 1, "pause_ms": 300}) as answer:
        first = await answer.next_event()
        answer.reset()
    assert first is not None
    assert (first.data, bool(first.id)) == ("", True)
    async with session.resume(first.id or "") as answer:
        assert text_of((await read_messages(answer))[-1]) == f"receipt ☂ {name}"


async def test_b75_one_id_asked_twice_at_once_is_answered_to_each_connection(anyio_backend: str) -> None:
    """The client breaks the rules here; its answers are still not swapped."""
    both_there = anyio.Event()
    waiting = 0

    async def upstream(scope: Any, receive: Any, send: Any) -> None:
        nonlocal waiting
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        message = json.loads((await receive())["body"])
        head = [(b"content-type", b"application/json"), (b"mcp-session-id", b"one")]
        body: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
        if "id" not in message:
            await send({"type": "http.response.start", "status": 202, "headers": head})
            await send({"type": "http.response.body"})
            return
        if message["method"] == "tools/call":
            head = [(b"content-type", b"text/event-stream")]
            waiting += 1
            if waiting == 2:
                both_there.set()
            await both_there.wait()
            body = {"content": [{"type": "text", "text": message["params"]["arguments"]["key"]}]}
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": body}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": head})
        framed = b"data: " + answer + b"\n\n" if message["method"] == "tools/call" else answer
        await send({"type": "http.response.body", "body": framed})

    said: list[tuple[str, str]] = []

    async def ask(session: WireSession, key: str) -> None:
        async with session.call(7, "any", {"key": key}) as answer:
            said.append((key, text_of((await read_messages(answer))[-1])))

    store = ReplayStore(keys=KeyRing.random())
    async with serving(GatewayApp(upstream=upstream, store=store)) as port:
        session = await open_session(port)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, session, "left")
                tasks.start_soon(ask, session, "right")
    assert sorted(said) == [("left", "left"), ("right", "right")]


@pytest.mark.slow
async def test_b77_a_cut_at_every_byte_of_a_call_loses_and_doubles_nothing(
    orders: Orders, gateway: Gateway, name: str, scaled: Callable[[int, int], int]
) -> None:
    """Every byte in full; what the client had before the cut and what the resume brings are the whole."""
    stride = scaled(30, 1)
    whole = await read_cut_call(gateway, f"{name}-whole", None)
    assert len(whole) == 3
    slots = anyio.Semaphore(16)
    unanswered: list[int] = []

    async def cut_at(position: int) -> None:
        key = f"{name}-{position}"
        async with slots:
            messages = await read_cut_call(gateway, key, position)
        assert orders.count_effects(key) <= 1
        if messages is None:
            unanswered.append(position)
            return
        assert [message.get("params", {}).get("progress") for message in messages] == [1, 2, None]
        assert text_of(messages[-1]) == f"receipt ☂ {key}"
        assert orders.count_effects(key) == 1

    async with anyio.create_task_group() as tasks:
        for position in range(1, 2_400, stride):
            tasks.start_soon(cut_at, position)
    # Without an ID the client cannot ask; it has one from the first frame on.
    assert max(unanswered) < 1_200, sorted(unanswered)


async def read_cut_call(gateway: Gateway, key: str, position: int | None) -> list[dict[str, Any]] | None:
    """Make a call whose first connection breaks at a byte, and resume it; None if there was no ID yet."""

    def plan(exchange: Exchange) -> Cut | None:
        is_call = exchange.method == "POST" and b"tools/call" in exchange.body
        return Cut("at-byte", "fin", position=position) if is_call and position is not None else None

    messages: list[dict[str, Any]] = []
    cursor = None
    async with open_link(gateway.port, plan=plan) as link:
        session = await open_session(link.port)
        try:
            async with session.call(1, "order", {"key": key, "steps": 2, "pause_ms": 5}) as answer:
                while (event := await answer.next_event()) is not None:
                    cursor = event.id or cursor
                    messages += [json.loads(event.data)] if event.data else []
        except AssertionError:
            return None  # there was no head
        if not messages or "result" not in messages[-1]:
            if cursor is None:
                return None
            async with session.resume(cursor) as answer:
                assert answer.status == 200
                messages += await read_messages(answer)
    return messages


async def test_b79_a_resume_takes_over_from_a_connection_that_nobody_closed(
    gateway: Gateway, name: str
) -> None:
    session = await open_session(gateway.port)
    async with session.call(1, "order", {"key": name, "steps": 3, "pause_ms": 100}) as orphan:
        first = await orphan.next_event()
        assert first is not None
        async with session.resume(first.id or "") as answer:
            assert answer.status == 200
            messages = await read_messages(answer)
        assert [message.get("params", {}).get("progress") for message in messages] == [1, 2, 3, None]
        assert text_of(messages[-1]) == f"receipt ☂ {name}"
        assert not [one for one in await read_messages(orphan) if "result" in one]


async def test_b211_an_in_band_error_keeps_the_type_of_the_id_that_it_answers(
    anyio_backend: str, orders: Orders, gateways: Callable[..., Gateway], name: str
) -> None:
    home = gateways(orders, anyio_backend)
    sibling = gateways(orders, anyio_backend, name="sibling")
    for request_id in (1, "1", 0, "01", -7, 2**53 - 1, "a_b-C"):
        session = await open_session(home.port)
        arguments = {"key": f"{name}-{request_id!r}", "steps": 1, "pause_ms": 1}
        async with session.call(request_id, "order", arguments) as answer:
            first = await answer.next_event()
        assert first is not None
        async with WireSession(sibling.port, session.headers).resume(first.id or "") as answer:
            (message,) = await read_messages(answer)
        assert "error" in message
        assert (type(message["id"]), message["id"]) == (type(request_id), request_id)
