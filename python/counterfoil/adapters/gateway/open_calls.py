"""The calls that run upstream now, by who made them; cancellations and ends of session look them up.

A call that was cancelled gets no answer: it ends by itself, so that it is not live for ever.
"""

from __future__ import annotations

import anyio
import msgspec
from counterfoil.adapters.gateway.messages import RequestId
from counterfoil.adapters.gateway.streams import CallStream
from counterfoil.native import Scope
from counterfoil.protocol.unreadable import UNREADABLE


class _Cancelled(msgspec.Struct):
    class Params(msgspec.Struct, rename="camel"):
        request_id: int | str

    params: Params


_DECODER = msgspec.json.Decoder(_Cancelled)


class OpenCalls:
    """Streams of running calls by scope and typed request id; the latest of a reused id."""

    def __init__(self) -> None:
        self._streams: dict[tuple[Scope, RequestId], CallStream] = {}

    def add(self, request_id: RequestId, stream: CallStream) -> None:
        self._streams[stream.scope, request_id] = stream

    def remove(self, request_id: RequestId, stream: CallStream) -> None:
        if self._streams.get((stream.scope, request_id)) is stream:
            del self._streams[stream.scope, request_id]

    def named_in(self, scope: Scope, body: bytes) -> CallStream | None:
        """Return the running call that a `notifications/cancelled` names."""
        request_id = cancelled_id(body)
        return self._streams.get((scope, request_id)) if request_id is not None else None


def cancelled_id(body: bytes) -> RequestId | None:
    """Return the typed id of the request that a `notifications/cancelled` names."""
    try:
        return _DECODER.decode(body).params.request_id
    except UNREADABLE:
        return None


async def end_cancelled(stream: CallStream, settle_s: float) -> None:
    """End a cancelled call's stream, unless it has its answer by then."""
    await anyio.sleep(settle_s)
    await stream.end("cancelled")
