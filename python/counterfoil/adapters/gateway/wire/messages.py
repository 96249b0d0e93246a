"""Reads the kind, the typed id and the method of a JSON-RPC message; never its params.

What cannot be read in one way is `OTHER`: it is passed on untouched, and nothing is promised about it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import msgspec

from counterfoil.protocol.unreadable import UNREADABLE

RequestId = int | str


class MessageKind(Enum):
    """What a POSTed body is."""

    REQUEST = auto()
    NOTIFICATION = auto()
    ANSWER = auto()
    BATCH = auto()
    OTHER = auto()


class MessageHead(msgspec.Struct, frozen=True):
    """What the gateway knows of a message: its kind, and where it has them its id and method.

    `batch` holds the heads of a batch, none where one of them cannot be read in one way.
    """

    kind: MessageKind
    request_id: RequestId | None = None
    method: str | None = None
    batch: tuple[MessageHead, ...] = ()

    @property
    def request_ids(self) -> tuple[RequestId, ...]:
        """The typed ids of the requests in it."""
        heads = self.batch or (self,)
        ids = [head.request_id for head in heads if head.kind is MessageKind.REQUEST]
        return tuple(request_id for request_id in ids if request_id is not None)


class _Shape(msgspec.Struct):
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_DECODER = msgspec.json.Decoder(_Shape)
_BATCH_DECODER = msgspec.json.Decoder(list[_Shape])
_OTHER = MessageHead(MessageKind.OTHER)


def read_message(body: bytes) -> MessageHead:
    """Classify a body.  Ids are typed (1 is not "1"); booleans, fractions and null are none."""
    try:
        if body.lstrip()[:1] == b"[":
            return _read_batch(_BATCH_DECODER.decode(body))
        return _read_head(_DECODER.decode(body))
    except UNREADABLE:
        return _OTHER


def _read_batch(shapes: list[_Shape]) -> MessageHead:
    heads = tuple(_read_head(shape) for shape in shapes)
    batch = MessageHead(MessageKind.BATCH, batch=heads)
    is_readable = all(head.kind is not MessageKind.OTHER for head in heads)
    return batch if is_readable and _are_distinct(batch.request_ids) else MessageHead(MessageKind.BATCH)


def _are_distinct(request_ids: tuple[RequestId, ...]) -> bool:
    """Say whether each has its own answer.  As text: chosen integers can be made to collide in a set."""
    return len({f"{type(each).__name__} {each}" for each in request_ids}) == len(request_ids)


def _read_head(shape: _Shape) -> MessageHead:
    request_id = _read_id(bytes(shape.id)) if isinstance(shape.id, msgspec.Raw) else None
    has_id = not isinstance(shape.id, msgspec.UnsetType)
    if isinstance(shape.method, str):
        if not has_id:
            return MessageHead(MessageKind.NOTIFICATION, None, shape.method)
        return (
            MessageHead(MessageKind.REQUEST, request_id, shape.method) if request_id is not None else _OTHER
        )
    is_answer = isinstance(shape.result, msgspec.Raw) != isinstance(shape.error, msgspec.Raw)
    return MessageHead(MessageKind.ANSWER, request_id) if is_answer and has_id else _OTHER


def _read_id(raw: bytes) -> RequestId | None:
    value: Any = msgspec.json.decode(raw)
    return value if isinstance(value, str) or type(value) is int else None


def write_error(
    request_id: RequestId | None, code: int, message: str, data: dict[str, Any] | None = None
) -> bytes:
    """Return a JSON-RPC error message."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})
