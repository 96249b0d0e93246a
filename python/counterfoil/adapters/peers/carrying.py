"""Carries a client's request to the process that it is for, and the answer back, byte for byte.

What is not reached is said to be gone or unreachable, before anything was sent to the client.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from counterfoil.adapters.gateway.wire.asgi import Send
from counterfoil.adapters.peers.channel import Reply
from counterfoil.adapters.peers.checking import StreamCheck, check_head
from counterfoil.adapters.peers.wire import Full, Gone, Head
from counterfoil.errors import PeerBroken


class Reached(Enum):
    """What became of a request that was to be forwarded."""

    ANSWERED = auto()
    GONE = auto()  # whom it was for lives no more: decide here
    UNREACHABLE = auto()  # nobody can say
    LEFT = auto()  # the client went away


class AnswerCut(Exception):
    """A forwarded answer broke off after its head: the client's must break off too."""


async def carry_answer(
    reply: Reply,
    send: Send,
    *,
    silence_s: float,
    resumes: bool,
    make_check: Callable[[], StreamCheck],
    on_head: Callable[[], None],
) -> Reached:
    """Carry one reply; raises `PeerBroken` before the head, `AnswerCut` after it.

    `on_head` is told before the first byte goes to the client.
    """
    line = reply.line
    if isinstance(line, Gone):
        return Reached.GONE
    if isinstance(line, Full):
        return Reached.UNREACHABLE
    if not isinstance(line, Head):
        raise PeerBroken("a peer said something else than it was asked")
    check_head(line, resumes=resumes)
    is_stream = any(
        name == b"content-type" and value.startswith(b"text/event-stream") for name, value in line.headers
    )
    check = make_check() if resumes and is_stream else None
    on_head()
    await send({"type": "http.response.start", "status": line.status, "headers": list(line.headers)})
    try:
        while not reply.is_whole:
            piece = await reply.receive(silence_s=silence_s)
            if check is not None:
                check.take(piece)
            await send({"type": "http.response.body", "body": piece.view, "more_body": not reply.is_whole})
    except PeerBroken as error:
        raise AnswerCut from error
    return Reached.ANSWERED
