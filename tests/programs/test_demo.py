"""The demo's parts: a real server that ends with its parent, and a client that loses its call."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from counterfoil.programs.demo.processes import start_child
from counterfoil.testing.cuts import Cut
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
ORDER = {"call": "one", "steps": 5, "pause_ms": 5}

SERVER = "counterfoil.programs.demo.server"


async def ignore(_progress: float, _total: float | None, _message: str | None) -> None:
    pass


def is_running(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def cut_calls(exchange: Exchange) -> Cut | None:
    is_call = exchange.method == "POST" and b'"tools/call"' in exchange.body
    return Cut("in-frame", "rst", frames=2, position=20) if is_call else None


async def test_the_server_places_one_effect_per_call_and_streams_progress(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    notes: list[float] = []

    async def note(progress: float, _total: float | None, _message: str | None) -> None:
        notes.append(progress)

    async with (
        start_child(SERVER, ["--effects", str(effects)]) as server,
        Client(server.url, mode="legacy") as client,
    ):
        result = await client.call_tool("order", ORDER, progress_callback=note)
    assert result.content[0].text == "receipt for one"  # type: ignore[union-attr]
    assert notes == [1, 2, 3, 4, 5]
    assert effects.read_text() == "one\n"
    assert server.process.returncode == 0


async def test_without_a_store_a_cut_call_is_lost_though_its_effect_happened(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    async with (
        start_child(SERVER, ["--effects", str(effects)]) as server,
        open_link(server.port, plan=cut_calls) as link,
        Client(f"{link.url}/mcp", mode="legacy") as client,
    ):
        with pytest.raises(MCPError), anyio.fail_after(10):
            await client.call_tool("order", ORDER, progress_callback=ignore)
    assert len(link.cuts) == 1
    assert effects.read_text() == "one\n"


def test_no_child_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    parent = (
        "import anyio, sys\n"
        "from counterfoil.programs.demo.processes import start_child\n"
        "async def main():\n"
        f"    async with start_child({SERVER!r}, ['--effects', {str(tmp_path / 'e')!r}]) as child:\n"
        "        print(child.process.pid, flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        pid = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
