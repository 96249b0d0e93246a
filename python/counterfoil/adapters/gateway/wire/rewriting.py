"""Rewrites a call's messages for the caller that took it over: its own id, its own progress token.

Results and params pass byte for byte; a message that needs no change is returned as it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.protocol.unreadable import UNREADABLE


class Message(msgspec.Struct):
    """A JSON-RPC message with its members as they stand in it."""

    jsonrpc: str = "2.0"
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_answer(self) -> bool:
        return self.method is msgspec.UNSET

    @property
    def is_request(self) -> bool:
        return isinstance(self.method, str) and isinstance(self.id, msgspec.Raw)


_MESSAGE = msgspec.json.Decoder(Message)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()


def read_rpc(data: bytes) -> Message | None:
    """Read one message; None for what is none."""
    try:
        return _MESSAGE.decode(data)
    except UNREADABLE:
        return None


def with_id(message: Message, request_id: RequestId) -> bytes:
    """Write a request or an answer under another id."""
    return _ENCODER.encode(msgspec.structs.replace(message, id=_raw(request_id)))


def with_progress_token(message: Message, own: bytes | None, new: bytes | None) -> bytes | None:
    """Write a progress notification under another token; None if nobody asked for it.

    Tokens are JSON text.  Progress of something else than `own` passes unchanged.
    """
    params = _members(message.params)
    token = params.get("progressToken")
    if token is None or own is None or _value(bytes(token)) != _value(own):
        return _ENCODER.encode(message)
    if new is None:
        return None
    params["progressToken"] = msgspec.Raw(new)
    return _ENCODER.encode(msgspec.structs.replace(message, params=msgspec.Raw(_ENCODER.encode(params))))


def with_member(body: bytes, name: str, value: RequestId) -> bytes:
    """Write a notification with one member of its params replaced."""
    message = _MESSAGE.decode(body)
    params = _members(message.params)
    params[name] = _raw(value)
    return _ENCODER.encode(msgspec.structs.replace(message, params=msgspec.Raw(_ENCODER.encode(params))))


def progress_token_of(body: bytes) -> bytes | None:
    """Return the progress token that a request asks with, as JSON text."""
    message = read_rpc(body)
    meta = _members(_members(message.params).get("_meta")) if message is not None else {}
    token = meta.get("progressToken")
    return bytes(token) if token is not None else None


def id_of(message: Message) -> RequestId | None:
    """Return the typed id of a request or answer."""
    value = _value(bytes(message.id)) if isinstance(message.id, msgspec.Raw) else None
    return value if isinstance(value, str) or type(value) is int else None


def _members(raw: msgspec.Raw | msgspec.UnsetType | None) -> dict[str, msgspec.Raw]:
    if not isinstance(raw, msgspec.Raw):
        return {}
    try:
        return _MEMBERS.decode(raw)
    except UNREADABLE:
        return {}


def _raw(value: RequestId) -> msgspec.Raw:
    return msgspec.Raw(_ENCODER.encode(value))


def _value(text: bytes) -> Any:
    value = msgspec.json.decode(text)
    return (type(value), value) if isinstance(value, bool) else value
