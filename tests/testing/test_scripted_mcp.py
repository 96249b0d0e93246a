"""A scripted session answers by the specification where the test scripts nothing."""

from __future__ import annotations

import anyio
import httpx2
import pytest
from counterfoil.testing.scripted import open_scripted
from counterfoil.testing.scripted_mcp import ScriptedSession, note, result_of

pytestmark = pytest.mark.anyio


async def test_handshake_calls_and_goodbye() -> None:
    session = ScriptedSession(revision="2025-06-18", session_id="s-9")
    with anyio.fail_after(5):
        async with open_scripted(session) as server, httpx2.AsyncClient() as client:
            hello = await client.post(server.url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize"})
            assert hello.headers["mcp-session-id"] == "s-9"
            assert hello.json()["result"]["protocolVersion"] == "2025-06-18"
            assert (await client.post(server.url, json=note(1))).status_code == 202
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
            assert (await client.post(server.url, json=call)).json() == result_of(2)
            assert (await client.get(server.url)).status_code == 405
            assert (await client.delete(server.url)).status_code == 200
    assert (session.calls, session.posted, session.ended) == ([call], [note(1)], 1)
