"""Writes one stream to one connection: what is ready goes out in one send, silence is broken by beats.

It pulls from a reader of the store and keeps no queue; a client that stops reading meets its write deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.lowlevel
import msgspec

from counterfoil.adapters.gateway.streams.ids_out import IdStripper, strip_error_ids, strip_ids
from counterfoil.adapters.gateway.streams.short_way import ShortWay, Write
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.upstream_port import Headers
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.errors import ReaderTooSlow, StreamEnded, TakenOver
from counterfoil.model.tokens import Why
from counterfoil.native import encode_event
from counterfoil.protocol.continuity import CommentKind, ConnectionComment, write_comment
from counterfoil.stores.interface import LogReader

_WHY = {why.value: why for why in Why}


class Pace(msgspec.Struct, frozen=True):
    """How a connection is written: bytes of one send, seconds of silence before a beat, and of one send."""

    send_bytes: int
    beat_s: float
    write_deadline_s: float


class Opening(msgspec.Struct, frozen=True):
    """What a connection begins with.

    `lead` (claim, echo, notices) leaves in one send with the frames that are ready.  `names_position` is
    false for a reader of answers only: its comments name the epoch alone, and an aware client's frames
    nothing, since an ID that follows its cursor would read as a continuation.
    """

    headers: Headers
    lead: bytes
    epoch: str
    is_aware: bool
    names_position: bool = True
    come_again_ms: int = 1_000
    """When a client that is sent away comes again."""
    carries_ids: bool = True
    """False where the revision has no event ids."""
    farewells: Callable[[], Sequence[bytes]] = tuple
    """Returns what settles an open call when its session ends."""


#: Told why a connection ended: a reason of the wire, or `client-gone`.
OnEnd = Callable[[str], None]
#: Waits for the next thing to say between events, and returns its frames.
Interruption = Callable[[], Awaitable[bytes]]


class StreamWriter:
    """One connection that carries a stream; `why` says how it ended, None if the client went away."""

    def __init__(
        self,
        send: Send,
        pace: Pace,
        opening: Opening,
        reader: LogReader,
        interruption: Interruption | None = None,
        way: ShortWay | None = None,
        plain_send: Callable[[], Send] | None = None,
    ) -> None:
        self.why: Why | None = None
        self._send = send
        self._pace = pace
        self._opening = opening
        self._reader = reader
        self._interruption = interruption
        self._drains = False
        self._strip_ids = None if opening.carries_ids else IdStripper()
        self._waiting = anyio.CancelScope()
        self._way = way
        self._plain_send = plain_send
        self._sending = anyio.Lock() if interruption is not None else None

    async def run(self, receive: Receive, on_end: OnEnd) -> None:
        """Write until the stream ends, a newer reader takes over, or the client goes away; tell which."""
        work = self._write if self._interruption is None else self._write_interrupted
        try:
            await run_while_present(receive, work)
        finally:
            self._reader.close()
            on_end(self.why.value if self.why is not None else "client-gone")

    async def _write_interrupted(self) -> None:
        interruption = self._interruption
        assert interruption is not None

        async def interrupt() -> None:
            while True:
                frames = await interruption()
                if frames:
                    await self._send_piece(frames)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(interrupt)
            await self._write()
            tasks.cancel_scope.cancel()

    async def _write(self) -> None:
        await self._send(
            {"type": "http.response.start", "status": 200, "headers": list(self._opening.headers)}
        )
        pending = self._opening.lead
        tells_live = self._opening.is_aware
        while True:
            frames, caught_up = self._read_ready()
            pending = pending + frames if pending else frames
            if self.why is not None:
                await self._send_piece(pending + self._last_words(self.why))
                return
            if tells_live and caught_up:
                pending += self._comment(CommentKind.LIVE)
                tells_live = False
            if pending and not await self._send_piece(pending):
                self.why = Why.SLOW
                return
            if not caught_up:
                # A server may take what we send without ever waiting: others must have their turn.
                await anyio.lowlevel.checkpoint()
            pending = b""
            if self._drains:
                self.why = Why.CLOSED
                later = encode_event(None, retry=self._opening.come_again_ms)
                await self._send_piece(later + self._last_words(Why.CLOSED))
                return
            if caught_up and not await self._wait() and not self._drains:
                pending = self._comment(CommentKind.BEAT)
            if self._way is not None and self._way.is_broken:
                self.why = Why.SLOW
                return

    def _read_ready(self) -> tuple[bytes, bool]:
        """Read what fits one send; also say whether that is all there is for now."""
        frames = self._read()
        caught_up = self._reader.has_caught_up
        while not caught_up and self.why is None and len(frames) < self._pace.send_bytes:
            more = self._read()
            caught_up = self._reader.has_caught_up
            if not more and not caught_up and self.why is None:
                self.why = Why.CLOSED  # parked, and the stream is over
            frames += more
        return frames, caught_up

    def _read(self) -> bytes:
        try:
            frames = self._reader.read(max_bytes=self._pace.send_bytes)
            if self._strip_ids is not None:
                return self._strip_ids(frames)
            if not self._opening.is_aware:
                return strip_error_ids(frames)
            return frames if self._opening.names_position else strip_ids(frames)
        except StreamEnded as end:
            self.why = _WHY.get(end.why, Why.CLOSED)
        except TakenOver:
            self.why = Why.SUPERSEDED
        except ReaderTooSlow:
            self.why = Why.SLOW
        return b""

    def drain(self) -> None:
        """End this connection soon, and tell the client when to come again."""
        self._drains = True
        self._waiting.cancel()

    async def _wait(self) -> bool:
        """Wait for something to read; False after a silence that a beat must break."""
        self._waiting = anyio.move_on_after(self._pace.beat_s)
        has_more = False
        if self._way is not None:
            self._way.lend(self._reader, self._short_writer(), self._waiting.cancel)
        try:
            with self._waiting:
                await self._reader.wait()
                has_more = True
        finally:
            if self._way is not None:
                self._way.take_back()
        if self._way is not None:
            await self._way.settled()
        return has_more

    def _short_writer(self) -> Write:
        """Return what writes for other tasks what they read for this connection: never an end."""
        send = self._plain_send() if self._plain_send is not None else self._send
        strip_ids = self._strip_ids

        def write(frames: bytes) -> Awaitable[None]:
            body = frames if strip_ids is None else strip_ids(frames)
            return send({"type": "http.response.body", "body": body, "more_body": True})

        return write

    async def _send_piece(self, piece: bytes) -> bool:
        message = {"type": "http.response.body", "body": piece, "more_body": self.why is None}
        with anyio.move_on_after(self._pace.write_deadline_s):
            if self._sending is None:
                await self._send(message)
            else:  # an interrupted stream has two senders
                async with self._sending:
                    await self._send(message)
            return True
        return False

    def _last_words(self, why: Why) -> bytes:
        farewells = self._opening.farewells() if why is Why.SESSION else ()
        frames = b"".join(encode_event(message) for message in farewells)
        return frames + self._comment(CommentKind.END, why) if self._opening.is_aware else frames

    def _comment(self, kind: CommentKind, why: Why | None = None) -> bytes:
        last = self._reader.position if self._opening.names_position else None
        comment = ConnectionComment(kind=kind, epoch=self._opening.epoch, last=last, why=why)
        return write_comment(comment)


async def write_whole(send: Send, headers: Headers, body: bytes) -> None:
    """Write a stream that is complete, in one send."""
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body, "more_body": False})
