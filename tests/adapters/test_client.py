"""The client as its users meet it: real servers, a link that breaks, and servers that lie by script."""

from __future__ import annotations

import gzip
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from counterfoil.adapters.client.connection import Connection
from counterfoil.adapters.client.inbox import Arrival
from counterfoil.adapters.client.opening import connect
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.serving import serving
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.errors import (
    HandshakeFailed,
    Indeterminate,
    NotApplied,
    RequestFailed,
    SessionOver,
    StreamLost,
)
from counterfoil.limits import Limits
from counterfoil.model.tokens import Why
from counterfoil.model.verdicts import New, Resumed, ResumeVerdict
from counterfoil.native import KeyRing
from counterfoil.programs.demo.columns import count_lines
from counterfoil.programs.demo.server import build_app
from counterfoil.stores.replay.store import ReplayStore
from counterfoil.testing.cuts import Cut, draw_cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from counterfoil.testing.scripted import ScriptedServer, Wire, open_scripted
from counterfoil.testing.scripted_mcp import Play, ScriptedSession, note, result_of

pytestmark = [
    pytest.mark.anyio,
    # The SDK's server leaves such behind when a connection breaks.
    pytest.mark.filterwarnings("ignore:.*Async generator:ResourceWarning"),
]
KEYS = KeyRing.from_secret(bytes(32), made_s=1)
QUICK = ReconnectLimits(failures=4, first_delay_ms=10, longest_delay_ms=50)


def order(call: str, *, steps: int = 4, pause_ms: int = 10) -> dict[str, Any]:
    arguments = {"call": call, "steps": steps, "pause_ms": pause_ms}
    return {"name": "order", "arguments": arguments, "_meta": {"progressToken": call}}


def text_of(result: Any) -> str:
    return str(result["content"][0]["text"])


def is_order(exchange: Exchange) -> bool:
    return exchange.method == "POST" and b'"order"' in exchange.body


async def until(fact: Callable[[], bool]) -> None:
    """Return once something that another task does is true."""
    while not fact():  # noqa: ASYNC110 - what is waited for is no event
        await anyio.sleep(0.01)


@asynccontextmanager
async def behind_gateway(effects: Path, **settings: Any) -> AsyncIterator[int]:
    async with serving(build_app(effects)) as port:
        store = ReplayStore(limits=Limits(), keys=KEYS)
        gateway = Gateway(
            upstream=f"http://127.0.0.1:{port}/mcp",
            store=store,
            settings=GatewaySettings(**{"retry_ms": 20, **settings}),
        )
        async with serving(gateway) as own:
            yield own


class Heard:
    """Everything that a connection delivered, and every verdict."""

    def __init__(self) -> None:
        self.verdicts: list[tuple[str, ResumeVerdict]] = []
        self.arrivals: list[Arrival] = []

    def note_verdict(self, stream: str, verdict: ResumeVerdict) -> None:
        self.verdicts.append((stream, verdict))

    async def listen(self, connection: Connection) -> None:
        async with connection.deliveries() as deliveries:
            async for arrival in deliveries:
                self.arrivals.append(arrival)

    def progress_of(self, call: str) -> list[int]:
        noted = [a.params for a in self.arrivals if a.method == "notifications/progress"]
        return [int(params["progress"]) for params in noted if params["progressToken"] == call]

    def resumed(self) -> list[ResumeVerdict]:
        return [verdict for _, verdict in self.verdicts if not isinstance(verdict, New)]


@asynccontextmanager
async def listening(url: str, **options: Any) -> AsyncIterator[tuple[Connection, Heard]]:
    heard = Heard()
    async with (
        connect(url, on_verdict=heard.note_verdict, **options) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(heard.listen, connection)
        try:
            yield connection, heard
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def scripted(
    play: Play | None = None, play_get: Any = None, **options: Any
) -> AsyncIterator[tuple[Connection, ScriptedSession, ScriptedServer]]:
    names = ("revision", "session_id", "headers")
    session = ScriptedSession(
        play, play_get, **{name: options.pop(name) for name in names if name in options}
    )
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_scripted(session))
        options = {"reconnect": QUICK, "standalone": play_get is not None, **options}
        connection = await stack.enter_async_context(connect(server.url, **options))
        yield connection, session, server


# --- published servers and our gateway


