"""The gateway as its users meet it: a real SDK client, a link that breaks, the gateway, a real SDK server."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.serving import listen, serving
from counterfoil.limits import Limits
from counterfoil.model.verdicts import Gap, New, Resumed, ResumeVerdict
from counterfoil.native import KeyRing
from counterfoil.programs.demo.columns import Plan, count_lines, run_column
from counterfoil.programs.demo.server import build_app
from counterfoil.protocol.inband_error import DATA_KEY
from counterfoil.stores.replay.store import ReplayStore
from counterfoil.testing.cuts import Cut, draw_cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from mcp import Client
from mcp.shared.exceptions import MCPError

pytestmark = [
    pytest.mark.anyio,
    # The SDK's client drops httpx2's generators half read, which trio reports when they are collected.
    pytest.mark.filterwarnings("ignore:.*Async generator:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*async_generator:pytest.PytestUnraisableExceptionWarning"),
]
ORDER = {"call": "one", "steps": 5, "pause_ms": 10}
SLOW = {**ORDER, "pause_ms": 100}
ACCEPT = {"accept": "application/json, text/event-stream"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
KEYS = KeyRing.from_secret(bytes(32), made_s=1)


class Behind:
    """A gateway in front of the demo's server, with everything it said."""

    def __init__(self, upstream: str, **settings: Any) -> None:
        limits = settings.pop("limits", Limits())
        keys = settings.pop("keys", KEYS)
        self.verdicts: list[ResumeVerdict] = []
        self.store = ReplayStore(limits=limits, keys=keys)
        self.gateway = Gateway(
            upstream=upstream,
            store=self.store,
            limits=limits,
            settings=GatewaySettings(**{"retry_ms": 50, **settings}),
            on_verdict=self.verdicts.append,
        )

    @property
    def resumed(self) -> list[ResumeVerdict]:
        return [verdict for verdict in self.verdicts if not isinstance(verdict, New)]


@asynccontextmanager
async def gateway_to_server(effects: Path, **settings: Any) -> AsyncIterator[tuple[int, Behind]]:
    server = {name: settings.pop(name) for name in ("json_response",) if name in settings}
    async with serving(build_app(effects, **server)) as port:
        behind = Behind(f"http://127.0.0.1:{port}/mcp", **settings)
        async with serving(behind.gateway) as own:
            yield own, behind


async def ignore(_progress: float, _total: float | None, _message: str | None) -> None:
    pass


def is_call(exchange: Exchange) -> bool:
    return exchange.method == "POST" and b'"tools/call"' in exchange.body


def told(error: MCPError) -> dict[str, Any]:
    data: Any = error.error.data
    return dict(data[DATA_KEY])


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_of_every_revision_gets_its_answer(tmp_path: Path, mode: str) -> None:
    with anyio.fail_after(20):
        async with (
            gateway_to_server(tmp_path / "e") as (port, _),
            Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client,
        ):
            result = await client.call_tool("order", ORDER, progress_callback=ignore)
    assert result.content[0].text == "receipt for one"  # type: ignore[union-attr]


async def test_calls_cut_behind_their_first_id_end_in_their_own_result_with_one_effect(
    tmp_path: Path, scaled: Any
) -> None:
    effects = tmp_path / "e"
    plan = Plan(seed=7, sessions=4, calls=scaled(6, 50), steps=5, pause_ms=15)
    async with gateway_to_server(effects) as (port, behind):
        column = await run_column("ours", port, effects, plan, lambda _record: None)
    calls = plan.sessions * plan.calls
    assert len(column.cuts) == calls
    assert column.right_at_once == calls
    assert column.count_effects(1) == calls
    assert column.broken_progress == 0
    assert behind.resumed
    assert all(isinstance(verdict, Resumed) for verdict in behind.resumed)


async def test_a_slow_call_to_a_json_upstream_becomes_resumable(tmp_path: Path) -> None:
    effects = tmp_path / "e"

    def plan(exchange: Exchange) -> Cut | None:
        return Cut("after-frame", "rst", frames=1) if is_call(exchange) else None

    with anyio.fail_after(20):
        async with (
            gateway_to_server(effects, json_response=True, prime_after_ms=20) as (port, behind),
            open_link(port, plan=plan) as link,
            Client(f"{link.url}/mcp", mode="legacy") as client,
        ):
            result = await client.call_tool("order", {**ORDER, "pause_ms": 60})
    assert result.content[0].text == "receipt for one"  # type: ignore[union-attr]
    assert len(link.cuts) == 1
    assert len(behind.resumed) == 1
    assert count_lines(effects) == {"one": 1}


