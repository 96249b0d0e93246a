"""What has arrived and waits for the application: a bounded queue, and the iterator that empties it.

An event is done when the application asks for the one behind it.  While nobody iterates, the oldest make
room; nothing is then held back, because nothing would ever read it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.lowlevel

from counterfoil.adapters.client.messages import read_params
from counterfoil.model.stream import Place
from counterfoil.model.verdicts import EventJudgement, ResumeVerdict

#: What is kept while nobody iterates.
UNREAD_EVENTS = 256
#: A reader that never waits lets others run this often.
YIELD_EVERY = 64


class Arrival:
    """One event as it arrived, after the verdict on its stream.

    `stream` is the connection's name for the stream and `place` where the event stands in it; `data` is its
    exact text, `method` that of the JSON-RPC message in it.  `judgement` is the verdict on the event,
    `verdict` that on its stream.  `at_most_once` says that the stream was not proven continuous.
    """

    __slots__ = ("at_most_once", "data", "finish", "judgement", "method", "place", "stream", "verdict")

    def __init__(
        self,
        stream: str,
        place: Place,
        method: str,
        data: bytes,
        judgement: EventJudgement,
        verdict: ResumeVerdict | None,
        at_most_once: bool,
        finish: Callable[[], None] | None,
    ) -> None:
        self.stream = stream
        self.place = place
        self.method = method
        self.data = data
        self.judgement = judgement
        self.verdict = verdict
        self.at_most_once = at_most_once
        #: To be called once the event is processed; None for one that has no place in a sequence.
        self.finish = finish

    def __repr__(self) -> str:
        return f"<Arrival {self.method} on {self.stream} at {self.place.position}>"

    @property
    def params(self) -> Any:
        """The message's parameters, decoded at each call."""
        return read_params(self.data)


class Inbox:
    """The events of all streams of a connection, in the order in which they arrived."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._arrivals: deque[Arrival] = deque()
        self._size = 0
        self._changed = anyio.Event()
        self._room = anyio.Event()
        self._is_read = False
        self._interrupts: deque[Exception] = deque()
        self._is_closed = False
        self._closed_by: Exception | None = None
        self._taken = 0

    def __len__(self) -> int:
        return len(self._arrivals)

    @property
    def has_room(self) -> bool:
        """Whether more may be read from the server."""
        return self._size < self._bytes_max or not self._is_read

    async def wait_for_room(self) -> None:
        """Return once there is room."""
        while not self.has_room:
            self._room = anyio.Event()
            await self._room.wait()

    def put(self, arrival: Arrival) -> None:
        """Take an event."""
        self._arrivals.append(arrival)
        self._size += len(arrival.data)
        if self._is_read:
            self._changed.set()
            return
        while len(self._arrivals) > UNREAD_EVENTS or self._size >= self._bytes_max:
            _finish(self._take())

    def interrupt(self, error: Exception) -> None:
        """Raise `error` from the iteration once, behind what is here; iterating may go on after it."""
        self._interrupts.append(error)
        self._changed.set()

    def close(self, error: Exception | None) -> None:
        """End the iteration behind what is here, by raising `error` if there is one."""
        if not self._is_closed:
            self._is_closed, self._closed_by = True, error
        self._changed.set()

    def read(self) -> Arrivals:
        """Return the iterator; raises RuntimeError where somebody iterates already."""
        if self._is_read:
            raise RuntimeError("somebody iterates the deliveries of this connection already")
        self._is_read = True
        return Arrivals(self)

    def release(self) -> None:
        """Let the oldest make room again: nobody iterates any more."""
        self._is_read = False
        self._room.set()

    def take_now(self) -> Arrival | None:
        """Return the next event if it is here, and it is nobody else's turn to run."""
        self._taken += 1
        if not self._arrivals or self._taken % YIELD_EVERY == 0:
            return None
        return self._take()

    async def take(self) -> Arrival | None:
        """Wait for the next event; None at the end.  Raises what interrupted or closed the connection."""
        if self._arrivals:
            await anyio.lowlevel.checkpoint()
        while not self._arrivals:
            if self._interrupts:
                raise self._interrupts.popleft()
            if self._is_closed:
                if self._closed_by is not None:
                    raise self._closed_by
                return None
            self._changed = anyio.Event()
            await self._changed.wait()
        return self._take()

    async def wait_for_end(self) -> None:
        """Return at the end without taking anything; raises what interrupted or closed the connection."""
        while not self._is_closed:
            if self._interrupts:
                raise self._interrupts.popleft()
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._closed_by is not None:
            raise self._closed_by

    def _take(self) -> Arrival:
        arrival = self._arrivals.popleft()
        self._size -= len(arrival.data)
        if self._size < self._bytes_max:
            self._room.set()
        return arrival


class Arrivals:
    """Iterates the events of a connection, inside `async with`.

    Asking for the next event says that the one before it is processed; leaving the block leaves the last
    one unprocessed, so that it comes again.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._last: Arrival | None = None

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inbox.release()

    @property
    def waiting(self) -> int:
        """How many events have arrived and not been taken yet."""
        return len(self._inbox)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Arrival:
        last, self._last = self._last, None
        if last is not None:
            _finish(last)
        arrival = self._inbox.take_now() or await self._inbox.take()
        if arrival is None:
            raise StopAsyncIteration
        self._last = arrival
        return arrival


def _finish(arrival: Arrival) -> None:
    if arrival.finish is not None:
        arrival.finish()