@pytest.mark.parametrize("store", ["none", "example"])
@pytest.mark.parametrize("json_response", [False, True])
async def test_requests_to_the_sdk_server_end_in_their_results(
    tmp_path: Path, store: str, json_response: bool
) -> None:
    with anyio.fail_after(20):
        async with (
            serving(build_app(tmp_path / "e", store=store, json_response=json_response)) as port,
            listening(f"http://127.0.0.1:{port}/mcp") as (connection, heard),
        ):
            assert connection.server.info["name"] == "counterfoil-demo"
            await connection.ping()
            result = await connection.request("tools/call", order("one"))
            assert text_of(result) == "receipt for one"
            with pytest.raises(RequestFailed) as failed:
                await connection.request("nonsense")
            assert failed.value.code == -32601
    assert all(isinstance(verdict, New) for _, verdict in heard.verdicts)
    assert count_lines(tmp_path / "e") == {"one": 1}


async def test_a_revision_without_sessions_is_spoken_as_well(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with (
            serving(build_app(tmp_path / "e")) as port,
            connect(f"http://127.0.0.1:{port}/mcp", revision="2026-07-28") as connection,
        ):
            assert connection.session_id is None
            result = await connection.request("tools/call", order("one"))
            assert text_of(result) == "receipt for one"
            with pytest.raises(NotApplied):
                await connection.notify("notifications/roots/list_changed")


async def test_calls_cut_behind_their_first_id_end_in_their_own_result_with_one_effect(
    tmp_path: Path, scaled: Callable[[int, int], int]
) -> None:
    calls = scaled(6, 150)
    seen: set[bytes] = set()

    def plan(exchange: Exchange) -> Cut | None:
        if not is_order(exchange) or exchange.body in seen:
            return None
        seen.add(exchange.body)
        return draw_cut(random.Random(len(seen)), frames=1, deepest=3)

    with anyio.fail_after(30 + calls):
        async with (
            behind_gateway(tmp_path / "e") as port,
            open_link(port, plan=plan) as link,
            listening(f"{link.url}/mcp") as (connection, heard),
        ):
            texts = {}

            async def call(name: str) -> None:
                texts[name] = text_of(await connection.request("tools/call", order(name, steps=5)))

            async with anyio.create_task_group() as tasks:
                for number in range(calls):
                    tasks.start_soon(call, f"c{number}")
    assert len(link.cuts) == calls
    assert texts == {f"c{number}": f"receipt for c{number}" for number in range(calls)}
    assert count_lines(tmp_path / "e") == dict.fromkeys(texts, 1)
    assert [heard.progress_of(name) for name in texts] == [[1, 2, 3, 4, 5]] * calls
    assert heard.resumed()
    assert all(isinstance(verdict, Resumed) for verdict in heard.resumed())


async def test_a_standalone_stream_that_is_cut_goes_on_without_loss_or_repeat(tmp_path: Path) -> None:
    # Cuts may meet it while it is being opened again, and while the gateway holds it: many are no event's.
    patient = ReconnectLimits(failures=100, first_delay_ms=10, longest_delay_ms=50)
    with anyio.fail_after(40):
        async with (
            behind_gateway(tmp_path / "e") as port,
            open_link(port) as link,
            listening(f"{link.url}/mcp", reconnect=patient) as (connection, heard),
        ):
            for number in range(6):
                await connection.request(
                    "tools/call", {"name": "announce", "arguments": {"text": str(number)}}
                )
                await link.cut_all()
            await until(lambda: len(heard.arrivals) >= 6)
            await anyio.sleep(0.1)
    assert [a.place.position for a in heard.arrivals] == [1, 2, 3, 4, 5, 6]
    assert all(isinstance(verdict, Resumed) for verdict in heard.resumed())


async def test_a_cut_before_the_first_id_is_indeterminate_at_once_and_nothing_is_sent_again(
    tmp_path: Path,
) -> None:
    def plan(exchange: Exchange) -> Cut | None:
        return Cut("before-head") if is_order(exchange) else None

    with anyio.fail_after(20):
        async with (
            serving(build_app(tmp_path / "e")) as port,
            open_link(port, plan=plan) as link,
            connect(f"{link.url}/mcp") as connection,
        ):
            with pytest.raises(Indeterminate) as doubt:
                await connection.request("tools/call", order("one"))
            assert doubt.value.evidence.why is Why.NO_CURSOR  # type: ignore[attr-defined]
    assert sum(map(is_order, link.exchanges)) == 1


# --- the server's requests


async def test_a_question_of_the_server_gets_one_reply(tmp_path: Path) -> None:
    asked: list[Any] = []

    async def elicit(params: Any) -> dict[str, Any]:
        asked.append(params)
        return {"action": "accept", "content": {"text": "blue"}}

    question = {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": {"message": "which?"}}

    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await wire.stream()
        await wire.event(question)
        await wire.event(question)  # the same once more, as a replay would
        await until(lambda: len(session.posted) > 1)
        await wire.event(result_of(message["id"]))
        await wire.end()

    with anyio.fail_after(10):
        async with scripted(play, answer={"elicitation/create": elicit}) as (connection, session, _):
            await connection.request("tools/call", {"name": "ask"})
            await anyio.sleep(0.05)
    assert len(asked) == 1
    replies = [message for message in session.posted if message.get("id") == 7]
    assert replies[0]["result"] == {"action": "accept", "content": {"text": "blue"}}
    assert all(reply == replies[0] for reply in replies)


async def test_an_unknown_question_and_a_failing_answerer_are_errors_for_the_server() -> None:
    async def fail(_params: Any) -> Any:
        raise ValueError("a secret")

    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await wire.stream()
        for number, method in enumerate(("roots/list", "sampling/createMessage", "ping")):
            await wire.event({"jsonrpc": "2.0", "id": f"q{number}", "method": method})
        await until(lambda: len(session.posted) >= 4)
        await wire.event(result_of(message["id"]))
        await wire.end()

    with anyio.fail_after(10):
        async with scripted(play, answer={"sampling/createMessage": fail}) as (connection, session, _):
            await connection.request("tools/call", {})
    replies = {message["id"]: message for message in session.posted if "id" in message}
    assert replies["q0"]["error"]["code"] == -32601
    assert replies["q1"]["error"] == {"code": -32603, "message": "the client failed: ValueError"}
    assert replies["q2"]["result"] == {}


# --- how requests end


async def test_a_server_that_is_not_there_is_told_at_the_handshake() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    await listener.aclose()
    with pytest.raises(HandshakeFailed) as failed:
        async with connect(f"http://127.0.0.1:{port}/mcp"):
            pass
    assert isinstance(failed.value.__cause__, NotApplied)


async def test_silence_ends_at_the_deadline() -> None:
    async def play(_exchange: Exchange, wire: Wire, _message: Any) -> None:
        await wire.stream()

    with anyio.fail_after(10):
        async with scripted(play) as (connection, _, _):
            began = anyio.current_time()
            with pytest.raises(Indeterminate) as doubt:
                await connection.request("tools/call", {}, deadline_s=0.3)
            assert 0.25 < anyio.current_time() - began < 1.5
    assert doubt.value.evidence.why is Why.DEADLINE  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (400, {}, NotApplied),
        (401, {}, NotApplied),
        (403, {}, NotApplied),
        (405, {}, NotApplied),
        (429, {}, NotApplied),
        (503, {"retry-after": "1"}, NotApplied),
        (503, {}, Indeterminate),
        (500, {}, Indeterminate),
        (502, {}, Indeterminate),
        (204, {}, Indeterminate),
    ],
)
async def test_a_refused_call_is_not_applied_only_where_the_status_proves_it(
    status: int, headers: dict[str, str], error: type[Exception]
) -> None:
    async def play(_exchange: Exchange, wire: Wire, _message: Any) -> None:
        await wire.refuse(status, headers)

    with anyio.fail_after(10):
        async with scripted(play) as (connection, _, _):
            with pytest.raises(error) as ended:
                await connection.request("tools/call", {})
            assert ended.value.evidence.status == status  # type: ignore[attr-defined]
            assert not connection.is_over


