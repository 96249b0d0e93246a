"""Every limit has its default, a typed answer that names it, and a counter; nobody else notices."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx2
import pytest
from counterfoil import Limits
from counterfoil.adapters import serving
from counterfoil.adapters.gateway.arrival.json_bounds import check_json
from counterfoil.adapters.gateway.arrival.scopes import scope_from_header
from counterfoil.adapters.gateway.sessions.principals import Principals
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.errors import RequestOverLimit
from counterfoil.native import Scope
from gateway_kit import Behind, Exchange, Raw, Upstream, in_band, scripted

pytestmark = pytest.mark.anyio

KIB, MIB = 1 << 10, 1 << 20
LIMITS, SETTINGS = Limits(), GatewaySettings()
DEFAULTS = {
    "SSE line": (LIMITS.line_bytes, 16 * MIB),
    "SSE event": (LIMITS.event_bytes, 16 * MIB),
    "lines per event": (LIMITS.event_lines, 65_536),
    "request body": (SETTINGS.body_bytes, 4 * MIB),
    "upstream JSON body": (SETTINGS.answer_bytes, 16 * MIB),
    "upstream error body": (SETTINGS.error_bytes, 64 * KIB),
    "JSON depth": (SETTINGS.json_depth, 64),
    "JSON nodes": (SETTINGS.json_nodes, 100_000),
    "header fields": (SETTINGS.header_bytes, 32 * KIB),
    "one header field": (SETTINGS.header_field_bytes, 8 * KIB),
    "streams per session": (LIMITS.session_streams, 32),
    "sessions": (LIMITS.sessions, 20_000),
    "sessions per principal": (SETTINGS.principal_sessions, 64),
    "outstanding ids per session": (SETTINGS.session_requests, 1_024),
    "window, events": (LIMITS.window_events, 1_024),
    "window, bytes": (LIMITS.window_bytes, MIB),
    "all windows": (LIMITS.total_bytes, 256 * MIB),
    "write deadline": (SETTINGS.write_deadline_s, 20),
    "header read deadline": (serving.HEAD_DEADLINE_S, 10),
    "resumes held": (SETTINGS.holds_at_once, 64),
    "reconnects without progress": (ReconnectLimits().failures, 8),
    "attempts of a handler": (LIMITS.attempts, 3),
    "ledger retention": (LIMITS.ledger_row_age_s, 24 * 3600),
    "store busy deadline": (LIMITS.ledger_busy_ms, 5_000),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_default_is_as_it_is_said_to_be(name: str) -> None:
    value, expected = DEFAULTS[name]
    assert value == expected


def hits(behind: Behind, limit: str) -> bool:
    return f'limit_hits_total{{limit="{limit}"}}' in behind.gateway.metrics.write(None).decode()


async def answers(x: Exchange) -> None:
    await x.json({"jsonrpc": "2.0", "id": x.message["id"], "result": "ok"})


# --- requests that are refused before anything goes upstream

Ask = Callable[[Raw], Awaitable[httpx2.Response]]


async def ask_large(raw: Raw) -> httpx2.Response:
    return await raw.post("tools/call", {"text": "x" * 5_000})


async def ask_with_fields(raw: Raw) -> httpx2.Response:
    return await raw.post("tools/call", **{f"x-{number}": "y" * 400 for number in range(20)})


async def ask_with_a_field(raw: Raw) -> httpx2.Response:
    return await raw.post("tools/call", x_long="y" * 1_000)


async def ask_deep(raw: Raw) -> httpx2.Response:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % (b"[" * 70 + b"]" * 70)
    return await raw.http.post(raw.url, content=body, headers=raw.fields)


async def ask_wide(raw: Raw) -> httpx2.Response:
    return await raw.post("tools/call", list(range(600)))


async def ask_in_a_long_session(raw: Raw) -> httpx2.Response:
    return await raw.post("tools/call", mcp_session_id="s" * 129)


async def ask_again_in_a_new_session(raw: Raw) -> httpx2.Response:
    # One without streams would be forgotten instead.
    async with raw.call(request_id=1) as stream:
        await stream.rest()
    del raw.fields["mcp-session-id"]
    return await raw.post("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})


REFUSALS: dict[str, tuple[int, Ask, dict[str, Any]]] = {
    "body_bytes": (413, ask_large, {"body_bytes": 4_000}),
    "header_bytes": (431, ask_with_fields, {"header_bytes": 4_000}),
    "header_field_bytes": (431, ask_with_a_field, {"header_field_bytes": 800}),
    "json_depth": (400, ask_deep, {}),
    "json_nodes": (400, ask_wide, {"json_nodes": 500}),
    "session_id_bytes": (400, ask_in_a_long_session, {}),
    "sessions": (503, ask_again_in_a_new_session, {"limits": Limits(sessions=1)}),
}


@pytest.mark.parametrize("limit", REFUSALS)
async def test_what_is_too_much_is_refused_by_the_name_of_the_limit(limit: str) -> None:
    status, ask, settings = REFUSALS[limit]
    upstream = Upstream(answers)
    async with scripted(upstream, **settings) as (raw, behind):
        fields = dict(raw.fields)
        refused = await ask(raw)
        assert refused.status_code == status
        assert refused.json()["error"]["data"]["io.counterfoil"]["field"] == limit
        assert refused.json()["id"] is None
        assert ("retry-after" in refused.headers) is (status in (429, 503))
        assert hits(behind, limit)
        went_upstream = 1 if ask is ask_again_in_a_new_session else 0
        assert upstream.count("POST", "tools/call") == went_upstream
        raw.fields = fields
        assert (await raw.post("tools/call")).json()["result"] == "ok"  # others are unaffected


async def test_a_session_with_too_many_requests_under_way_is_told_to_wait() -> None:
    go_on = anyio.Event()

    async def waits(x: Exchange) -> None:
        await x.start()
        await x.note(1)
        await go_on.wait()
        await x.result()
        await x.end()

    with anyio.fail_after(10):
        async with scripted(Upstream(waits), session_requests=2) as (raw, behind):
            async with raw.call(request_id=1) as one, raw.call(request_id=2) as two:
                for stream in (one, two):
                    await stream.message()
                refused = await raw.post("tools/call", {"n": 3}, request_id=3)
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
                assert hits(behind, "session_requests")
                go_on.set()
                for stream in (one, two):
                    assert (await stream.rest())[-1]["result"] == "done"
            async with raw.call(request_id=4) as stream:
                assert (await stream.rest())[-1]["result"] == "done"


async def test_a_principal_with_too_many_sessions_is_refused_the_next_and_another_is_not() -> None:
    scope = scope_from_header("x-tenant", trusted_proxies=["127.0.0.0/8"], principal="x-user")
    async with serving.serving(Upstream(answers)) as port:
        behind = Behind(f"http://127.0.0.1:{port}/mcp", scope=scope, principal_sessions=2)
        async with serving.serving(behind.gateway) as own, httpx2.AsyncClient(timeout=20) as http:
            mine, other = (Raw(http, f"http://127.0.0.1:{own}") for _ in range(2))
            for raw, user in ((mine, "ann"), (other, "bob")):
                raw.fields |= {"x-tenant": "t", "x-user": user}
            sessions = []
            for _ in range(2):
                await mine.initialize()
                sessions.append(mine.fields.pop("mcp-session-id"))
            refused = await mine.post("initialize", {"protocolVersion": "2025-11-25"})
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert hits(behind, "principal_sessions")
            await other.initialize()
            mine.fields["mcp-session-id"] = sessions[0]
            assert (await mine.post("tools/call")).json()["result"] == "ok"
            await http.delete(mine.url, headers=mine.fields)
            del mine.fields["mcp-session-id"]
            await mine.initialize()


def test_a_session_that_was_silent_for_long_counts_no_more() -> None:
    principals, owner = Principals(2, 900), Scope(principal="ann")
    principals.note(owner, "one", 0.0)
    principals.note(owner, "two", 500.0)
    principals.note(owner, "one", 600.0)
    with pytest.raises(RequestOverLimit):
        principals.check(owner, 1_399.0)
    principals.check(owner, 1_401.0)  # "two" is silent for too long
    principals.note(owner, "three", 1_401.0)
    with pytest.raises(RequestOverLimit):
        principals.check(owner, 1_402.0)
    principals.check(Scope(principal="bob"), 1_402.0)


async def test_a_body_that_does_not_come_meets_its_deadline() -> None:
    with anyio.fail_after(10):
        async with scripted(Upstream(answers), body_deadline_s=0.2) as (raw, behind):
            port = int(raw.url.rsplit(":", 1)[1].split("/")[0])
            async with await anyio.connect_tcp("127.0.0.1", port) as socket:
                head = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 9\r\n\r\n{{"
                await socket.send(head.encode())
                assert (await socket.receive()).startswith(b"HTTP/1.1 408")
            assert hits(behind, "body_deadline_s")


# --- answers of an upstream


@pytest.mark.parametrize(
    ("limit", "status"), [("answer_bytes", 200), ("error_bytes", 500)], ids=["answer", "refusal"]
)
async def test_a_whole_answer_that_is_too_large_ends_its_call(limit: str, status: int) -> None:
    async def large(x: Exchange) -> None:
        if x.message["id"] == "big":
            await x.json({"jsonrpc": "2.0", "id": "big", "result": "x" * 5_000}, status)
        else:
            await answers(x)

    async with scripted(Upstream(large), **{limit: 4_000}) as (raw, behind):
        refused = await raw.post("tools/call", request_id="big")
        assert refused.status_code == 502
        assert hits(behind, limit)
        assert (await raw.post("tools/call")).json()["result"] == "ok"


@pytest.mark.parametrize(
    ("limit", "body"),
    [
        ("line_bytes", b"data: " + b"x" * 3_000 + b"\n\n"),
        ("event_bytes", b"data: 12345678\n" * 300 + b"\n"),
        ("event_lines", b"data\n" * 30 + b"\n"),
    ],
)
async def test_an_event_that_is_too_large_ends_its_call_as_indeterminate(limit: str, body: bytes) -> None:
    async def large(x: Exchange) -> None:
        await x.start()
        await x.note(1)
        await x.send(body)
        await x.wait_gone()

    limits = Limits(line_bytes=2_000, event_bytes=4_000, event_lines=350)
    if limit == "event_lines":
        limits = Limits(event_lines=20)
    with anyio.fail_after(10):
        async with scripted(Upstream(large), limits=limits) as (raw, behind), raw.call() as stream:
            error = (await stream.rest())[-1]
            assert (in_band(error)["why"], in_band(error)["executed"]) == ("too-large", "unknown")
            assert hits(behind, limit)


# --- resumes


async def test_a_cursor_that_is_too_long_is_malformed_and_reads_nothing() -> None:
    upstream = Upstream(answers, lambda x: x.start())
    async with scripted(upstream) as (raw, _), raw.get("cf1." + "A" * 125) as refused:
        assert refused.status == 400
        assert "why=malformed" in refused.claim


async def test_beyond_the_holds_a_reconnect_loop_is_asked_to_come_again_at_once() -> None:
    async def on_get(x: Exchange) -> None:
        await x.start()
        await x.wait_gone()

    with anyio.fail_after(20):
        async with scripted(Upstream(on_get=on_get), holds_at_once=1) as (raw, behind):
            others = []
            for _ in range(2):
                other = Raw(raw.http, raw.url.removesuffix("/mcp"))
                await other.initialize()
                others.append(other)
                for _ in range(3):
                    async with other.get() as stream:
                        assert stream.status == 200
            async with anyio.create_task_group() as tasks:

                async def held() -> None:
                    async with others[0].get():
                        pass

                tasks.start_soon(held)
                await anyio.sleep(0.2)  # it is held for 0.5 s
                async with others[1].get() as asked:
                    assert "why=limit, next=retry" in asked.claim
                    assert await asked.rest() == []
                assert hits(behind, "holds_at_once")
                tasks.cancel_scope.cancel()
            async with raw.get() as calm:
                assert "verdict=new" in calm.claim


# --- the head of a request, and the shape of its body


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # hypercorn's keep-alive time is its only deadline
async def test_a_head_that_does_not_come_meets_its_deadline() -> None:
    listener, stop = serving.listen(), anyio.Event()
    port = listener.getsockname()[1]
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:

            async def serve() -> None:
                app = Behind("http://127.0.0.1:9/mcp").gateway
                await serving.serve_app(app, listener, stop, head_deadline_s=0.3)

            tasks.start_soon(serve)
            for sent in (b"", b"GET /mcp HTTP/1.1\r\nhost: a\r\n"):
                async with await anyio.connect_tcp("127.0.0.1", port) as socket:
                    if sent:
                        await socket.send(sent)
                    with pytest.raises(anyio.EndOfStream):
                        await socket.receive()
            async with httpx2.AsyncClient() as http:  # a head that comes is answered, and the next one too
                for _ in range(2):
                    assert (await http.get(f"http://127.0.0.1:{port}/x")).status_code == 404
                    await anyio.sleep(0.4)
            stop.set()


def test_the_shape_of_a_body_is_bounded_and_text_is_no_shape() -> None:
    def check(value: Any, depth: int = 4, nodes: int = 20) -> None:
        check_json(json.dumps(value).encode(), max_depth=depth, max_nodes=nodes)

    check([[[[1]]]])
    with pytest.raises(RequestOverLimit, match="json_depth"):
        check([[[[[1]]]]])
    check({"text": "[[[[[[[[[" + '\\"{{{{' + ",:" * 100})
    check([[1], [2], [3], [4], [5]])  # five of them, none deep
    with pytest.raises(RequestOverLimit, match="json_nodes"):
        check(list(range(21)))
    with pytest.raises(RequestOverLimit, match="json_nodes"):
        check({str(number): number for number in range(11)})
    for junk in (b'["', b'"\\', b"\xff{", b"]]]]]", b"", b'{"a":"' + b"[" * 50):
        check_json(junk, max_depth=4, max_nodes=20)
