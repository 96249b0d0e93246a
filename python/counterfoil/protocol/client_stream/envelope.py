"""Read as much of a JSON-RPC message as the stream needs: what it is, and which request it answers.

It validates no method and keeps no data; a typed id stays typed, so that 1 and "1" are two requests.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from counterfoil.model.events import Body
from counterfoil.protocol.unreadable import UNREADABLE

_ABSENT = msgspec.Raw()


class _Message(msgspec.Struct):
    jsonrpc: str = ""
    id: int | str | None = None
    method: str | None = None
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


class Envelope(NamedTuple):
    """What the data of one event is, and the ids of the requests that it answers.

    `method` and `request_id` are those of a single request or notification.
    """

    body: Body
    answers: tuple[int | str, ...]
    method: str | None = None
    request_id: int | str | None = None


_DECODE = msgspec.json.Decoder(_Message | list[_Message]).decode
_OTHER = Envelope(Body.OTHER, ())
_EMPTY_OBJECT = Envelope(Body.EMPTY_OBJECT, ())
_JSON_RPC = Body.JSON_RPC
#: `{}` with as much blank around it as anybody writes.
_SHORT = 16


def read_envelope(data: bytes) -> Envelope:
    """Return what the data is; a batch answers several requests."""
    if len(data) < _SHORT and data.strip() == b"{}":
        return _EMPTY_OBJECT
    try:
        decoded = _DECODE(data)
    except UNREADABLE:
        return _OTHER
    if isinstance(decoded, list):
        return _read_batch(decoded)
    if not _is_message(decoded):
        return _OTHER
    if decoded.method is not None:
        return Envelope(_JSON_RPC, (), decoded.method, decoded.id)
    return Envelope(_JSON_RPC, () if decoded.id is None else (decoded.id,))


def _read_batch(messages: list[_Message]) -> Envelope:
    if not messages or not all(map(_is_message, messages)):
        return _OTHER
    answers = (m.id for m in messages if m.method is None and m.id is not None)
    return Envelope(_JSON_RPC, tuple(answers))


def _is_message(message: _Message) -> bool:
    # By identity: comparing would copy the whole result.
    has_body = message.method is not None or message.result is not _ABSENT or message.error is not _ABSENT
    return has_body and message.jsonrpc == "2.0"