async def test_a_session_that_is_gone_ends_everything_and_later_requests_are_not_sent() -> None:
    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        if message["params"] == {"n": 1}:
            await wire.stream()
        else:
            await wire.refuse(404)

    with anyio.fail_after(10):
        async with scripted(play) as (connection, session, _):
            waiting = await connection.submit("tools/call", {"n": 1})
            with pytest.raises(NotApplied):
                await connection.request("tools/call", {"n": 2})
            with pytest.raises(Indeterminate):
                await waiting
            sent = len(session.calls)
            with pytest.raises(SessionOver):
                await connection.request("tools/call", {"n": 3})
            with pytest.raises(SessionOver):
                await connection.run()
    assert len(session.calls) == sent


async def test_leaving_the_block_settles_what_waits_and_ends_the_session() -> None:
    async def play(_exchange: Exchange, wire: Wire, _message: Any) -> None:
        await wire.stream()

    with anyio.fail_after(10):
        async with scripted(play) as (connection, session, _):
            ticket = await connection.submit("tools/call", {})
            await until(lambda: bool(session.calls))
    assert ticket.outcome == "indeterminate"
    assert session.ended == 1


async def test_a_cancelled_wait_tells_the_server_and_reads_on() -> None:
    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await wire.stream()
        await until(lambda: len(session.posted) >= 2)
        await wire.event(result_of(message["id"]))
        await wire.end()

    with anyio.fail_after(10):
        async with scripted(play) as (connection, session, _):
            ticket = await connection.submit("tools/call", {})
            with anyio.move_on_after(0.1):
                await ticket.wait()
            await until(lambda: ticket.outcome != "pending")
    cancelled = [message for message in session.posted if message["method"] == "notifications/cancelled"]
    assert [message["params"]["requestId"] for message in cancelled] == [ticket.request_id]
    assert ticket.outcome == "completed"


