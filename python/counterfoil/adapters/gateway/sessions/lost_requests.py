"""Settles requests of the server that its client can never receive, so that no tool waits for ever (S13).

An answer that has passed already wins; an answer that comes after the settlement is taken and dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from counterfoil.adapters.gateway.wire.messages import RequestId, write_error
from counterfoil.adapters.gateway.wire.upstream_port import Headers, Upstream, UpstreamRequest
from counterfoil.errors import UpstreamError
from counterfoil.protocol.inband_error import CODE

_REMEMBERED = 1_024
_REPLACED = frozenset(b"accept content-type last-event-id stream-continuity".split())


class ServerRequests:
    """Which requests of one session's server were answered by its client, or settled by us."""

    def __init__(self) -> None:
        self._answered: OrderedDict[RequestId, bool] = OrderedDict()

    def note_answer(self, request_id: RequestId) -> bool:
        """Note an answer on its way to the server; False if the request was settled already: drop it."""
        if self._answered.get(request_id) is False:
            return False
        self._remember(request_id, by_client=True)
        return True

    def is_answered(self, request_id: RequestId) -> bool:
        """Whether its client has answered it, or it was settled."""
        return request_id in self._answered

    def take_lost(self, request_ids: Iterable[object]) -> list[RequestId]:
        """Return those that are to be settled now."""
        lost = [i for i in request_ids if isinstance(i, int | str) and i not in self._answered]
        for request_id in lost:
            self._remember(request_id, by_client=False)
        return lost

    def _remember(self, request_id: RequestId, *, by_client: bool) -> None:
        self._answered[request_id] = by_client
        if len(self._answered) > _REMEMBERED:
            self._answered.popitem(last=False)


async def settle_lost(upstream: Upstream, request: UpstreamRequest, request_ids: list[RequestId]) -> None:
    """Answer lost requests with an error in the client's stead; `request` is one of the same session."""
    kept: Headers = tuple(field for field in request.headers if field[0] not in _REPLACED)
    headers = (
        *kept,
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
    )
    for request_id in request_ids:
        body = write_error(request_id, CODE, "The request was lost on its way to the client.")
        answer = UpstreamRequest("POST", request.target, headers, body, request.leg)
        try:
            async with upstream.call(answer):
                pass
        except UpstreamError:
            return  # who is gone waits for nothing
