"""The dull parts of an MCP server's script: handshake, notifications, DELETE; calls and GETs are the test's.

It answers by the specification where nothing else is said, so that a test scripts only its fault.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from counterfoil.protocol.revisions import LAST_WITH_SESSIONS
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.scripted import Wire

#: Plays one call; `message` is the decoded request.
Play = Callable[[Exchange, Wire, Any], Awaitable[None]]
PlayGet = Callable[[Exchange, Wire], Awaitable[None]]


def result_of(request_id: object, text: str = "done") -> dict[str, Any]:
    """A JSON-RPC result with one text in it."""
    return {"jsonrpc": "2.0", "id": request_id, "result": {"content": [{"type": "text", "text": text}]}}


def note(number: int, method: str = "notifications/message") -> dict[str, Any]:
    """A notification with a number in it."""
    return {"jsonrpc": "2.0", "method": method, "params": {"data": number}}


class ScriptedSession:
    """A script for `open_scripted`: one session, whose calls and GETs are played by the test.

    `calls` and `gets` hold what came, `posted` every other message of the client.
    """

    def __init__(
        self,
        play: Play | None = None,
        play_get: PlayGet | None = None,
        *,
        revision: str = LAST_WITH_SESSIONS.revision,
        session_id: str | None = "s-1",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.play = play
        self.play_get = play_get
        self.session_id = session_id
        self.calls: list[Any] = []
        self.gets: list[Exchange] = []
        self.posted: list[Any] = []
        self.ended = 0
        self._revision = revision
        self._headers = dict(headers or {})

    async def __call__(self, exchange: Exchange, wire: Wire) -> None:
        """Answer one request."""
        if exchange.method == "GET":
            self.gets.append(exchange)
            await (self.play_get(exchange, wire) if self.play_get is not None else wire.refuse(405))
        elif exchange.method == "DELETE":
            self.ended += 1
            await wire.refuse(200)
        else:
            await self._answer_post(exchange, wire, msgspec.json.decode(exchange.body))

    async def _answer_post(self, exchange: Exchange, wire: Wire, message: Any) -> None:
        if message.get("method") == "initialize":
            await wire.json(self._handshake(message["id"]), headers=self._session_headers())
        elif message.get("method") == "server/discover":
            await wire.json(self._discovery(message["id"]), headers=self._headers)
        elif message.get("method") == "ping":
            await wire.json({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        elif "method" not in message or "id" not in message:
            self.posted.append(message)
            await wire.refuse(202)
        else:
            self.calls.append(message)
            if self.play is None:
                await wire.json(result_of(message["id"]))
            else:
                await self.play(exchange, wire, message)

    def _session_headers(self) -> dict[str, str]:
        own = {} if self.session_id is None else {"mcp-session-id": self.session_id}
        return {**own, **self._headers}

    def _handshake(self, request_id: object) -> dict[str, Any]:
        info = {"name": "scripted", "version": "1"}
        result = {"protocolVersion": self._revision, "capabilities": {}, "serverInfo": info}
        return {"jsonrpc": "2.0", "id": request_id, "result": result}

    def _discovery(self, request_id: object) -> dict[str, Any]:
        result = {"supportedVersions": [self._revision], "capabilities": {}, "resultType": "complete"}
        return {"jsonrpc": "2.0", "id": request_id, "result": result}
