"""The calls that run upstream now, by who made them; cancellations and ends of session look them up.

A call that was cancelled gets no answer: it ends by itself, so that it is not live for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import anyio
import msgspec

from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.messages import RequestId
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
        self._counts: Counter[Scope] = Counter()

    def __len__(self) -> int:
        """Return how many sessions have a request without an answer."""
        return len(self._counts)

    def count(self, scope: Scope) -> int:
        """Return how many requests of a session have no answer yet."""
        return self._counts[scope]

    def add(self, request_ids: Sequence[RequestId], stream: CallStream) -> None:
        self._counts[stream.scope] += len(request_ids)
        for request_id in request_ids:
            self._streams[stream.scope, request_id] = stream

    def remove(self, request_ids: Sequence[RequestId], stream: CallStream) -> None:
        self._counts[stream.scope] -= len(request_ids)
        if not self._counts[stream.scope]:
            del self._counts[stream.scope]
        for request_id in request_ids:
            if self._streams.get((stream.scope, request_id)) is stream:
                del self._streams[stream.scope, request_id]

    def find(self, scope: Scope, request_id: RequestId) -> CallStream | None:
        """Return the running call under an id."""
        return self._streams.get((scope, request_id))

    def has(self, scope: Scope, request_id: RequestId) -> bool:
        return (scope, request_id) in self._streams


def cancelled_id(body: bytes) -> RequestId | None:
    """Return the typed id of the request that a `notifications/cancelled` names."""
    try:
        return _DECODER.decode(body).params.request_id
    except UNREADABLE:
        return None


async def end_cancelled(stream: CallStream, settle_s: float, request_id: RequestId | None = None) -> None:
    """End a cancelled call, unless it has its answer by then; of a batch, the request `request_id`."""
    await anyio.sleep(settle_s)
    await stream.cancel(request_id)
