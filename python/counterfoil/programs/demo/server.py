"""The demo's MCP server, on the official SDK: a tool that streams progress and leaves one countable effect.

Runs as a child process of the demo and of tests; ends when its standard input closes, so none is left behind.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from counterfoil.programs.demo.example_store import make_example_store
from counterfoil.programs.demo.processes import serve_until_stdin_closes


def build_server(effects: Path) -> MCPServer:
    """Return a server whose `order` tool appends one line per call to `effects`."""
    server = MCPServer("counterfoil-demo")

    @server.tool()
    async def order(call: str, steps: int, pause_ms: int, ctx: Context[Any, Any]) -> str:
        """Place one order: one line in the effects file, `steps` progress notes, then the receipt."""
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{call}\n")
        for step in range(1, steps + 1):
            await anyio.sleep(pause_ms / 1000)
            await ctx.report_progress(step, steps, f"étape {step}/{steps} für {call} ✓")
        return f"receipt for {call}"

    @server.tool()
    async def count_up(call: str, numbers: int, ctx: Context[Any, Any]) -> str:
        """Send `numbers` progress notes at once, then say how many."""
        for number in range(1, numbers + 1):
            await ctx.report_progress(number, numbers)
        return f"counted to {numbers} for {call}"

    @server.tool()
    async def announce(text: str, ctx: Context[Any, Any]) -> str:
        """Send one notification on the session's standalone stream."""
        await ctx.session.send_resource_list_changed()
        return text

    return server


def build_app(effects: Path, *, store: str = "none", json_response: bool = False) -> Any:
    """Return the server's ASGI app: `store` is `none`, or `example` for one like the SDK's example."""
    return build_server(effects).streamable_http_app(
        event_store=make_example_store() if store == "example" else None,
        retry_interval=50 if store == "example" else None,
        json_response=json_response,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="counterfoil demo server")
    parser.add_argument("--effects", type=Path, required=True)
    parser.add_argument("--store", choices=("none", "example"), default="none")
    parser.add_argument("--json-response", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    app = build_app(arguments.effects, store=arguments.store, json_response=arguments.json_response)
    serve_until_stdin_closes(app)
    return 0


if __name__ == "__main__":
    sys.exit(main())
