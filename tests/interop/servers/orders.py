"""An MCP server on the official SDK for tests: progress, one countable effect per call, questions, notices.

Runs as a child process of a test (`serving.py`).
"""

from __future__ import annotations

import argparse
import logging
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import EmptyResult, SetLevelRequestParams
from pydantic import BaseModel
from serving import serve
from stock_store import SharedStore


class Answer(BaseModel):
    text: str


def build_server(effects: Path) -> MCPServer:
    server = MCPServer("interop")

    @server.tool()
    async def order(key: str, steps: int, pause_ms: int, ctx: Context[Any, Any]) -> str:
        """One line in the effects file, then `steps` progress notes, then the receipt."""
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{key}\n")
        for step in range(1, steps + 1):
            await anyio.sleep(pause_ms / 1000)
            await ctx.report_progress(step, steps, f"{key} ☂ étape {step}")
        await anyio.sleep(pause_ms / 1000)
        return f"receipt ☂ {key}"

    @server.tool()
    async def order_when_told(key: str, steps: int, pause_ms: int, ctx: Context[Any, Any]) -> str:
        """Like `order`, but the receipt waits for a file that is named like the key, and 0.3 s more."""
        told = effects.with_name(told_name(key))
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{key}\n")
        for step in range(1, steps + 1):
            await anyio.sleep(pause_ms / 1000)
            await ctx.report_progress(step, steps, f"{key} ☂ étape {step}")
        while not told.exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.02)
        await anyio.sleep(0.3)
        return f"receipt ☂ {key}"

    @server.tool()
    async def ask(key: str, steps: int, pause_ms: int, ctx: Context[Any, Any]) -> str:
        """Ask the client one question in the middle of `steps` progress notes."""
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{key}\n")
        text = ""
        for step in range(1, steps + 1):
            await anyio.sleep(pause_ms / 1000)
            await ctx.report_progress(step, steps, f"{key} ☂ étape {step}")
            if step == (steps + 1) // 2:
                answer = await ctx.elicit(message=f"which ☂ {key}?", schema=Answer)
                text = answer.data.text if answer.action == "accept" else answer.action
        return f"receipt ☂ {key}: {text}"

    @server.tool()
    async def announce(key: str, steps: int, pause_ms: int, ctx: Context[Any, Any]) -> str:
        """Send `steps` log messages on the session's standalone stream while the call runs."""
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{key}\n")
        await anyio.sleep(0.4)  # without a store the SDK drops what comes before the stream is open
        for number in range(1, steps + 1):
            await anyio.sleep(pause_ms / 1000)
            await ctx.session.send_log_message(level="info", data=f"{key} ☂ notice {number}")
            await ctx.report_progress(number, steps, f"{key} ☂ étape {number}")
        await anyio.sleep(pause_ms / 1000)
        return f"receipt ☂ {key}"

    @server.tool()
    async def shout(key: str, steps: int, pause_ms: int, ctx: Context[Any, Any]) -> str:
        """Like `announce`, with nothing on the stream of the call but its answer; tells when ten are left."""
        with effects.open("a", encoding="utf-8") as file:
            file.write(f"{key}\n")
        await anyio.sleep(0.4)
        for number in range(1, steps + 1):
            await anyio.sleep(pause_ms / 1000)
            await ctx.session.send_log_message(level="info", data=f"{key} ☂ notice {number}")
            if number == steps - 10:
                with effects.open("a", encoding="utf-8") as file:
                    file.write(f"{key} has ten left\n")
        return f"receipt ☂ {key}"

    @server.tool()
    async def whoami(key: str, pause_ms: int, ctx: Context[Any, Any]) -> str:
        """Answer with the credentials that came with this very call."""
        await anyio.sleep(pause_ms / 1000)
        return f"{key} came with {ctx.request_context.request.headers.get('authorization')}"

    # Without a handler for its level a server does not declare that it logs.
    server._lowlevel_server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)
    return server


def told_name(key: str) -> str:
    """Return the name of the file that a call of this key waits for."""
    return f"told-{sha256(key.encode()).hexdigest()[:32]}"


async def set_level(_context: Any, _parameters: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


def noting_cancellations(app: Any, effects: Path) -> Any:
    """Count the cancellations that come."""

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        async def note() -> Any:
            message = await receive()
            if b'"notifications/cancelled"' in message.get("body", b""):
                with effects.open("a", encoding="utf-8") as file:
                    file.write("notifications/cancelled\n")
            return message

        await app(scope, note, send)

    return noting


def without_get(app: Any, effects: Path) -> Any:
    """Refuse the standalone stream, as the specification allows, and count who asks for it."""

    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await app(scope, receive, send)
            return
        with effects.open("a", encoding="utf-8") as file:
            file.write("GET\n")
        await send({"type": "http.response.start", "status": 405, "headers": [(b"allow", b"POST, DELETE")]})
        await send({"type": "http.response.body"})

    return refusing


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--effects", type=Path, required=True)
    parser.add_argument("--store", choices=("none", "shared"), default="none")
    parser.add_argument("--json", action="store_true", help="answer calls with JSON instead of a stream")
    parser.add_argument("--no-get", action="store_true", help="answer 405 to GET")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    app = build_server(arguments.effects).streamable_http_app(
        event_store=SharedStore() if arguments.store == "shared" else None,
        retry_interval=50 if arguments.store == "shared" else None,
        json_response=arguments.json,
    )
    app = noting_cancellations(app, arguments.effects)
    serve(without_get(app, arguments.effects) if arguments.no_get else app)


if __name__ == "__main__":
    main()
