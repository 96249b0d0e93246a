"""One connection of a call: it notes when an id was given, when the answer was handed over, and a disconnect.

Handed over means: the send of the answer's last byte returned, and no disconnect had been told (decision L9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

import anyio.lowlevel
import sniffio

from counterfoil.adapters.gateway.wire.asgi import Message, Receive, Send, plain_of
from counterfoil.stores.interface import LogReader


class Watcher(Protocol):
    """Who wants to know what becomes of a call's connections."""

    def note_id(self) -> None: ...

    def note_attached(self, connection: Connection) -> None: ...

    def note_handed_over(self, connection: Connection) -> None: ...

    def note_gone(self, connection: Connection) -> None: ...


class Watchers:
    """Several who want to know; told in their order."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def note_id(self) -> None:
        for watcher in self._watchers:
            watcher.note_id()

    def note_attached(self, connection: Connection) -> None:
        for watcher in self._watchers:
            watcher.note_attached(connection)

    def note_handed_over(self, connection: Connection) -> None:
        for watcher in self._watchers:
            watcher.note_handed_over(connection)

    def note_gone(self, connection: Connection) -> None:
        for watcher in self._watchers:
            watcher.note_gone(connection)


def watchers_of(*watchers: Watcher | None) -> Watcher | None:
    """Return what tells all of those that are there; None where none is."""
    found = [watcher for watcher in watchers if watcher is not None]
    return Watchers(*found) if len(found) > 1 else next(iter(found), None)


class Connection:
    """Wraps `receive` and `send` of one connection; use it in place of them, then `release` it."""

    __slots__ = (
        "_has_id",
        "_has_sent",
        "_is_done",
        "_is_gone",
        "_is_on_asyncio",
        "_reader",
        "_receive",
        "_send",
        "_watcher",
    )

    def __init__(
        self, watcher: Watcher | None, receive: Receive, send: Send, *, is_on_asyncio: bool | None = None
    ) -> None:
        self._watcher = watcher
        self._receive = receive
        self._send = send
        self._reader: LogReader | None = None
        self._has_id = False
        #: Whether something of the response's body has left, so that its client was waited with.
        self._has_sent = False
        self._is_gone = False
        self._is_done = False
        if is_on_asyncio is None:  # whoever makes many knows it
            is_on_asyncio = sniffio.current_async_library() == "asyncio"
        self._is_on_asyncio = is_on_asyncio

    def watch(self, reader: LogReader) -> LogReader:
        """Note the reader that this connection was given, and return it."""
        if self._watcher is not None and reader.is_attached:
            self._reader = reader
            self._watcher.note_attached(self)
        return reader

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.close()
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """As ASGI's; the answer leaves before the end of the response.

        Servers tell a disconnect once a response is complete: one that is told before that is a real one.
        """
        watcher = self._watcher
        if watcher is None:
            return self._send(message)
        if message["type"] != "http.response.body":
            return self._send_head(message)
        if self._ends_answer(message):
            return self._send_answer(watcher, message)
        self._has_sent = True
        return self._send(message) if self._has_id else self._send_first(message)

    def plain_send(self) -> Send:
        """Return what sends an event that ends nothing, while there is nothing to note of it."""
        return plain_of(self._send) if self._watcher is None or self._has_id else self.send

    async def _send_head(self, message: Message) -> None:
        await self._let_others_run()
        await self._send(message)

    async def _send_first(self, message: Message) -> None:
        await self._send(message)
        self._note_sent(message)

    async def _send_answer(self, watcher: Watcher, message: Message) -> None:
        # A disconnect that is on its way is told first.  That is before the answer, and where the answer is
        # there at once before the head: nothing parts them then, and all leaves in one send of the kernel's.
        if self._has_sent:
            await self._let_others_run()
        await self._send({**message, "more_body": True})
        if not self._is_on_asyncio:
            await anyio.lowlevel.checkpoint()  # there a send has been tried by now, and failed or not
        self._note_sent(message)
        if not self._is_gone:
            self._is_done = True
            watcher.note_handed_over(self)
        if not message.get("more_body", False):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _let_others_run(self) -> None:
        """Give up one turn of the loop; what asyncio has for it costs half of what serves every backend."""
        if self._is_on_asyncio:
            await asyncio.sleep(0)
        else:
            await anyio.lowlevel.checkpoint()

    def _note_sent(self, message: Message) -> None:
        if self._has_id or self._is_gone or self._reader is None or self._watcher is None:
            return
        if b"id: cf1." in message.get("body", b""):
            self._has_id = True
            self._watcher.note_id()

    def release(self) -> None:
        """Close it, and let go of who wants to know: there is nothing more to tell."""
        self.close()
        self._watcher = self._reader = None

    def close(self) -> None:
        """The client has gone, or the connection is over."""
        if not self._is_gone:
            self._is_gone = True
            if self._watcher is not None:
                self._watcher.note_gone(self)

    def _ends_answer(self, message: Message) -> bool:
        if self._is_done:
            return False
        if self._reader is not None:
            return self._reader.has_read_answer
        return not message.get("more_body", False)  # a whole answer, passed as it is
