"""The official SDK's own session over our transport: cut calls end in their result or a typed error."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.sdk_client import resumable_client
from counterfoil.adapters.serving import serving
from counterfoil.limits import Limits
from counterfoil.model.verdicts import ResumeVerdict
from counterfoil.native import KeyRing
from counterfoil.programs.demo.columns import count_lines
from counterfoil.programs.demo.server import build_app
from counterfoil.protocol.inband_error import CODE, DATA_KEY
from counterfoil.stores.replay.store import ReplayStore
from counterfoil.testing.cuts import Cut, draw_cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link
from counterfoil.testing.scripted import Wire, open_scripted
from counterfoil.testing.scripted_mcp import ScriptedSession
from mcp import ClientSession
from mcp.shared.exceptions import MCPError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:.*Async generator:ResourceWarning"),
]
ROOT = Path(__file__).resolve().parents[2]


def is_order(exchange: Exchange) -> bool:
    return exchange.method == "POST" and b'"order"' in exchange.body


async def test_a_session_over_our_transport_gets_every_cut_answer_once(tmp_path: Path) -> None:
    verdicts: list[ResumeVerdict] = []
    seen: set[bytes] = set()

    def plan(exchange: Exchange) -> Cut | None:
        if not is_order(exchange) or exchange.body in seen:
            return None
        seen.add(exchange.body)
        return draw_cut(random.Random(len(seen)), frames=1, deepest=2)

    with anyio.fail_after(30):
        async with serving(build_app(tmp_path / "e")) as upstream:
            gateway = Gateway(
                upstream=f"http://127.0.0.1:{upstream}/mcp",
                store=ReplayStore(limits=Limits(), keys=KeyRing.from_secret(bytes(32), made_s=1)),
                settings=GatewaySettings(retry_ms=20),
            )
            async with (
                serving(gateway) as port,
                open_link(port, plan=plan) as link,
                resumable_client(
                    f"{link.url}/mcp", on_verdict=lambda _, verdict: verdicts.append(verdict)
                ) as (read, write),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                for number in range(5):
                    noted: list[float] = []

                    async def note(
                        progress: float, _total: float | None, _text: str | None, noted: list[float] = noted
                    ) -> None:
                        noted.append(progress)

                    result = await session.call_tool(
                        "order",
                        {"call": f"c{number}", "steps": 4, "pause_ms": 10},
                        progress_callback=note,
                    )
                    assert result.content[0].text == f"receipt for c{number}"  # type: ignore[union-attr]
                    assert noted == [1, 2, 3, 4]
    assert len(link.cuts) == 5
    assert count_lines(tmp_path / "e") == {f"c{number}": 1 for number in range(5)}
    assert any(type(verdict).__name__ == "Resumed" for verdict in verdicts)


async def test_an_answer_that_cannot_come_is_a_typed_error_at_once() -> None:
    async def play(_exchange: Exchange, wire: Wire, _message: Any) -> None:
        await wire.cut()

    with anyio.fail_after(10):
        async with (
            open_scripted(ScriptedSession(play)) as server,
            resumable_client(server.url) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            with pytest.raises(MCPError) as failed:
                await session.list_tools()
    assert failed.value.error.code == CODE
    assert failed.value.error.data[DATA_KEY]["executed"] == "unknown"


FIRST_MAJOR = """
import sys, anyio
from counterfoil.adapters.sdk_client import resumable_client
from mcp import ClientSession

async def main(url):
    async with resumable_client(url) as (read, write, session_id), ClientSession(read, write) as session:
        await session.initialize()
        result = await session.call_tool("order", {"call": "one", "steps": 3, "pause_ms": 20})
        print(result.content[0].text, session_id() is not None)

anyio.run(main, sys.argv[1])
"""


async def test_the_first_major_of_the_sdk_works_as_well(tmp_path: Path) -> None:
    python = ROOT / "build" / "sdk1" / "bin" / "python"
    if not python.exists():
        pytest.skip("build/sdk1 is missing: run `make sdks`")
    with anyio.fail_after(40):
        async with serving(build_app(tmp_path / "e")) as upstream:
            gateway = Gateway(
                upstream=f"http://127.0.0.1:{upstream}/mcp",
                store=ReplayStore(limits=Limits(), keys=KeyRing.from_secret(bytes(32), made_s=1)),
                settings=GatewaySettings(retry_ms=20),
            )
            plan = iter([Cut("after-frame", "rst", frames=2)])
            async with (
                serving(gateway) as port,
                open_link(port, plan=lambda one: next(plan, None) if is_order(one) else None) as link,
            ):
                done = await anyio.run_process(
                    [str(python), "-W", "ignore", "-c", FIRST_MAJOR, f"{link.url}/mcp"],
                    stderr=subprocess.PIPE,
                    check=False,
                )
    assert done.stdout.decode().strip() == "receipt for one True", done.stderr.decode()
    assert len(link.cuts) == 1
