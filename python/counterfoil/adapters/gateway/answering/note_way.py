"""Answers a POST that asks for nothing: a cancellation, or a client's answer to a request of its server.

Whether it still means anything to the server is looked up first, for answers in a batch too; other
notifications pass as they are.
"""

from __future__ import annotations

import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.calls.open_calls import OpenCalls, cancelled_id, end_cancelled
from counterfoil.adapters.gateway.exchanges.elsewhere import Elsewhere
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.asgi import Message
from counterfoil.adapters.gateway.wire.messages import MessageHead, MessageKind, read_message


class NoteWay:
    """Answers cancellations and answers."""

    def __init__(self, shared: Shared, open_calls: OpenCalls, elsewhere: Elsewhere) -> None:
        self._shared = shared
        self._open_calls = open_calls
        self._elsewhere = elsewhere

    async def answer_cancellation(self, exchange: Exchange, tasks: TaskGroup) -> None:
        """Pass a cancellation on; a call that it stopped gets no answer, and ends a little later."""
        scope = exchange.scope(exchange.inbound.session)
        body = exchange.request.body
        if await self._elsewhere.cancelled(exchange, scope):
            return
        if await self._shared.adoption.takes_cancellation(scope, body, tasks):
            await send_answer(exchange.send, 202, ())
            return
        request_id = cancelled_id(body)
        stream = self._open_calls.find(scope, request_id) if request_id is not None else None
        await exchange.pass_on()
        if stream is not None:
            tasks.start_soon(end_cancelled, stream, self._shared.settings.cancel_settle_s, request_id)

    async def answer_answer(self, exchange: Exchange, message: MessageHead) -> None:
        """Pass a client's answer to its server, unless the request was settled in the client's stead."""
        facts = self._shared.facts_of(exchange)
        scope, request_id = exchange.scope(exchange.inbound.session), message.request_id
        if await self._shared.adoption.take_answer(scope, message, exchange.request.body):
            await send_answer(exchange.send, 202, ())
        elif request_id is not None and await self._elsewhere.answered_by_asker(exchange, request_id):
            return
        elif request_id is None or facts.server_requests.note_answer(request_id):
            await exchange.pass_on()
        else:
            await send_answer(exchange.send, 202, ())

    async def take_answers(
        self, exchange: Exchange, message: MessageHead
    ) -> tuple[Exchange, MessageHead] | None:
        """Take those answers out of a batch that are not for its server; None once nothing is left of it."""
        if not any(head.kind is MessageKind.ANSWER for head in message.batch):
            return exchange, message
        parts = msgspec.json.decode(exchange.request.body, type=list[msgspec.Raw])
        left: list[msgspec.Raw] = []
        for head, part in zip(message.batch, parts, strict=True):
            if head.kind is not MessageKind.ANSWER or not await self._takes(exchange, head, bytes(part)):
                left.append(part)
        if len(left) == len(parts):
            return exchange, message
        if not left:
            await send_answer(exchange.send, 202, ())
            return None
        request = msgspec.structs.replace(exchange.request, body=msgspec.json.encode(left))
        return msgspec.structs.replace(exchange, request=request), read_message(request.body)

    async def _takes(self, exchange: Exchange, head: MessageHead, body: bytes) -> bool:
        """Leave an answer in a batch to whoever asked for it; False where it is for its server."""
        scope, request_id = exchange.scope(exchange.inbound.session), head.request_id
        if await self._shared.adoption.take_answer(scope, head, body):
            return True
        if request_id is None:
            return False
        request = msgspec.structs.replace(exchange.request, body=body)
        alone = msgspec.structs.replace(exchange, request=request, send=_say_nothing)
        if await self._elsewhere.answered_by_asker(alone, request_id):
            return True
        return not self._shared.facts_of(exchange).server_requests.note_answer(request_id)


async def _say_nothing(message: Message) -> None:
    """Take what answers a part of a batch: the batch has one answer."""