async def test_a_session_can_be_joined_and_is_not_ended() -> None:
    session = ScriptedSession()
    with anyio.fail_after(10):
        async with open_scripted(session) as server:
            async with connect(server.url, session_id="s-1", standalone=False) as connection:
                await connection.ping()
            assert server.exchanges[0].headers["mcp-session-id"] == "s-1"
            assert server.exchanges[0].headers["mcp-protocol-version"] == "2025-11-25"
    assert session.ended == 0


# --- bad input


async def test_a_redirect_to_another_origin_is_not_followed_and_no_credentials_leave() -> None:
    strangers: list[Exchange] = []

    async def stranger(exchange: Exchange, wire: Wire) -> None:
        strangers.append(exchange)
        await wire.refuse(200)

    async with open_scripted(stranger) as other:

        async def play(_exchange: Exchange, wire: Wire, _message: Any) -> None:
            await wire.refuse(307, {"location": other.url})

        with anyio.fail_after(10):
            async with scripted(play, headers={}) as (connection, _, _):
                with pytest.raises(Indeterminate) as doubt:
                    await connection.request("tools/call", {})
    assert strangers == []
    assert doubt.value.evidence.status == 307  # type: ignore[attr-defined]


async def test_a_redirect_on_the_same_origin_is_followed_with_method_and_body() -> None:
    session = ScriptedSession()

    async def script(exchange: Exchange, wire: Wire) -> None:
        if exchange.path == "/mcp":
            await wire.refuse(307, {"location": "/mcp/"})
        else:
            await session(exchange, wire)

    with anyio.fail_after(10):
        async with open_scripted(script) as server, connect(server.url, standalone=False) as connection:
            assert text_of(await connection.request("tools/call", {})) == "done"


async def test_a_compressed_bomb_is_not_opened() -> None:
    bomb = gzip.compress(bytes(64 << 20))

    async def play(_exchange: Exchange, wire: Wire, _message: Any) -> None:
        fields = {"content-type": "application/json", "content-encoding": "gzip"}
        await wire.head(200, {**fields, "content-length": str(len(bomb))})
        await wire.raw(bomb)

    with anyio.fail_after(10):
        async with scripted(play) as (connection, _, _):
            with pytest.raises(Indeterminate) as doubt:
                await connection.request("tools/call", {})
    assert doubt.value.evidence.why is Why.STATUS  # type: ignore[attr-defined]


async def test_an_endless_line_ends_the_call_within_its_bound() -> None:
    sent = 0

    async def play(_exchange: Exchange, wire: Wire, _message: Any) -> None:
        nonlocal sent
        await wire.stream()
        await wire.raw(b"data: ")
        while True:
            await wire.raw(bytes(65_536).replace(b"\0", b"x"))
            sent += 65_536

    limits = Limits(line_bytes=1 << 20, event_bytes=1 << 20)
    with anyio.fail_after(20):
        async with scripted(play, limits=limits) as (connection, _, _):
            with pytest.raises(Indeterminate):
                await connection.request("tools/call", {})
    assert sent < 64 << 20


