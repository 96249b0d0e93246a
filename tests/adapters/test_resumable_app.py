"""One line in front of a server of any kit: what is cut is resumed, and everything else is as before.

Runs with the SDK that is installed; `tests/interop/test_environments.py` runs it with the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from counterfoil import EventId, KeyRing, Limits, ReplayStore, Resumed, resumable_app, scope_from_header
from counterfoil.adapters.resumable_app import ResumableApp
from counterfoil.adapters.serving import serving
from counterfoil.errors import ConfigError, GatewayNotRunning
from counterfoil.model.tokens import Why
from counterfoil.protocol.inband_error import read_inband_error
from counterfoil.stores.ledger_sqlite import SqliteLedger
from interop.local import KITS, Client, Gate, Watched, make_app, make_server, run_app, until

pytestmark = pytest.mark.anyio
with_each_kit = pytest.mark.parametrize("kit", KITS)


class Front:
    """A server with the one line in front, and everything that it said."""

    def __init__(self, kit: str, **options: Any) -> None:
        self.gate = Gate()
        self.inner = Watched(make_app(kit, self.gate))
        self.store = ReplayStore(keys=KeyRing.random(), limits=Limits(**options.pop("limits", {})))
        self.verdicts: list[Any] = []
        self.app = resumable_app(
            self.inner, store=self.store, on_verdict=self.verdicts.append, retry_ms=50, **options
        )

    @asynccontextmanager
    async def clients(self, count: int = 1) -> AsyncIterator[list[Client]]:
        async with run_app(self.app) as upstream:
            clients = [Client(upstream) for _ in range(count)]
            for client in clients:
                await client.initialize()
            try:
                yield clients
            finally:
                self.gate.open_all()

    async def cut_call(self, client: Client, request_id: int | str, key: str, **steps: int) -> list[Any]:
        """Call, read the priming event and one more, and lose the connection."""
        async with client.post(client.call(request_id, key, **steps)) as answer:
            events = await answer.take(2)
            await self.gate.of(key)[0].wait()
        return events


def texts(events: list[Any]) -> list[str]:
    said = []
    for event in events:
        message = json.loads(event.data) if event.data else {}
        if "result" in message:
            said.append(message["result"]["content"][0]["text"])
        elif "params" in message:
            said.append(message["params"].get("message") or message["params"]["uri"])
    return said


@with_each_kit
async def test_a_cut_call_resumes_to_its_answer_and_the_hand_over_loses_nothing(kit: str) -> None:
    front = Front(kit)
    async with front.clients() as [client]:
        priming, first = await front.cut_call(client, 1, "a", after=40)
        assert (priming.data, priming.retry) == ("", 50)
        async with client.get(first.id) as answer:
            # Half of the events come while the replay is on its way, and the reader is slow.
            events = await answer.take(2)
            front.gate.of("a")[1].set()
            while not events[-1].data or "result" not in json.loads(events[-1].data):
                await anyio.sleep(0.001)
                events += await answer.take(1)
    assert texts([first, *events]) == [*(f"a {step}" for step in range(1, 43)), "receipt a"]
    sequences = [EventId.parse(event.id).sequence for event in events if event.data]
    assert sequences == list(range(2, 44))
    assert [type(verdict) for verdict in front.verdicts] == [Resumed]


@with_each_kit
async def test_a_consumer_slow_by_300_ms_loses_nothing_that_comes_during_its_replay(
    kit: str, scaled: Callable[[int, int], int]
) -> None:
    """The SDK by itself lost 3 of 12 rounds: what it stores between its replay and the live stream."""

    async def consume(client: Client, key: str, cursor: str) -> None:
        async with client.get(cursor) as answer:
            events = await answer.take(2)
            front.gate.of(key)[1].set()  # the rest of the call comes while its consumer sleeps
            await anyio.sleep(0.3)
            events += await answer.until_answer()
        whole = [f"{key} {step}" for step in range(2, 15)]
        assert texts(events) == [*whole, f"receipt {key}"]
        told.append(key)

    for _ in range(scaled(1, 50)):
        front, told = Front(kit), []
        async with front.clients(scaled(6, 20)) as clients, anyio.create_task_group() as tasks:
            for number, client in enumerate(clients):
                _, first = await front.cut_call(client, 1, f"k{number}", before=4, after=10)
                tasks.start_soon(consume, client, f"k{number}", first.id)
        assert len(told) == len(clients)


@with_each_kit
async def test_sessions_with_equal_request_ids_never_see_each_others_answers(kit: str) -> None:
    front = Front(kit)
    async with front.clients(3) as clients:
        cursors = [(await front.cut_call(client, 1, f"k{n}"))[0].id for n, client in enumerate(clients)]
        front.gate.open_all()
        for number, client in enumerate(clients):
            async with client.get(cursors[number]) as answer:
                events = [event for event in await answer.until_answer() if event.data]
            assert texts(events)[-1] == f"receipt k{number}"
            async with client.get(cursors[number - 1]) as answer:
                (event,) = await answer.until_answer()
            error = read_inband_error(event.data)
            assert error is not None
            assert (error.request_id, error.why) == (1, Why.MAC)


@with_each_kit
async def test_the_standalone_stream_resumes_too(kit: str) -> None:
    front = Front(kit)
    async with front.clients() as [client]:
        async with client.get() as answer, client.post(client.announce(1, 3)) as call:
            notices = [event for event in await answer.take(4) if event.data]
            await call.until_answer()
        async with client.post(client.announce(2, 2)) as call:
            await call.until_answer()
        async with client.get(notices[1].id) as answer:
            missed = [event for event in await answer.take(4) if event.data]
    assert texts(missed) == ["notice:///3", "notice:///1", "notice:///2"]


@with_each_kit
@pytest.mark.filterwarnings("ignore::counterfoil.EphemeralKeyWarning")
async def test_a_server_object_needs_nothing_else(kit: str) -> None:
    gate = Gate()
    app = resumable_app(make_server(kit, gate), limits=Limits(window_events=64))
    assert app.store is None, "made at start, behind every fork"
    async with run_app(app) as upstream:
        client = Client(upstream)
        await client.initialize()
        gate.of("a")[1].set()
        async with client.post(client.call(1, "a")) as answer:
            events = await answer.until_answer()
        assert isinstance(app.store, ReplayStore)
        assert app.store.statistics().appended == 6  # the answer to initialize is one
    assert texts(events)[-1] == "receipt a"


@with_each_kit
async def test_it_is_served_by_the_server_of_either_backend(kit: str) -> None:
    import importlib

    http = importlib.import_module("httpx2" if importlib.util.find_spec("httpx2") else "httpx")
    front = Front(kit)
    headers = {"accept": "application/json, text/event-stream"}
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    async with serving(front.app) as port, http.AsyncClient(headers=headers) as client:
        url = f"http://127.0.0.1:{port}/mcp"
        first = await client.post(
            url, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        )
        client.headers["mcp-session-id"] = first.headers["mcp-session-id"]
        client.headers["mcp-protocol-version"] = "2025-11-25"
        await client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        front.gate.of("a")[1].set()
        message = {"jsonrpc": "2.0", **Client.call(Client, 1, "a")}  # type: ignore[arg-type]
        answer = await client.post(url, json=message)
    assert answer.headers["stream-continuity"].startswith("v=1, verdict=new")
    assert "receipt a" in answer.text


# --- a ledger


OF_USERS = scope_from_header("x-tenant", trusted_proxies=["127.0.0.0/8"], principal="x-user")
ALICE = [(b"x-tenant", b"one"), (b"x-user", b"alice")]


@asynccontextmanager
async def life(front: Front) -> AsyncIterator[Client]:
    """One life of a server with a ledger, and a client of alice's."""
    async with run_app(front.app) as upstream:
        client = Client(upstream)
        client.fields = ALICE
        await client.initialize()
        try:
            yield client
        finally:
            front.gate.open_all()


