"""One connection of a call: it notes when an id was given, when the answer was handed over, and a disconnect.

Handed over means: the send of the answer's last byte returned, and no disconnect had been told (decision L9).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Never, Protocol

import anyio.lowlevel
import sniffio

from counterfoil.adapters.gateway.wire.asgi import Message, Receive, Send, plain_of
from counterfoil.errors import CounterfoilError, StreamEnded
from counterfoil.model.verdicts import ResumeVerdict
from counterfoil.native import ResumeAnswer, StreamToken
from counterfoil.stores.interface import LogReader
from counterfoil.stores.replay.reader import MAX_PIECE_BYTES


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
    """Wraps `receive`, `send` and the reader of one connection; use it in place of them, then `close` it."""

    def __init__(self, watcher: Watcher | None, receive: Receive, send: Send) -> None:
        self._watcher = watcher
        self._receive = receive
        self._send = send
        self._reader: WatchedReader | None = None
        self._has_id = False
        self._is_gone = False
        self._is_done = False

    def watch(self, reader: LogReader) -> LogReader:
        """Wrap the reader that this connection was given."""
        if self._watcher is None or not reader.is_attached:
            return reader
        self._reader = WatchedReader(reader)
        self._watcher.note_attached(self)
        return self._reader

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
        if self._ends_answer(message):
            return self._send_answer(watcher, message)
        if message["type"] == "http.response.start":
            return self._send_head(message)
        return self._send(message) if self._has_id else self._send_first(message)

    def plain_send(self) -> Send:
        """Return what sends an event that ends nothing, while there is nothing to note of it."""
        return plain_of(self._send) if self._watcher is None or self._has_id else self.send

    async def _send_head(self, message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        await self._send(message)

    async def _send_first(self, message: Message) -> None:
        await self._send(message)
        self._note_sent(message)

    async def _send_answer(self, watcher: Watcher, message: Message) -> None:
        # A disconnect that is on its way is told first.  That is before the answer, and where the answer is
        # there at once before the head: nothing parts them then, and all leaves in one send of the kernel's.
        if self._reader is not None and self._reader.has_waited:
            await anyio.lowlevel.checkpoint()
        await self._send({**message, "more_body": True})
        if sniffio.current_async_library() != "asyncio":
            await anyio.lowlevel.checkpoint()  # there a send has been tried by now, and failed or not
        self._note_sent(message)
        if not self._is_gone:
            self._is_done = True
            watcher.note_handed_over(self)
        if not message.get("more_body", False):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

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
        if message["type"] != "http.response.body" or self._is_done:
            return False
        if self._reader is not None:
            return self._reader.has_read_answer
        return not message.get("more_body", False)  # a whole answer, passed as it is


class WatchedReader:
    """A reader that knows when the call's terminal event was read; it reads ahead by one step for that."""

    def __init__(self, reader: LogReader) -> None:
        self.has_read_answer = False
        #: Whether its connection has ever caught up, and waited for more.
        self.has_waited = False
        self._reader = reader
        self._ahead = b""
        self._end: CounterfoilError | None = None
        self._position = reader.position

    @property
    def verdict(self) -> ResumeVerdict:
        return self._reader.verdict

    @property
    def answer(self) -> ResumeAnswer | None:
        return self._reader.answer

    @property
    def echo_id(self) -> str | None:
        return self._reader.echo_id

    @property
    def is_attached(self) -> bool:
        return self._reader.is_attached

    @property
    def is_answers_only(self) -> bool:
        return self._reader.is_answers_only

    @property
    def is_parked(self) -> bool:
        return self._reader.is_parked

    @property
    def has_caught_up(self) -> bool:
        return not self._ahead and self._end is None and self._reader.has_caught_up

    @property
    def lendable(self) -> LogReader | None:
        return None if self._ahead or self._end is not None else self._reader.lendable

    @property
    def window(self) -> tuple[int, int] | None:
        return self._reader.window

    @property
    def position(self) -> int | None:
        return self._position if self._ahead else self._reader.position

    @property
    def stream(self) -> StreamToken | None:
        return self._reader.stream

    def read(self, max_bytes: int = MAX_PIECE_BYTES) -> bytes:
        """As `Reader.read`; a typed end that was met ahead is raised once all before it was returned."""
        frames, self._ahead = self._ahead, b""
        if not frames:
            if self._end is not None:
                self._raise_end(self._end)
            frames = self._reader.read(max_bytes)
        self._position = self._reader.position
        if frames and self._end is None:
            self._look_ahead(max_bytes)
        return frames

    def _look_ahead(self, max_bytes: int) -> None:
        try:
            self._ahead = self._reader.read(max_bytes)
        except CounterfoilError as end:
            # With its traceback it would hold this frame, and by it what holds it: garbage for the collector.
            self._end = end.with_traceback(None)
            self.has_read_answer = isinstance(end, StreamEnded) and end.why == "ended"

    def _raise_end(self, end: CounterfoilError) -> Never:
        self._end = None  # what reads on is told by the reader itself
        try:
            raise end
        finally:
            del end

    async def wait(self) -> None:
        """As `Reader.wait`."""
        self.has_waited = True
        if self._ahead or self._end is not None:
            await anyio.lowlevel.checkpoint()
        else:
            await self._reader.wait()

    def close(self) -> None:
        """Detach."""
        self._reader.close()
