"""Seeded cuts anywhere in an answer, before its head too: each call ends, and no effect happens twice.

Behind our gateway with its ids, in front of a stock server without them, and of one with an example store.
With keys and a ledger on both sides, each happens exactly once, on both families of revisions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from counterfoil.adapters.client.connection import Connection
from counterfoil.adapters.client.opening import connect
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.arrival.scopes import HeaderSource, Scopes
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.serving import serving
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.errors import Indeterminate, NotApplied
from counterfoil.limits import Limits
from counterfoil.native import KeyRing
from counterfoil.programs.demo.columns import count_lines
from counterfoil.programs.demo.server import build_app
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS, WITHOUT_SESSIONS
from counterfoil.stores.ledger_sqlite import SqliteLedger
from counterfoil.stores.replay.store import ReplayStore
from counterfoil.testing.link import open_link
from interop.plans import CutAnywhere

pytestmark = [
    pytest.mark.anyio,
    # The SDK's server leaves such behind when a connection breaks.
    pytest.mark.filterwarnings("ignore:.*Async generator:ResourceWarning"),
]
QUICK = ReconnectLimits(failures=5, first_delay_ms=10, longest_delay_ms=50)
SESSIONS = 3


@asynccontextmanager
async def server_of(kind: str, effects: Path) -> AsyncIterator[int]:
    async with AsyncExitStack() as stack:
        store = "example" if kind == "example-store" else "none"
        port = await stack.enter_async_context(serving(build_app(effects, store=store)))
        if kind == "gateway":
            gateway = Gateway(
                upstream=f"http://127.0.0.1:{port}/mcp",
                store=ReplayStore(limits=Limits(), keys=KeyRing.from_secret(bytes(32), made_s=1)),
                settings=GatewaySettings(retry_ms=10),
            )
            port = await stack.enter_async_context(serving(gateway))
        yield port


async def ending_of(connection: Connection, call: str, *, key: str | None = None) -> str:
    params = {
        "name": "order",
        "arguments": {"call": call, "steps": 4, "pause_ms": 5},
        "_meta": {"progressToken": call},
    }
    try:
        result = await connection.request("tools/call", params, idempotency_key=key, deadline_s=15)
    except NotApplied:
        return "not_applied"
    except Indeterminate as doubt:
        return f"indeterminate/{doubt.evidence.why}"  # type: ignore[attr-defined]
    return "right" if result["content"][0]["text"] == f"receipt for {call}" else "another's"


@pytest.mark.parametrize("kind", ["gateway", "stock", "example-store"])
async def test_every_cut_call_ends_and_no_effect_is_doubled(
    kind: str, tmp_path: Path, scaled: Callable[[int, int], int], anyio_backend: str
) -> None:
    plans = scaled(8, 300)
    endings: dict[str, str] = {}

    async def run_plans(url: str, session: int) -> None:
        for seed in range(session, plans, SESSIONS):
            # The handshake is not cut, so that what is counted are calls.
            async with (
                connect(url, reconnect=QUICK, judge_within_s=0.3) as connection,
                anyio.create_task_group() as tasks,
            ):
                for number in range(2):
                    tasks.start_soon(note, connection, f"p{seed}-c{number}")

    async def note(connection: Connection, call: str) -> None:
        endings[call] = await ending_of(connection, call)

    effects = tmp_path / "effects"
    with anyio.fail_after(60 + 3 * plans):
        async with (
            server_of(kind, effects) as port,
            open_link(port, plan=CutAnywhere(plans)) as link,
            anyio.create_task_group() as tasks,
        ):
            for session in range(SESSIONS):
                tasks.start_soon(run_plans, f"{link.url}/mcp", session)
    counted = count_lines(effects)
    assert len(endings) == 2 * plans
    assert "another's" not in endings.values()
    assert max(counted.values(), default=0) <= 1
    assert [call for call, ending in endings.items() if ending == "right" and counted.get(call) != 1] == []
    assert [call for call, ending in endings.items() if ending == "not_applied" and call in counted] == []
    assert "right" in endings.values()
    if kind == "gateway":
        # Behind our gateway a call is lost to a cut before its first id, or to cuts without end.
        assert set(endings.values()) <= {"right", "indeterminate/no-cursor", "indeterminate/budget"}


@pytest.mark.parametrize("revision", [LAST_WITH_SESSIONS.revision, WITHOUT_SESSIONS.revision])
async def test_every_cut_call_under_a_key_ends_in_its_own_result_with_one_effect(
    revision: str, tmp_path: Path, scaled: Callable[[int, int], int]
) -> None:
    plans = scaled(8, 300)
    endings: dict[str, str] = {}

    async def run_plans(url: str, session: int) -> None:
        async with SqliteLedger(tmp_path / f"client-{session}.db") as ledger:
            for seed in range(session, plans, SESSIONS):
                async with (
                    connect(
                        url,
                        ledger=ledger,
                        revision=revision,
                        principal="alice",
                        headers={"x-principal": "alice"},
                        reconnect=QUICK,
                        judge_within_s=0.3,
                        standalone=False,
                    ) as connection,
                    anyio.create_task_group() as tasks,
                ):
                    for number in range(2):
                        tasks.start_soon(note, connection, f"p{seed}-c{number}")

    async def note(connection: Connection, call: str) -> None:
        endings[call] = await ending_of(connection, call, key=call)

    effects = tmp_path / "effects"
    with anyio.fail_after(60 + 3 * plans):
        async with (
            SqliteLedger(tmp_path / "gateway.db") as ledger,
            serving(build_app(effects)) as port,
            serving(
                Gateway(
                    upstream=f"http://127.0.0.1:{port}/mcp",
                    store=ReplayStore(limits=Limits(), keys=KeyRing.from_secret(bytes(32), made_s=1)),
                    settings=GatewaySettings(retry_ms=10),
                    scope=Scopes(principal=HeaderSource("x-principal", ["127.0.0.1"])),
                    ledger=ledger,
                )
            ) as gateway,
            open_link(gateway, plan=CutAnywhere(plans)) as link,
            anyio.create_task_group() as tasks,
        ):
            for session in range(SESSIONS):
                tasks.start_soon(run_plans, f"{link.url}/mcp", session)
    assert len(endings) == 2 * plans
    assert count_lines(effects) == dict.fromkeys(endings, 1)
    assert len(link.cuts) >= 2 * plans
    # A plan may cut every answer of a call, and with it the budget; its effect is counted all the same.
    assert set(endings.values()) <= {"right", "indeterminate/budget", "indeterminate/no-cursor"}
    assert list(endings.values()).count("right") >= 0.9 * len(endings)