async def test_a_fast_json_answer_passes_as_it_is_and_leaves_no_stream(tmp_path: Path) -> None:
    async with (
        gateway_to_server(tmp_path / "e", json_response=True, prime_after_ms=2_000) as (port, behind),
        Client(f"http://127.0.0.1:{port}/mcp", mode="legacy") as client,
    ):
        result = await client.call_tool("order", {**ORDER, "pause_ms": 1})
        assert result.content[0].text == "receipt for one"  # type: ignore[union-attr]
        assert behind.store.statistics().appended == 0


@pytest.mark.parametrize("same_keys", [True, False])
async def test_a_gateway_that_never_held_the_stream_refuses_with_the_callers_own_id(
    tmp_path: Path, same_keys: bool
) -> None:
    effects = tmp_path / "e"
    async with gateway_to_server(effects) as (port, behind):
        keys = KEYS if same_keys else KeyRing.random()
        upstream = behind.gateway
        other = Behind(_upstream_of(upstream), keys=keys)
        async with serving(other.gateway) as second:

            async def route(exchange: Exchange) -> int:
                return second if "last-event-id" in exchange.headers else port

            def plan(exchange: Exchange) -> Cut | None:
                return draw_cut(random.Random(3), frames=1) if is_call(exchange) else None

            async with (
                open_link(port, plan=plan, route=route) as link,
                Client(f"{link.url}/mcp", mode="legacy") as client,
            ):
                with pytest.raises(MCPError) as refused, anyio.fail_after(3):
                    await client.call_tool("order", {**ORDER, "pause_ms": 40}, progress_callback=ignore)
                facts = told(refused.value)
                assert facts["verdict"] == "unverifiable"
                assert facts["why"] == ("unknown-stream" if same_keys else "key")
                assert facts["executed"] == "unknown"
                resumes = [x for x in link.exchanges if "last-event-id" in x.headers]
                assert len(resumes) == 1
                assert (await client.call_tool("order", {**ORDER, "call": "two"})).content
    assert count_lines(effects) == {"one": 1, "two": 1}


async def test_after_a_restart_without_its_keys_the_call_ends_typed(tmp_path: Path) -> None:
    async with serving(build_app(tmp_path / "e")) as server:
        upstream = f"http://127.0.0.1:{server}/mcp"
        first, second = (Behind(upstream, keys=KeyRing.random()).gateway for _ in range(2))
        async with (
            serving(second) as after,
            serving(first) as before,
            open_link(before) as link,
            Client(f"{link.url}/mcp", mode="legacy") as client,
        ):

            async def restart(_exchange: Exchange) -> int:
                return after

            async def cut(*_: object) -> None:
                link.route = restart  # its first note has arrived, and it runs on for a while
                await link.cut_all()

            with pytest.raises(MCPError) as refused, anyio.fail_after(10):
                await client.call_tool("order", SLOW, progress_callback=cut)
            assert (told(refused.value)["why"], told(refused.value)["executed"]) == ("key", "unknown")


async def test_beyond_the_window_the_answer_comes_and_the_loss_is_told(tmp_path: Path) -> None:
    async with gateway_to_server(tmp_path / "e", limits=Limits(window_events=50)) as (port, behind):

        async def route(exchange: Exchange) -> int:
            if "last-event-id" in exchange.headers:
                await _until(lambda: behind.store.statistics().ended_streams > 1)  # initialize, and the call
            return port

        def plan(exchange: Exchange) -> Cut | None:
            return Cut("after-frame", "fin", frames=2) if is_call(exchange) else None

        notes: list[int] = []

        async def note(progress: float, _total: float | None, _message: str | None) -> None:
            notes.append(int(progress))

        async with (
            open_link(port, plan=plan, route=route) as link,
            Client(f"{link.url}/mcp", mode="legacy") as client,
        ):
            with anyio.fail_after(20):
                arguments = {"call": "many", "numbers": 200}
                result = await client.call_tool("count_up", arguments, progress_callback=note)
        assert result.content[0].text == "counted to 200 for many"  # type: ignore[union-attr]
        (verdict,) = behind.resumed
        assert isinstance(verdict, Gap)
        assert verdict.last == 151
        assert len(notes) <= 1


