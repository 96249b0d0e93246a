"""An MCP server for `bench_front`: one tool that sends many notifications of 2 KB, bare or behind the front.

Serves on a free port (`ready PORT`), tells its CPU time at `/cpu`, and ends when its input closes.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import uvicorn
from counterfoil import KeyRing, ReplayStore, resumable_app
from mcp.server import MCPServer
from mcp.server.mcpserver import Context


def make_server() -> MCPServer:
    server = MCPServer("bench")

    @server.tool()
    async def flood(events: int, bytes_each: int, ctx: Context[Any, Any]) -> str:
        """Send `events` notifications as fast as they are taken."""
        text = "x" * bytes_each
        for number in range(events):
            await ctx.report_progress(number, events, text)
        return "flooded"

    return server


class CpuClock:
    """Answers `/cpu`, and passes everything else on."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/cpu":
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(time.process_time()).encode()})


def end_with_stdin() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(kind: str) -> None:
    app: Any = make_server().streamable_http_app()
    if kind == "front":
        app = resumable_app(app, store=ReplayStore(keys=KeyRing.random()))
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        CpuClock(app), log_config=None, access_log=False, ws="none", timeout_keep_alive=600
    )
    threading.Thread(target=end_with_stdin, daemon=True).start()
    print(f"ready {listener.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
