"""Our client against TypeScript's published `server-everything`, cut anywhere: no call gets another's answer.

Its store replays to one stream what belongs to every stream of the session, under random ids, and sends
nothing live behind a replay: the client has to tell by itself what is its own, and end by its deadline.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from counterfoil.adapters.client.connection import Connection
from counterfoil.adapters.client.opening import connect
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.errors import Indeterminate, NotApplied
from counterfoil.testing.link import open_link
from interop.environments import PACKAGES, find_node
from interop.plans import CutAnywhere

pytestmark = pytest.mark.anyio
QUICK = ReconnectLimits(failures=5, first_delay_ms=10, longest_delay_ms=50)
SESSIONS = 3
CALLS = 2


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def everything_server() -> Iterator[int]:
    program = PACKAGES / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    port = free_port()
    command = [str(find_node()), str(program), "streamableHttp"]
    environment = {**os.environ, "PORT": str(port)}
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 30
            while not is_listening(port):
                assert server.poll() is None, "the server ended before it listened"
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield port
        finally:
            server.kill()
            server.wait()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with everything_server() as found:
        yield found


async def ending_of(connection: Connection, number: int, progress: bool) -> str:
    # Its length is what tells one call's answer from another's.
    seconds = 0.04 + number / 1_000_000
    params: dict[str, Any] = {
        "name": "trigger-long-running-operation",
        "arguments": {"duration": seconds, "steps": 4},
    }
    if progress:
        params["_meta"] = {"progressToken": number}
    try:
        result = await connection.request("tools/call", params, deadline_s=2)
    except NotApplied:
        return "not_applied"
    except Indeterminate as doubt:
        return f"indeterminate/{doubt.evidence.why}"  # type: ignore[attr-defined]
    right = f"Long running operation completed. Duration: {seconds} seconds, Steps: 4."
    return "right" if result["content"][0]["text"] == right else "another's"


async def test_every_cut_call_ends_and_none_with_anothers_answer(
    port: int, scaled: Callable[[int, int], int]
) -> None:
    plans = scaled(9, 300)
    endings: dict[int, str] = {}
    progress: Counter[tuple[int, int]] = Counter()

    async def run_plans(url: str, session: int) -> None:
        for seed in range(session, plans, SESSIONS):
            async with (
                connect(url, reconnect=QUICK, judge_within_s=0.3) as connection,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(count_progress, connection)
                async with anyio.create_task_group() as calls:
                    for number in range(seed * CALLS, seed * CALLS + CALLS):
                        calls.start_soon(note, connection, number)
                tasks.cancel_scope.cancel()

    async def count_progress(connection: Connection) -> None:
        async with connection.deliveries() as deliveries:
            async for arrival in deliveries:
                if arrival.method == "notifications/progress":
                    progress[arrival.params["progressToken"], arrival.params["progress"]] += 1

    async def note(connection: Connection, number: int) -> None:
        endings[number] = await ending_of(connection, number, progress=True)

    with anyio.fail_after(60 + 3 * plans):
        async with open_link(port, plan=CutAnywhere(plans)) as link, anyio.create_task_group() as tasks:
            for session in range(SESSIONS):
                tasks.start_soon(run_plans, f"{link.url}/mcp", session)
    assert len(endings) == CALLS * plans
    assert len(link.cuts) >= len(endings) // 2
    assert "another's" not in endings.values()
    assert "right" in endings.values()
    assert all(ending == "right" or ending.startswith("indeterminate/") for ending in endings.values())
    # A note is delivered once, whatever the store repeats.
    assert max(progress.values(), default=0) <= 1


async def test_an_uncut_session_uses_calls_questions_and_the_standalone_stream(port: int) -> None:
    asked: list[str] = []

    async def elicit(params: Any) -> Any:
        asked.append(params["message"])
        return {"action": "decline"}

    async def roots(_params: Any) -> Any:
        return {"roots": [{"uri": "file:///tmp", "name": "tmp"}]}

    answer = {"elicitation/create": elicit, "roots/list": roots}
    with anyio.fail_after(30):
        async with connect(f"http://127.0.0.1:{port}/mcp", answer=answer) as connection:
            total = await connection.request(
                "tools/call", {"name": "get-sum", "arguments": {"a": 40, "b": 2}}
            )
            assert "42" in total["content"][0]["text"]
            names = {tool["name"] for tool in (await connection.request("tools/list"))["tools"]}
            assert "trigger-elicitation-request" in names
            declined = await connection.request(
                "tools/call", {"name": "trigger-elicitation-request", "arguments": {}}
            )
            assert "declin" in declined["content"][0]["text"].lower()
    assert len(asked) == 1