async def test_an_upstream_that_dies_in_mid_call_ends_it_as_indeterminate(tmp_path: Path) -> None:
    effects = tmp_path / "e"
    async with (
        serving(build_app(effects)) as server,
        open_link(server) as leg,
        serving(Behind(f"{leg.url}/mcp").gateway) as port,
        Client(f"http://127.0.0.1:{port}/mcp", mode="legacy") as client,
    ):

        async def break_leg(*_: object) -> None:
            await leg.cut_all()  # its first note has arrived, and it runs on for a while

        with pytest.raises(MCPError) as refused, anyio.fail_after(10):
            await client.call_tool("order", SLOW, progress_callback=break_leg)
        assert told(refused.value)["executed"] == "unknown"
    assert count_lines(effects) == {"one": 1}


async def test_a_session_that_was_deleted_is_404_and_reads_nothing(tmp_path: Path) -> None:
    seen: list[Exchange] = []

    def plan(exchange: Exchange) -> None:
        seen.append(exchange)

    async with gateway_to_server(tmp_path / "e") as (port, behind), open_link(port, plan=plan) as link:
        async with Client(f"{link.url}/mcp", mode="legacy") as client:
            await client.call_tool("order", ORDER, progress_callback=ignore)
        session = seen[-1].headers["mcp-session-id"]
        assert behind.store.statistics().ended_sessions == 1
        async with httpx2.AsyncClient() as raw:
            fields = {**ACCEPT, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
            answer = await raw.get(f"{link.url}/mcp", headers={**fields, "last-event-id": "cf1.x"})
            assert answer.status_code == 404
            assert "stream-continuity" not in answer.headers


async def test_cursors_that_are_foreign_or_forged_read_zero_bytes(tmp_path: Path) -> None:
    async with gateway_to_server(tmp_path / "e") as (port, _behind):
        url = f"http://127.0.0.1:{port}/mcp"
        ids: list[str] = []

        def plan(exchange: Exchange) -> Cut | None:
            if "last-event-id" in exchange.headers:
                ids.append(exchange.headers["last-event-id"])
            return draw_cut(random.Random(1), frames=1) if is_call(exchange) else None

        async with open_link(port, plan=plan) as link, Client(f"{link.url}/mcp", mode="legacy") as victim:
            await victim.call_tool("order", ORDER, progress_callback=ignore)
            (cursor,) = ids
            async with Client(url, mode="legacy") as _thief, httpx2.AsyncClient() as raw:
                other = await _open_session(raw, url)
                prefix, sequence, digest = cursor.rsplit(".", 2)
                flipped = prefix[:-1] + ("A" if prefix[-1] != "A" else "B")
                for forged in (cursor, f"{flipped}.{sequence}.{digest}"):
                    answer = await raw.get(url, headers={**other, "last-event-id": forged})
                    assert answer.status_code == 200
                    assert "verdict=forged" in answer.headers["stream-continuity"]
                    assert "epoch" not in answer.headers["stream-continuity"]
                    assert "receipt" not in answer.text
                    assert "étape" not in answer.text


async def test_an_upstream_that_is_down_is_told_at_once_and_as_not_applied() -> None:
    listener = listen()
    gateway = Gateway(upstream=f"http://127.0.0.1:{listener.getsockname()[1]}/mcp")
    listener.close()
    async with serving(gateway) as port, httpx2.AsyncClient() as client:
        answer = await client.post(f"http://127.0.0.1:{port}", json=PING)
    assert answer.status_code == 502
    assert "not applied" in answer.json()["error"]["message"]


async def _open_session(raw: httpx2.AsyncClient, url: str) -> dict[str, str]:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        },
    }
    answer = await raw.post(url, json=hello, headers=ACCEPT)
    session = answer.headers["mcp-session-id"]
    return {**ACCEPT, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}


async def _until(holds: Any) -> None:
    for _ in range(1_000):
        if holds():
            return
        await anyio.sleep(0.01)


def _upstream_of(gateway: Gateway) -> str:
    url: str = gateway._routes._routes[0].upstream._url  # type: ignore[union-attr]
    return url
