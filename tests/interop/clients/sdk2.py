"""The client of the official Python SDK, major 2, held to the handshake of the 2025 revisions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp.types as types
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from plan import Hearing, main


class Session:
    def __init__(self, client: ClientSession) -> None:
        self._client = client

    async def call(
        self, tool: str, arguments: dict[str, Any], timeout_s: float, on_progress: Any
    ) -> dict[str, Any]:
        try:
            result = await self._client.call_tool(
                tool, arguments, read_timeout_seconds=timeout_s, progress_callback=on_progress
            )
        except MCPError as error:
            return {"outcome": "error", "error": error.error.model_dump(mode="json")}
        text = result.content[0].text
        if result.is_error:
            return {"outcome": "error", "error": {"code": None, "message": text, "data": None}}
        return {"outcome": "result", "text": text}


@asynccontextmanager
async def open_session(url: str, hearing: Hearing) -> AsyncIterator[Session]:
    async def elicit(_context: Any, parameters: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"text": f"asked {parameters.message}"})

    async def log(parameters: types.LoggingMessageNotificationParams) -> None:
        hearing.note(str(parameters.data))

    async def hear(message: Any) -> None:
        if isinstance(message, Exception):
            hearing.strays.append(repr(message))

    async with (
        create_mcp_http_client(headers=hearing.headers) as http,
        streamable_http_client(url, http_client=http) as (read, write),
        ClientSession(
            read, write, elicitation_callback=elicit, logging_callback=log, message_handler=hear
        ) as client,
    ):
        agreed = await client.initialize()
        assert agreed.protocol_version == "2025-11-25", agreed.protocol_version
        await client.list_tools()
        yield Session(client)


if __name__ == "__main__":
    main(open_session)