def claim_of(answer: Any) -> bytes:
    return next(value for name, value in answer.headers if name == b"stream-continuity")


@with_each_kit
async def test_a_key_and_its_answer_outlive_the_server(kit: str, tmp_path: Path) -> None:
    call = Client.call(Client, 1, "a")  # type: ignore[arg-type]
    call["params"]["_meta"]["io.counterfoil/call"] = {"v": 1, "key": "order-17"}
    first = Front(kit, scope=OF_USERS, ledger=tmp_path / "calls.db")
    async with life(first) as client:
        first.gate.of("a")[1].set()
        async with client.post(call) as answer:
            assert b"call=detach" in claim_of(answer)
            assert texts(await answer.until_answer())[-1] == "receipt a"
    second = Front(kit, scope=OF_USERS, ledger=str(tmp_path / "calls.db"))
    async with life(second) as client:
        async with client.post({**call, "id": "again"}) as answer:
            assert b"call=stored" in claim_of(answer)
            (event,) = [event for event in await answer.until_answer() if event.data]
        message = json.loads(event.data)
        assert (message["id"], texts([event])) == ("again", ["receipt a"])
        assert "a" not in second.gate.reached, "it ran again"


@with_each_kit
async def test_an_answer_that_nobody_got_is_adopted_after_a_restart_of_the_server(
    kit: str, tmp_path: Path
) -> None:
    first = Front(kit, scope=OF_USERS, ledger=tmp_path / "calls.db")
    async with life(first) as client:
        await first.cut_call(client, 1, "a")
        ended = first.store.statistics().ended_streams
        first.gate.of("a")[1].set()
        await until(lambda: first.store.statistics().ended_streams > ended)
        await first.cut_call(client, 2, "b")  # and one that the end of the server interrupts
        first.gate.opened.pop("b")
    second = Front(kit, scope=OF_USERS, ledger=tmp_path / "calls.db")
    async with life(second) as client:
        async with client.post(client.call(7, "a")) as answer:
            assert b"why=adopted" in claim_of(answer)
            assert texts(await answer.until_answer()) == ["receipt a"]
        async with client.post(client.call(8, "b")) as answer:
            (event,) = [event for event in await answer.until_answer() if event.data]
        error = read_inband_error(event.data)
        assert error is not None
        assert (error.request_id, error.executed) == (8, "unknown")
        assert not second.gate.reached, "one ran again"


