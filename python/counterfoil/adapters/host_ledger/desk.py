"""Serves the other processes of the host at the owner of their ledger: many requests at once on a connection.

Requests of all of them share the ledger's durable commits.  What a process carried on when it died is given
up, so that nobody waits for it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc

from counterfoil.adapters.host_ledger.bells import Bell
from counterfoil.adapters.host_ledger.lives import Lives
from counterfoil.adapters.host_ledger.owned import OwnedLedger
from counterfoil.adapters.host_ledger.wire import (
    VERSION,
    Bye,
    Frames,
    KeptCalls,
    Numbered,
    Welcome,
    read_hello,
    read_request,
    write_done,
    write_failed,
    write_frame,
)
from counterfoil.errors import CounterfoilError, LedgerError, PeerBroken
from counterfoil.protocol.ledger_steps import KeptCall
from counterfoil.stores.tickets import Ticket

_LOGGER = logging.getLogger("counterfoil.ledger")
_PIECE_BYTES = 256 << 10
_HELLO_S = 10.0
#: When it is looked whether a process that closed its connection has died: it may only connect again.
_LOOKS_S = (0.0, 0.005, 0.05, 0.5, 1.0)
#: How long an owner that ends waits for what it has taken.
_LAST_S = 5.0


class Desk:
    """The desk of one owner.

    `on_orphans` is called when a process has died that may have left calls to be adopted.
    """

    def __init__(
        self,
        owned: OwnedLedger,
        lives: Lives,
        *,
        frame_bytes: int,
        at_once: int,
        on_orphans: Callable[[], object],
    ) -> None:
        self._owned = owned
        self._lives = lives
        self._frame_bytes = frame_bytes
        self._at_once = at_once
        self._on_orphans = on_orphans
        self._welcome = Welcome(owned.ledger.fence, owned.ledger.secret)
        self._is_closing = False
        self._sessions: dict[_Session, None] = {}

    @property
    def guests(self) -> int:
        """How many other processes are connected."""
        return len(self._sessions)

    async def serve(self, listener: anyio.abc.SocketListener) -> None:
        """Take connections until this is cancelled, or `close` was called."""
        with suppress(anyio.ClosedResourceError):
            await listener.serve(self._serve_one)

    async def watch(self, life: bytes) -> None:
        """Wait until a life that another owner served has come here, or is over."""
        await self._await_end(life)

    async def close(self) -> None:
        """Take no more requests, and answer those that were taken; bounded in time."""
        self._is_closing = True
        with anyio.move_on_after(_LAST_S, shield=True):
            for session in list(self._sessions):
                await session.say_bye()

    async def _serve_one(self, stream: anyio.abc.ByteStream) -> None:
        async with stream:
            try:
                frames = Frames(self._frame_bytes)
                life, rest = await self._meet(stream, frames)
            except (PeerBroken, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                return
            session = _Session(stream, self._owned, life, self._at_once, self._frame_bytes)
            self._sessions[session] = None
            try:
                await session.run(frames, rest)
            except PeerBroken as error:
                _LOGGER.warning('{"event":"ledger-guest-cut","why":"%s"}', error)
            finally:
                del self._sessions[session]
        await self._await_end(life)

    async def _meet(self, stream: anyio.abc.ByteStream, frames: Frames) -> tuple[bytes, list[bytes]]:
        ready: list[bytes] = []
        with anyio.move_on_after(_HELLO_S):
            while not ready:
                ready = frames.feed(await stream.receive(_PIECE_BYTES))
        if not ready:
            raise PeerBroken("a process connected to the ledger's owner and said nothing")
        hello = read_hello(ready[0])
        refused = ""
        if hello.v != VERSION:
            refused = f"this owner speaks version {VERSION}, not {hello.v}: run one release everywhere"
        elif hello.ledger != str(self._owned.ledger.path):
            refused = "the processes of one directory have one ledger, and this owner's is another file"
        if self._is_closing:
            raise PeerBroken("this owner is about to end")
        if refused:
            await stream.send(write_frame(Welcome(refused=refused)))
            raise PeerBroken(refused)
        await stream.send(write_frame(self._welcome))
        return hello.life, ready[1:]

    async def _await_end(self, life: bytes) -> None:
        """Give up what a process carried on once it is dead; one that lives may come back for it."""
        looks = iter(_LOOKS_S)
        pause_s = 0.0
        while self._lives.has(life):
            if any(session.life == life for session in self._sessions):
                return
            pause_s = next(looks, pause_s)
            await anyio.sleep(pause_s)
        self._owned.give_up(life)
        self._on_orphans()


class _Session:
    """One connection of another process."""

    def __init__(
        self,
        stream: anyio.abc.ByteStream,
        owned: OwnedLedger,
        life: bytes,
        at_once: int,
        frame_bytes: int,
    ) -> None:
        self.life = life
        self._stream = stream
        self._owned = owned
        self._frame_bytes = frame_bytes
        self._room = anyio.Semaphore(at_once)
        self._open: dict[int, tuple[Numbered, Ticket[Any]]] = {}
        self._ended: deque[tuple[Numbered, Ticket[Any] | Exception]] = deque()
        self._bell = Bell()
        self._last = 0
        self._is_leaving = False
        self._is_empty = anyio.Event()

    async def run(self, frames: Frames, rest: list[bytes]) -> None:
        """Take requests and answer them until the other end closes."""
        broken: PeerBroken | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer)
            try:
                ready = rest
                while True:
                    for frame in ready:
                        await self._take(read_request(frame))
                    ready = frames.feed(await self._stream.receive(_PIECE_BYTES))
            except PeerBroken as error:
                broken = error
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            tasks.cancel_scope.cancel()
        self._is_empty.set()
        for numbered, ticket in self._open.values():
            self._note_late(numbered, ticket)
        if broken is not None:
            raise broken

    def _note_late(self, numbered: Numbered, ticket: Ticket[Any]) -> None:
        """What was taken from a process that has gone ends without an answer, and is not forgotten."""

        def note() -> None:
            if ticket.outcome == "completed":
                self._owned.note_end(numbered.request, ticket.result(), self.life)

        ticket.when_settled(note)

    async def say_bye(self) -> None:
        """Take nothing from now on, and end the connection when what was taken is answered."""
        self._is_leaving = True
        self._bell.ring_here()
        await self._is_empty.wait()
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._stream.send(write_frame(Bye(self._last)))
        await self._stream.aclose()

    async def _take(self, numbered: Numbered) -> None:
        await self._room.acquire()
        if self._is_leaving:
            return  # above the number that the goodbye names
        self._last = numbered.number
        try:
            ticket = self._owned.put(numbered.request, self.life)
        except (CounterfoilError, ValueError) as error:
            self._ended.append((numbered, error))
            self._bell.ring_here()
            return
        self._open[numbered.number] = numbered, ticket

        def note() -> None:
            self._ended.append((numbered, ticket))
            self._bell.ring()

        ticket.when_settled(note)

    async def _answer(self) -> None:
        """Send answers, as many at once as are there: one commit of the ledger is one piece."""
        while True:
            if self._is_leaving and not self._open and not self._ended:
                self._is_empty.set()
            await self._bell.wait()
            pieces: list[bytes] = []
            while self._ended:
                numbered, end = self._ended.popleft()
                self._open.pop(numbered.number, None)
                self._room.release()
                pieces.append(self._write(numbered, end))
            if pieces:
                try:
                    await self._stream.send(b"".join(pieces))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    self._is_empty.set()
                    return

    def _write(self, numbered: Numbered, end: Ticket[Any] | Exception) -> bytes:
        if isinstance(end, Exception):
            return write_failed(numbered.number, end)
        try:
            value = end.result()
        except Exception as error:
            return write_failed(numbered.number, error)
        self._owned.note_end(numbered.request, value, self.life)
        if isinstance(numbered.request, KeptCalls):
            value = _fitting(value, self._frame_bytes)
        data = write_done(numbered.number, value)
        if len(data) > self._frame_bytes:
            return write_failed(numbered.number, LedgerError("what is stored is longer than a frame may be"))
        return data


def _fitting(page: list[KeptCall], limit: int) -> list[KeptCall]:
    """Give as much of a page as fits into a frame, one call at least: who asks goes on behind the last."""
    size = 0
    for place, call in enumerate(page):
        size += len(call.key) + len(call.row.result or b"") + len(call.row.question or b"") + 1_024
        if size > limit // 2 and place:
            return page[:place]
    return page
