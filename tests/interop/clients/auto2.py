"""The client of the official Python SDK, major 2, with its own negotiation: the newest revision."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from plan import Hearing, main


class Session:
    def __init__(self, client: Client) -> None:
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
    async with (
        create_mcp_http_client(headers=hearing.headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        assert client.protocol_version == hearing.revision, client.protocol_version
        await client.list_tools()
        yield Session(client)


if __name__ == "__main__":
    main(open_session)