async def test_a_ledger_that_is_open_already_is_left_open(tmp_path: Path) -> None:
    async with SqliteLedger(tmp_path / "calls.db") as ledger:
        async with run_app(make_front(Plain(), ledger=ledger)):
            assert ledger.is_open
        assert ledger.is_open
    own = SqliteLedger(tmp_path / "calls.db", strict_sqlite=False)
    async with run_app(make_front(Plain(), ledger=own)):
        assert own.is_open
    assert not own.is_open


def test_processes_that_share_an_app_share_a_ledger_by_its_file(tmp_path: Path) -> None:
    resumable_app(Plain(), sockets=tmp_path, ledger=tmp_path / "calls.db")
    with pytest.raises(ConfigError, match="the name of its file"):
        resumable_app(Plain(), sockets=tmp_path, ledger=SqliteLedger(tmp_path / "calls.db"))


# --- any ASGI app


class Plain:
    """An ASGI app that is no MCP server, and notes what it is asked."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.state: dict[str, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope["type"])
        if scope["type"] == "lifespan":
            scope["state"]["made"] = "at start"
            while (kind := (await receive())["type"]) == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            self.seen.append(kind)
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["path"] == "/raises":
            raise RuntimeError("a fault of the app")
        else:
            self.state = scope["state"]
            await send({"type": "http.response.start", "status": 204, "headers": [(b"x-own", b"1")]})
            await send({"type": "http.response.body", "body": b""})


def make_front(app: Any, **options: Any) -> ResumableApp:
    return resumable_app(app, store=ReplayStore(keys=KeyRing.random()), **options)


async def test_the_lifespan_is_the_apps_own() -> None:
    plain = Plain()
    async with run_app(make_front(plain)) as upstream:
        assert plain.seen == ["lifespan"]
        client = Client(upstream)
        async with client.get() as answer:
            assert (answer.status, answer.headers) == (204, ((b"x-own", b"1"),))
        assert plain.state == {"made": "at start"}
    assert plain.seen == ["lifespan", "http", "lifespan.shutdown"]


async def test_an_app_that_does_not_start_keeps_the_server_from_starting() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        told.append(message)

    with pytest.raises((RuntimeError, ExceptionGroup)):
        await make_front(app)({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in told] == ["lifespan.startup.failed"]


async def test_an_app_that_raises_is_answered_for_as_a_server_does() -> None:
    async with serving(make_front(Plain())) as port:
        head = await ask(port, b"GET /raises HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500")


async def ask(port: int, request: bytes) -> bytes:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request)
        return await stream.receive()


async def test_what_is_not_http_reaches_the_app() -> None:
    plain, told = Plain(), list[Any]()

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        told.append(message)

    await make_front(plain)({"type": "websocket", "path": "/"}, receive, send)
    assert told == [{"type": "websocket.close", "code": 1000}]


async def test_an_app_that_does_not_run_says_so() -> None:
    with pytest.raises(GatewayNotRunning, match="lifespan"):
        await make_front(Plain())({"type": "http"}, None, None)  # type: ignore[arg-type]


async def test_a_call_whose_app_breaks_off_ends_in_the_typed_error() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("it knows no lifespan")
        message = json.loads((await receive())["body"])
        headers = [(b"content-type", b"text/event-stream"), (b"mcp-session-id", b"s")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        note = b'data: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'
        if message.get("method") == "tools/call":
            await send({"type": "http.response.body", "body": note, "more_body": True})
            raise RuntimeError("in the middle of a call")
        result = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": {}})
        await send({"type": "http.response.body", "body": f"data: {result}\n\n".encode()})

    async with run_app(make_front(app)) as upstream:
        client = Client(upstream)
        async with client.post({"id": 0, "method": "initialize", "params": {}}) as answer:
            await answer.until_answer()
        client.session = "s"
        async with client.post(client.call(5, "a")) as answer:
            events = [event for event in await answer.until_answer() if event.data]
    error = read_inband_error(events[-1].data)
    assert error is not None
    assert (error.request_id, error.executed) == (5, "unknown")


@with_each_kit
async def test_a_configured_scope_keeps_tenants_apart(kit: str) -> None:
    scope = scope_from_header("x-tenant", trusted_proxies=["127.0.0.0/8"])
    front = Front(kit, scope=scope)
    async with run_app(front.app) as upstream:
        client = Client(upstream)
        client.fields = [(b"x-tenant", b"one")]
        await client.initialize()
        _, first = await front.cut_call(client, 1, "a")
        front.gate.open_all()
        client.fields = [(b"x-tenant", b"two")]
        async with client.get(first.id) as answer:
            (event,) = await answer.until_answer()
        error = read_inband_error(event.data)
        assert error is not None
        assert error.why is Why.MAC
        client.fields = []
        async with client.get(first.id) as answer:
            assert answer.status == 401
        client.fields = [(b"x-tenant", b"one")]
        async with client.get(first.id) as answer:
            assert texts(await answer.until_answer())[-1] == "receipt a"


def test_an_option_that_does_not_exist_is_an_error_and_a_given_store_is_the_one_used() -> None:
    with pytest.raises(ConfigError, match="prime_after"):
        resumable_app(Plain(), prime_after=5)
    with pytest.raises(ConfigError, match="beat_s"):
        resumable_app(Plain(), beat_s=-1)
    with pytest.raises(TypeError, match="ASGI app"):
        resumable_app(17)
    store = ReplayStore(keys=KeyRing.random())
    assert resumable_app(Plain(), store=store).store is store


def test_the_one_line_needs_no_sdk_until_it_is_used() -> None:
    code = (
        "import sys; from counterfoil import resumable_app, scope_from_header; resumable_app(print);"
        "print([m for m in ('mcp', 'uvicorn', 'httpx2', 'hypercorn') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
