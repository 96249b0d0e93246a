"""The published servers, each with one line more: what `--behind` says stands between them and their clients.

Run by the interpreter of the environment that holds the SDK or FastMCP; `orders.py` has the same tool.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
from pathlib import Path
from typing import Any

import anyio
from counterfoil import KeyRing, ReplayStore, resumable_app
from serving import serve, serve_on
from stock_store import SharedStore

HAS_MAJOR_2 = importlib.util.find_spec("mcp_types") is not None


def make_event_store(kit: str, behind: str) -> Any:
    """Return what is passed as the event store, and None for none."""
    if behind == "our-store":
        from counterfoil import ReplayEventStore

        return ReplayEventStore(ReplayStore(keys=KeyRing.random()))
    if behind == "stock-store":
        if kit == "fastmcp":
            from fastmcp.server.event_store import EventStore

            return EventStore()
        return SharedStore()
    return None


def make_app(kit: str, behind: str, effects: Path) -> Any:
    store = make_event_store(kit, behind)
    retry_ms = 50 if store is not None else None
    if kit == "fastmcp":
        from fastmcp import Context, FastMCP

        server: Any = FastMCP("kits")
        add_tool(server, Context, effects)
        app = server.http_app(event_store=store, retry_interval=retry_ms)
    elif HAS_MAJOR_2:
        from mcp.server.mcpserver import Context, MCPServer

        server = MCPServer("kits")
        add_tool(server, Context, effects)
        app = server.streamable_http_app(event_store=store, retry_interval=retry_ms)
    else:
        from mcp.server.fastmcp import Context, FastMCP

        server = FastMCP("kits", event_store=store, retry_interval=retry_ms)
        add_tool(server, Context, effects)
        app = server.streamable_http_app()
    if behind == "front":
        return resumable_app(app, store=ReplayStore(keys=KeyRing.random()), retry_ms=50)
    return app


def add_tool(server: Any, context: Any, effects: Path) -> None:
    async def order(key: str, steps: int, pause_ms: int, ctx: Any) -> str:
        """One line in the effects file, then `steps` progress notes, then the receipt."""
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{key}\n")
        for step in range(1, steps + 1):
            await anyio.sleep(pause_ms / 1000)
            await ctx.report_progress(step, steps, f"{key} ☂ étape {step}")
        await anyio.sleep(pause_ms / 1000)
        return f"receipt ☂ {key}"

    order.__annotations__["ctx"] = context
    server.tool()(order)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kit", choices=("sdk", "fastmcp"), required=True)
    parser.add_argument("--behind", choices=("nothing", "stock-store", "our-store", "front"), required=True)
    parser.add_argument("--effects", type=Path, required=True)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    app = make_app(arguments.kit, arguments.behind, arguments.effects)
    if arguments.backend == "trio":
        serve_on("trio", app)
    else:
        serve(app)


if __name__ == "__main__":
    sys.exit(main())
