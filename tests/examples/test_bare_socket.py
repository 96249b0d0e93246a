"""The example of a bare socket does what it says: a cut call is resumed, and its answer comes once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.serving import serving
from counterfoil.limits import Limits
from counterfoil.native import KeyRing
from counterfoil.programs.demo.columns import count_lines
from counterfoil.programs.demo.server import build_app
from counterfoil.stores.replay.store import ReplayStore
from counterfoil.testing.cuts import Cut
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.link import open_link

pytestmark = pytest.mark.anyio
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "bare_socket.py"


async def test_the_example_resumes_a_call_that_was_cut_twice(tmp_path: Path) -> None:
    cuts = iter([Cut("after-frame", "rst", frames=2), Cut("in-frame", "fin", frames=1, position=20)])

    def plan(exchange: Exchange) -> Cut | None:
        is_call = b'"tools/call"' in exchange.body or "last-event-id" in exchange.headers
        return next(cuts, None) if is_call else None

    arguments = json.dumps({"call": "one", "steps": 5, "pause_ms": 30})
    with anyio.fail_after(30):
        async with serving(build_app(tmp_path / "e")) as upstream:
            gateway = Gateway(
                upstream=f"http://127.0.0.1:{upstream}/mcp",
                store=ReplayStore(limits=Limits(), keys=KeyRing.from_secret(bytes(32), made_s=1)),
                settings=GatewaySettings(retry_ms=20),
            )
            async with serving(gateway) as port, open_link(port, plan=plan) as link:
                command = [sys.executable, str(EXAMPLE), "127.0.0.1", str(link.port), "order", arguments]
                done = await anyio.run_process(command, stderr=subprocess.PIPE, check=False)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stderr.decode()
    assert len(link.cuts) == 2
    events = [line.split(maxsplit=2) for line in lines if line.startswith("event:")]
    assert [int(number) for _, number, _ in events] == [1, 2, 3, 4, 5]
    assert any(line.startswith("verdict: Resumed") for line in lines)
    assert "receipt for one" in lines[-1]
    assert count_lines(tmp_path / "e") == {"one": 1}
