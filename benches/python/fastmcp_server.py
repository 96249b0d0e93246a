"""The demo's counting server as a FastMCP server with FastMCP's own event store; prints `ready PORT`.

Run by the interpreter of `build/sdk2`; ends with its standard input.
"""

from __future__ import annotations

import logging
from typing import Any

from counterfoil.programs.demo.processes import serve_until_stdin_closes
from fastmcp import Context, FastMCP
from fastmcp.server.event_store import EventStore

#: Its default of 100 is raised, as every peer's cap is.
EVENTS = 2_000


def make_app() -> Any:
    server = FastMCP("bench")

    @server.tool()
    async def count_up(call: str, numbers: int, ctx: Context) -> str:
        """Send `numbers` progress notes at once, then say how many."""
        for number in range(1, numbers + 1):
            await ctx.report_progress(number, numbers)
        return f"counted to {numbers} for {call}"

    return server.http_app(event_store=EventStore(max_events_per_stream=EVENTS), retry_interval=50)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve_until_stdin_closes(make_app())
