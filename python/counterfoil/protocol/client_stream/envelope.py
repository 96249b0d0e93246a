"""Read as much of a JSON-RPC message as the stream needs: what it is, and which request it answers.

It validates no method and keeps no data; a typed id stays typed, so that 1 and "1" are two requests.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from counterfoil.model.events import Body


class _Message(msgspec.Struct):
    jsonrpc: str = ""
    id: int | str | None = None
    method: str | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


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


def read_envelope(data: bytes) -> Envelope:
    """Return what the data is; a batch answers several requests."""
    if data.strip() == b"{}":
        return Envelope(Body.EMPTY_OBJECT, ())
    try:
        decoded = _DECODE(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _OTHER
    if isinstance(decoded, list):
        return _read_batch(decoded)
    if not _is_message(decoded):
        return _OTHER
    if decoded.method is not None:
        return Envelope(Body.JSON_RPC, (), decoded.method, decoded.id)
    return Envelope(Body.JSON_RPC, () if decoded.id is None else (decoded.id,))


def _read_batch(messages: list[_Message]) -> Envelope:
    if not messages or not all(map(_is_message, messages)):
        return _OTHER
    answers = (m.id for m in messages if m.method is None and m.id is not None)
    return Envelope(Body.JSON_RPC, tuple(answers))


def _is_message(message: _Message) -> bool:
    has_body = message.method is not None or bytes(message.result) != b"" or bytes(message.error) != b""
    return message.jsonrpc == "2.0" and has_body
