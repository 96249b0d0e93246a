"""The SDK's messages at the border: bytes inside, the model of whichever major is installed outside.

Major 1 (from 1.23) wraps messages in a root model, major 2 has a union; nothing else here differs.
"""

from __future__ import annotations

from typing import Any

from mcp import types
from mcp.server.streamable_http import EventMessage

RequestId = int | str

_MODEL: Any = types.JSONRPCMessage
_HAS_ROOT = isinstance(_MODEL, type)


def write_message(message: Any) -> bytes:
    """Return the JSON of a message, as the SDK itself writes it."""
    if _HAS_ROOT:
        text: str = message.model_dump_json(by_alias=True, exclude_none=True)
    else:
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
    return text.encode()


def read_message(data: bytes) -> Any:
    """Return the message that `data` is the JSON of."""
    if _HAS_ROOT:
        return _MODEL.model_validate_json(data)
    return types.jsonrpc_message_adapter.validate_json(data)


def answered_id(message: Any) -> RequestId | None:
    """Return the typed id that a result or an error answers; None for every other message."""
    payload = message.root if _HAS_ROOT else message
    if isinstance(payload, types.JSONRPCResponse | types.JSONRPCError):
        return payload.id
    return None


def make_event(message: Any, event_id: str | None) -> EventMessage:
    """Return what the SDK's callback takes; without an id none is written."""
    return EventMessage(message, event_id)
