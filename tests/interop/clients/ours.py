"""Our client as the official conformance suite runs it: the scenario in the environment, the URL as argument.

python ours.py BACKEND URL
"""

from __future__ import annotations

import os
import sys
from typing import Any

import anyio
import counterfoil


def fill_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """The answer of a user who accepts every default that a form offers."""
    properties = schema.get("properties", {})
    return {name: one["default"] for name, one in properties.items() if "default" in one}


async def elicit(params: Any) -> dict[str, Any]:
    return {"action": "accept", "content": fill_defaults(params.get("requestedSchema", {}))}


async def initialize(connection: counterfoil.Connection) -> None:
    await connection.request("tools/list")


async def call_tools(connection: counterfoil.Connection) -> None:
    tools = (await connection.request("tools/list"))["tools"]
    for tool in tools:
        arguments = {"a": 5, "b": 3} if tool["name"] == "add_numbers" else {}
        await connection.request("tools/call", {"name": tool["name"], "arguments": arguments})


SCENARIOS = {
    "initialize": initialize,
    "tools_call": call_tools,
    "elicitation-sep1034-client-defaults": call_tools,
    "sse-retry": call_tools,
}


async def main(url: str) -> None:
    run = SCENARIOS[os.environ["MCP_CONFORMANCE_SCENARIO"]]
    capabilities = {"elicitation": {"form": {"applyDefaults": True}, "applyDefaults": True}}
    answer = {"elicitation/create": elicit}
    async with counterfoil.connect(url, answer=answer, capabilities=capabilities) as connection:
        await run(connection)


anyio.run(main, sys.argv[2], backend=sys.argv[1])
