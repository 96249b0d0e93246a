"""The shapes of ASGI, as the gateway uses them; it depends on no framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class NotedSend:
    """A `send` that knows whether it was used."""

    __slots__ = ("plain", "was_used")

    def __init__(self, send: Send) -> None:
        #: The one beneath.
        self.plain = send
        self.was_used = False

    def __call__(self, message: Message) -> Awaitable[None]:
        self.was_used = True
        return self.plain(message)


def plain_of(send: Send) -> Send:
    """Return what may be used in the place of a `send` that was used before: the one beneath it."""
    return send.plain if isinstance(send, NotedSend) and send.was_used else send
