"""Answers the server's requests (sampling, elicitation, roots): one reply each, whatever breaks.

The reply is kept, in the ledger where there is one, so that a request that comes again gets the same bytes
again and no second question is asked.  The connection hands requests in; posting is the carrier's.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.abc
import msgspec

from counterfoil.adapters.client.carrier import Carrier
from counterfoil.adapters.client.keeping import Keeping
from counterfoil.adapters.client.messages import read_params, write_error, write_result
from counterfoil.errors import RequestUnanswerable
from counterfoil.model.stream import Place

#: Takes the parameters of a server's request and returns its result.
Answerer = Callable[[Any], Awaitable[Any]]
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
#: Replies that are kept for a request that comes again; the oldest finished one makes room.
REPLIES_MAX = 1024


class _Reply:
    """One request of the server and what became of it."""

    __slots__ = ("body", "is_busy", "places", "scope", "was_taken")

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.is_busy = True
        self.was_taken = False
        self.places: list[tuple[str, str, int]] = []
        self.scope = anyio.CancelScope()


class Replies:
    """The server's requests of one connection; `keeping` is None where nothing is to outlive the process."""

    def __init__(
        self,
        carrier: Carrier,
        tasks: anyio.abc.TaskGroup,
        answerers: Mapping[str, Answerer],
        keeping: Keeping | None,
    ) -> None:
        self._carrier = carrier
        self._tasks = tasks
        self._answerers = dict(answerers)
        self._keeping = keeping
        self._replies: OrderedDict[tuple[type, int | str, bytes], _Reply] = OrderedDict()
        self._by_place: dict[tuple[str, str, int], _Reply] = {}

    def take(
        self, request_id: int | str, method: str, data: bytes, place: Place, finish: Callable[[], None] | None
    ) -> None:
        """Answer a request; one that is known by id and bytes gets the reply that it got before."""
        key = (type(request_id), request_id, hashlib.blake2b(data, digest_size=16).digest())
        reply = self._replies.get(key)
        if reply is None:
            reply = self._replies[key] = _Reply()
            self._note(reply, place)
            self._make_room()
            self._tasks.start_soon(self._answer, reply, request_id, method, data, finish)
        else:
            self._note(reply, place)
            self._post_again(reply, finish)

    def repeat(self, place: Place) -> None:
        """Post the reply to the request at this place again, if the server never took it."""
        reply = self._by_place.get(_place_key(place))
        if reply is not None:
            self._post_again(reply, None)

    def cancel(self, request_id: object) -> None:
        """Stop working on a request that the server has cancelled; it gets no reply."""
        for (kind, known_id, _), reply in self._replies.items():
            if known_id == request_id and kind is type(request_id):
                reply.scope.cancel()

    async def _answer(
        self,
        reply: _Reply,
        request_id: int | str,
        method: str,
        data: bytes,
        finish: Callable[[], None] | None,
    ) -> None:
        with reply.scope:
            reply.body = await self._find_or_make(request_id, method, data)
        if reply.body is not None:
            await self._post(reply)
        reply.is_busy = False
        if finish is not None:
            finish()

    async def _find_or_make(self, request_id: int | str, method: str, data: bytes) -> bytes:
        if self._keeping is None:
            return await self._make_body(request_id, method, data)
        asked = [self._carrier.session_id, request_id, data]
        key = hashlib.blake2b(msgspec.msgpack.encode(asked), digest_size=16).hexdigest()
        body = await self._keeping.reply(key)
        if body is None:
            body = await self._make_body(request_id, method, data)
            # Before it is posted: whoever reads it may have acted on it when this process is gone.
            await self._keeping.keep_reply(key, body)
        return body

    async def _make_body(self, request_id: int | str, method: str, data: bytes) -> bytes:
        if method == "ping":
            return write_result(request_id, {})
        answerer = self._answerers.get(method)
        if answerer is None:
            return write_error(request_id, METHOD_NOT_FOUND, f"this client does not answer {method}")
        try:
            return write_result(request_id, await answerer(read_params(data)))
        except RequestUnanswerable as refusal:
            return write_error(request_id, refusal.code, refusal.message)
        except Exception as error:
            # Only the kind: an exception's text may hold what the server must not see.
            return write_error(request_id, INTERNAL_ERROR, f"the client failed: {type(error).__name__}")

    def _post_again(self, reply: _Reply, finish: Callable[[], None] | None) -> None:
        if reply.is_busy or reply.body is None:
            if finish is not None:
                finish()
            return
        reply.is_busy = True
        self._tasks.start_soon(self._post_then_finish, reply, finish)

    async def _post_then_finish(self, reply: _Reply, finish: Callable[[], None] | None) -> None:
        await self._post(reply)
        reply.is_busy = False
        if finish is not None:
            finish()

    async def _post(self, reply: _Reply) -> None:
        if reply.body is not None:
            reply.was_taken = await self._carrier.post_until_taken(reply.body)

    def _note(self, reply: _Reply, place: Place) -> None:
        reply.places.append(_place_key(place))
        self._by_place[_place_key(place)] = reply

    def _make_room(self) -> None:
        if len(self._replies) <= REPLIES_MAX:
            return
        oldest = next((key for key, reply in self._replies.items() if not reply.is_busy), None)
        if oldest is not None:
            for place in self._replies.pop(oldest).places:
                self._by_place.pop(place, None)


def _place_key(place: Place) -> tuple[str, str, int]:
    return place.stream, place.epoch, place.position
