"""The client of the official Python SDK, major 1; run by the interpreter of build/sdk1."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import mcp.types as types
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamablehttp_client
from plan import Hearing, main


class Session:
    def __init__(self, client: ClientSession) -> None:
        self._client = client

    async def call(
        self, tool: str, arguments: dict[str, Any], timeout_s: float, on_progress: Any
    ) -> dict[str, Any]:
        try:
            result = await self._client.call_tool(
                tool,
                arguments,
                read_timeout_seconds=timedelta(seconds=timeout_s),
                progress_callback=on_progress,
            )
        except McpError as error:
            return {"outcome": "error", "error": error.error.model_dump(mode="json")}
        text = result.content[0].text
        if result.isError:
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
        streamablehttp_client(url, headers=hearing.headers) as (read, write, _),
        ClientSession(
            read, write, elicitation_callback=elicit, logging_callback=log, message_handler=hear
        ) as client,
    ):
        agreed = await client.initialize()
        assert agreed.protocolVersion == "2025-11-25", agreed.protocolVersion
        await client.list_tools()
        yield Session(client)


if __name__ == "__main__":
    main(open_session)
