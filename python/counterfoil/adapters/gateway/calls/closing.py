"""Closing a response where that cancels its call: at once, or when nobody came back within a grace.

A call whose revision never cancels by a close has no `Closing`.  What was cancelled is told to `on_cancel` in
the same step, so that nobody takes the call over in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.calls.calls import Call
from counterfoil.adapters.gateway.calls.connection import Connection
from counterfoil.native import Scope, StreamToken


class Closing:
    """The connections that one call is read by; its upstream leg is closed when the last of them is gone."""

    def __init__(self, call: Call, tasks: TaskGroup, *, grace_s: float) -> None:
        self.grace_s = grace_s
        self.is_cancelled = False
        #: Told before the leg is closed, unless the answer is here already.
        self.on_cancel: list[Callable[[], None]] = []
        #: Told when the grace ends with nobody there, whatever became of the call.
        self.on_lapse: list[Callable[[], None]] = []
        #: Awaited between the decision and the close of the leg.
        self.before_close: Callable[[], Awaitable[None]] | None = None
        self._call = call
        self._tasks = tasks
        self._present: set[Connection] = set()
        self._joined: Closing | None = None
        self._is_armed = True
        self._left = 0

    def note_id(self) -> None:
        """An id was given: nothing follows from that here."""

    def note_handed_over(self, connection: Connection) -> None:
        """The answer was handed over: nothing is left to cancel."""

    def note_attached(self, connection: Connection) -> None:
        """A client reads, or reads again."""
        self._present.add(connection)
        if self._joined is not None:
            self._joined.note_attached(connection)

    def note_gone(self, connection: Connection) -> None:
        """A client is gone; the last one's leaving counts."""
        self._present.discard(connection)
        if self._joined is not None:
            self._joined.note_gone(connection)
        elif not self._present:
            self._begin_lapse()

    def _begin_lapse(self) -> None:
        self._left += 1
        if self.grace_s:
            self._tasks.start_soon(self._lapse_later, self._left)
        else:
            self._lapse()

    def join(self, other: Closing) -> None:
        """Let the connections of this call's caller count for another call: it was attached to that one."""
        for connection in self._present:
            other.note_attached(connection)
        other.on_lapse.extend(self.on_lapse)
        self._joined = other

    def leave(self) -> None:
        """Count the connections for this call itself again: the other one is over, and it runs now."""
        if self._joined is not None:
            self._joined = None
            if not self._present:
                self._begin_lapse()

    def disarm(self) -> None:
        """Cancel nothing any more: somebody waits whose leaving is no cancellation."""
        self._is_armed = False

    async def _lapse_later(self, left: int) -> None:
        await anyio.sleep(self.grace_s)
        if left == self._left and not self._present and self._joined is None:
            self._lapse()

    def _lapse(self) -> None:
        for told in self.on_lapse:
            told()
        if not self._is_armed or self._call.is_over or self._call.stream.has_answer or self.is_cancelled:
            return
        self.is_cancelled = True
        for told in self.on_cancel:
            told()
        self._tasks.start_soon(self._close)

    async def _close(self) -> None:
        if self.before_close is not None:
            await self.before_close()
        self._call.cancel()


class Closings:
    """The calls of one gateway that a closed response may cancel later, by their stream: who may resume."""

    def __init__(self) -> None:
        self._by_stream: dict[tuple[Scope, StreamToken], Closing] = {}

    def add(self, call: Call, tasks: TaskGroup, *, grace_s: float) -> Closing:
        """Take in a call; with a grace it can be found until that has ended."""
        closing = Closing(call, tasks, grace_s=grace_s)
        if grace_s:
            place = (call.stream.scope, call.stream.token)
            self._by_stream[place] = closing
            closing.on_lapse.append(lambda: self._forget(place))
        return closing

    def find(self, scope: Scope, token: StreamToken) -> Closing | None:
        """Return the call whose stream this is, while its grace lasts."""
        return self._by_stream.get((scope, token))

    def drop(self, call: Call) -> None:
        """Forget a call that is not made here after all."""
        self._forget((call.stream.scope, call.stream.token))

    def _forget(self, place: tuple[Scope, StreamToken]) -> None:
        self._by_stream.pop(place, None)
