"""Writes the JSON-RPC messages of a client, with what the revision wants in each of them.

It sends nothing and remembers nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from counterfoil.protocol.unreadable import UNREADABLE

_encode = msgspec.json.encode
#: The parameter that a request names to intermediaries, in the revision whose requests stand alone.
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PREFIX = "io.modelcontextprotocol/"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says of itself."""

    name: str = "counterfoil"
    version: str = "0"
    capabilities: Mapping[str, Any] = {}

    @property
    def info(self) -> dict[str, str]:
        """The `clientInfo` of the specification."""
        return {"name": self.name, "version": self.version}


def write_request(request_id: int | str, method: str, params: Mapping[str, Any] | None) -> bytes:
    """Write a request."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params is not None:
        message["params"] = params
    return _encode(message)


def write_notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Write a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return _encode(message)


def write_result(request_id: int | str, result: Any) -> bytes:
    """Write the answer to a request of the server."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def write_error(request_id: int | str, code: int, message: str) -> bytes:
    """Write the refusal of a request of the server."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def write_cancelled(request_id: int | str, reason: str) -> bytes:
    """Write the notification that a request is not waited for any more."""
    return write_notification("notifications/cancelled", {"requestId": request_id, "reason": reason})


def stamp(params: Mapping[str, Any] | None, revision: str, peer: Peer) -> dict[str, Any]:
    """Return the parameters of a request that stands alone: revision, client and capabilities in `_meta`."""
    stamped = dict(params or {})
    stamped["_meta"] = {
        **stamped.get("_meta", {}),
        f"{_PREFIX}protocolVersion": revision,
        f"{_PREFIX}clientInfo": peer.info,
        f"{_PREFIX}clientCapabilities": dict(peer.capabilities),
    }
    return stamped


def standing_headers(method: str, params: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the headers that repeat what a request that stands alone asks for."""
    headers = {"mcp-method": method}
    name = (params or {}).get(_NAMES.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = _header_value(name)
    return headers


def _header_value(text: str) -> str:
    is_plain = text.isascii() and text.isprintable() and text == text.strip()
    if is_plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


class Response(msgspec.Struct):
    """A JSON-RPC response as it came; `result` and `error` are not decoded yet."""

    id: int | str | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class ErrorBody(msgspec.Struct):
    """The error of a JSON-RPC response."""

    code: int = 0
    message: str = ""
    data: Any = None


_read_responses = msgspec.json.Decoder(Response | list[Response]).decode
_read_error = msgspec.json.Decoder(ErrorBody).decode


def read_response(data: bytes, request_id: int | str) -> Response | None:
    """Find the response to one request in a message or a batch; None where it is not there."""
    try:
        read = _read_responses(data)
    except UNREADABLE:
        return None
    found = read if isinstance(read, list) else [read]
    return next((one for one in found if one.id == request_id and type(one.id) is type(request_id)), None)


def read_error(data: bytes | msgspec.Raw) -> ErrorBody | None:
    """Read the error of a response; None where it is none."""
    try:
        return _read_error(data)
    except UNREADABLE:
        return None


class _Params(msgspec.Struct):
    params: Any = None


_read_params = msgspec.json.Decoder(_Params).decode


def read_params(data: bytes) -> Any:
    """Return the parameters of a request or notification, decoded."""
    return _read_params(data).params


_read_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode


def split_batch(data: bytes) -> list[bytes]:
    """Return the messages of a batch."""
    return [bytes(part) for part in _read_parts(data)]
