"""Every example runs as it stands, and a call to it that breaks behind its first id ends in its answer."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from counterfoil import EventId, SseParser
from interop.processes import start_example

EXAMPLES = [
    ("sdk1_server.py", "sdk1"),
    ("sdk2_server.py", "venv"),
    ("fastmcp_server.py", "sdk1"),
    ("fastmcp_server.py", "sdk2"),
]
REVISION = "2025-11-25"


def post(client: httpx2.Client, url: str, **message: Any) -> httpx2.Response:
    return client.post(url, json={"jsonrpc": "2.0", **message})


@pytest.mark.parametrize(("name", "environment"), EXAMPLES)
def test_a_cut_call_to_the_example_resumes(name: str, environment: str) -> None:
    accept = {"accept": "application/json, text/event-stream"}
    with start_example(name, environment) as server, httpx2.Client(headers=accept, timeout=20) as client:
        params = {
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        opened = post(client, server.url, id=0, method="initialize", params=params)
        client.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        client.headers["mcp-protocol-version"] = REVISION
        post(client, server.url, method="notifications/initialized")
        first = read_first_id(client, server.url)
        with client.stream("GET", server.url, headers={"last-event-id": first}) as resumed:
            assert resumed.headers["stream-continuity"].startswith("v=1, verdict=resumed")
            text = ""
            for piece in resumed.iter_text():
                text += piece
                if '"result"' in text:
                    break
        assert text.count("notifications/progress") == 3
        assert "counted to 3" in text


def read_first_id(client: httpx2.Client, url: str) -> str:
    """Call, read no further than the first id, and break the connection."""
    params = {"name": "count", "arguments": {"upto": 3}, "_meta": {"progressToken": 1}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    parser = SseParser()
    with client.stream("POST", url, json=message) as answer:
        for piece in answer.iter_bytes():
            for event in parser.feed(piece):
                assert event.id is not None
                assert EventId.parse(event.id).sequence == 0
                return event.id
    raise AssertionError("no id came")