async def test_a_wrong_content_type_is_no_answer() -> None:
    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await wire.json(result_of(message["id"]), headers={"content-type": "text/html"})

    with anyio.fail_after(10):
        async with scripted(play) as (connection, _, _):
            with pytest.raises(Indeterminate) as doubt:
                await connection.request("tools/call", {})
    assert doubt.value.evidence.why is Why.STATUS  # type: ignore[attr-defined]


async def test_a_tight_loop_of_closed_answers_ends_by_its_budget() -> None:
    """B11, B123: a 200 and an end for ever, with `retry: 0`."""

    async def play(_exchange: Exchange, wire: Wire, _message: Any) -> None:
        await wire.stream()
        await wire.event(event_id="p-0")
        await wire.cut()

    async def play_get(_exchange: Exchange, wire: Wire) -> None:
        await wire.stream()
        await wire.raw(b"retry: 0\n: nothing\n\n")
        await wire.cut()

    with anyio.fail_after(10):
        async with scripted(play, play_get, standalone=False) as (connection, session, _):
            with pytest.raises(Indeterminate) as doubt:
                await connection.request("tools/call", {})
    assert doubt.value.evidence.why is Why.BUDGET  # type: ignore[attr-defined]
    assert len(session.gets) == QUICK.failures


async def test_events_that_nobody_iterates_hold_no_answer_back() -> None:
    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await wire.stream()
        for number in range(3_000):
            await wire.event(note(number))
        await wire.event(result_of(message["id"]))
        await wire.end()

    with anyio.fail_after(20):
        async with scripted(play) as (connection, _, _):
            assert text_of(await connection.request("tools/call", {})) == "done"


async def test_a_slow_reader_holds_the_server_back_instead_of_memory() -> None:
    written = 0

    async def play_get(_exchange: Exchange, wire: Wire) -> None:
        nonlocal written
        await wire.stream()
        for number in range(20_000):
            await wire.event({**note(number), "params": {"data": "x" * 2_000}}, event_id=f"e{number}")
            written += 1
        await wire.end()

    with anyio.fail_after(20):
        async with scripted(None, play_get) as (connection, _, _), connection.deliveries() as deliveries:
            first = await anext(deliveries)
            assert first.place.position == 1
            await anyio.sleep(0.5)
            assert written < 10_000


async def test_a_server_without_sessions_that_knows_no_get_is_still_a_server() -> None:
    """A 404 where there is no session says that nothing is served there, not that a session is over."""

    async def play_get(_exchange: Exchange, wire: Wire) -> None:
        await wire.refuse(404)

    with anyio.fail_after(10):
        async with scripted(None, play_get, session_id=None) as (connection, session, _):
            await until(lambda: bool(session.gets))
            await anyio.sleep(0.05)
            assert text_of(await connection.request("tools/call", {})) == "done"


async def test_a_standalone_stream_that_is_given_up_is_told_and_calls_go_on() -> None:
    """B21: nothing sent later has its answer go nowhere, and nobody waits for events that cannot come."""

    async def play_get(_exchange: Exchange, wire: Wire) -> None:
        await wire.stream()
        await wire.event(event_id="p")
        await wire.cut()

    with anyio.fail_after(10):
        async with scripted(None, play_get) as (connection, session, _):
            with pytest.raises(StreamLost) as lost:
                await connection.run()
            assert connection.waiting_streams == (lost.value.stream,)
            assert text_of(await connection.request("tools/call", {})) == "done"
            asked = len(session.gets)
            connection.accept(lost.value.stream)
            await until(lambda: len(session.gets) > asked)


async def test_a_url_that_is_none_and_a_client_that_is_closed_fail_at_the_handshake() -> None:
    closed = httpx2.AsyncClient()
    await closed.aclose()
    for url, client in (
        ("http://[::bad/mcp", None),
        ("ftp://127.0.0.1/mcp", None),
        ("http://127.0.0.1:1/mcp", closed),
    ):
        with anyio.fail_after(5), pytest.raises(HandshakeFailed) as failed:
            async with connect(url, client=client):
                pass
        assert isinstance(failed.value.__cause__, NotApplied)


async def test_a_users_own_client_sends_its_credentials_and_stays_open() -> None:
    session = ScriptedSession()
    with anyio.fail_after(10):
        async with open_scripted(session) as server, httpx2.AsyncClient(auth=("alice", "pass")) as client:
            async with connect(server.url, client=client, standalone=False) as connection:
                await connection.ping()
            assert all("authorization" in exchange.headers for exchange in server.exchanges)
            assert not client.is_closed
