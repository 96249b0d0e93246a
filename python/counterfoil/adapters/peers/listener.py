"""What other processes of the gateway reach: an ASGI app on a listener that no client can.

It reads one request, hands it to the inbox, and says every second that it is still there.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anyio

from counterfoil.adapters.gateway.wire.answers import ClientGone, read_body, send_answer
from counterfoil.adapters.gateway.wire.asgi import Message, Receive, Send
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.adapters.peers.channel import INTERIM_S
from counterfoil.adapters.peers.owners import Owner
from counterfoil.adapters.peers.seals import HEADER, SealRefused, Seals
from counterfoil.adapters.peers.wire import (
    Forwarded,
    Full,
    Gone,
    Head,
    Hold,
    Line,
    Request,
    read_envelope,
    write_line,
)
from counterfoil.errors import PeerBroken, RequestRefused

_LOGGER = logging.getLogger("counterfoil.gateway")
_READ_S = 10.0
#: What an envelope adds to the body and the header fields of the request in it.
_ENVELOPE_BYTES = 128 << 10


class Inbox(Protocol):
    """What a gateway does for its peers."""

    async def answer_forwarded(self, request: Forwarded, receive: Receive, send: Send) -> None:
        """Answer a client's request in the place of the process that it reached; raises nothing."""

    async def take(self, request: Request) -> Line:
        """Take news, or reply to a question."""


class PeerCounts:
    """What peers asked of this process."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.open = 0


class PeerApp:
    """Takes requests of peers.  `seals` are checked; without them it must not listen on a network."""

    def __init__(
        self,
        inbox: Inbox,
        own: Owner,
        counts: PeerCounts,
        *,
        max_body_bytes: int,
        seals: Seals | None = None,
        at_once: int = 4_096,
    ) -> None:
        self._inbox = inbox
        self._own = own
        self._counts = counts
        self._max_body_bytes = max_body_bytes + _ENVELOPE_BYTES
        self._seals = seals
        self._at_once = at_once

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        if self._counts.open >= self._at_once:
            await send_answer(send, 200, (), write_line(Full()))
            return
        self._counts.open += 1
        try:
            await self._take(scope, receive, send)
        except ClientGone:
            return
        finally:
            self._counts.open -= 1

    async def _take(self, scope: Any, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive, max_bytes=self._max_body_bytes, within_s=_READ_S)
            if self._seals is not None:
                seals = [value for name, value in scope["headers"] if name == HEADER]
                self._seals.check(seals[0] if len(seals) == 1 else None, body)
            envelope = read_envelope(body)
        except SealRefused as refused:
            self._counts.refused[refused.why] += 1
            await send_answer(send, 401, ())
            return
        except (PeerBroken, RequestRefused) as refusal:
            self._counts.refused["unreadable"] += 1
            _LOGGER.warning('{"event":"peer-refused","why":"%s"}', type(refusal).__name__)
            await send_answer(send, 400, ())
            return
        own = self._own
        if (envelope.replica, envelope.worker) != (own.place.replica, own.place.worker) or (
            envelope.incarnation not in (None, own.incarnation)
        ):
            await send_answer(send, 200, (), write_line(Gone()))
            return
        self._counts.requests[type(envelope.request).__name__] += 1
        if isinstance(envelope.request, Forwarded):
            await self._forwarded(envelope.request, receive, send)
        else:
            await self._question(envelope.request, receive, send)

    async def _question(self, request: Request, receive: Receive, send: Send) -> None:
        holding = _Holding(send)
        said: Line | None = None

        async def reply() -> None:
            nonlocal said
            said = await self._inbox.take(request)

        async def work() -> None:
            await holding.run(reply)

        if await run_while_present(receive, work) and said is not None:
            await holding.end(write_line(said))

    async def _forwarded(self, request: Forwarded, receive: Receive, send: Send) -> None:
        holding = _Holding(send)

        async def answer() -> None:
            await self._inbox.answer_forwarded(request, receive, holding.send_answer)

        await holding.run(answer)
        if not holding.is_decided:
            await holding.end(write_line(Gone()))  # it does not run any more, or not yet


class _Holding:
    """A reply that says every second that it will come, until its line is there."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = False
        self.is_decided = False
        self._head = b""
        self._sending = anyio.Lock()

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hold)
            await work()
            tasks.cancel_scope.cancel()

    async def _hold(self) -> None:
        while True:
            await anyio.sleep(INTERIM_S)
            async with self._sending:
                if self.is_decided and not self._head:
                    return
                # Whole, or nobody could read what follows; the write deadline is the server's.
                with anyio.move_on_after(INTERIM_S, shield=True):
                    await self._piece(b"" if self._head else write_line(Hold()))

    async def _piece(self, data: bytes, *, more: bool = True) -> None:
        data, self._head = self._head + data, b""
        if not self._has_begun:
            self._has_begun = True
            headers = [(b"content-type", b"application/octet-stream")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def end(self, data: bytes) -> None:
        self.is_decided = True
        await self._piece(data, more=False)

    async def send_answer(self, message: Message) -> None:
        """ASGI's `send` for the part that answers: its head becomes a line, and leaves with what follows."""
        if message["type"] == "http.response.start":
            headers = tuple((bytes(name), bytes(value)) for name, value in message["headers"])
            self.is_decided = True
            self._head = write_line(Head(message["status"], headers))
            return
        async with self._sending:
            await self._piece(message.get("body", b""), more=message.get("more_body", False))
