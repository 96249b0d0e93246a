"""The short way of an event: appended, and written to the connection that waits for it, by one task.

It is taken while that connection has written all there is; its end, and what comes at any other time, the
connection reads from the log itself.  What is spared is the switch of tasks, most of what a relay costs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol

import anyio
import sniffio

from counterfoil.adapters.gateway.wire.upstream_port import Take
from counterfoil.stores.interface import LogReader, LogRelay

Write = Callable[[bytes], Awaitable[None]]


class OnRelay(Protocol):
    """Told how many seconds the relay of a piece took, and for how many pieces that stands."""

    def __call__(self, seconds: float, pieces: int = 1) -> None: ...


#: Of the pieces that take the short way, one in so many is timed.
_TIMED_EVERY = 16

#: How long who brings events waits for a slow connection, in one write and in all.  After that in all, the
#: connection is on its own; after that in one write it is given up, and its client resumes.
PATIENCE_S = 5.0


class ShortWay:
    """Between what feeds one stream and the connection that was opened for it.

    The connection lends its reader while it waits, and takes it back before it writes by itself.  On trio it
    is never taken: a server there lets other tasks run at every write, so nothing would be spared.
    """

    __slots__ = (
        "_is_over",
        "_is_writing",
        "_pass_on",
        "_reader",
        "_relay",
        "_settled",
        "_waited_s",
        "_wake",
        "_write",
        "is_broken",
    )

    def __init__(self) -> None:
        #: A write did not come to its end: what the client has is not known, and it has to resume.
        self.is_broken = False
        self._is_over = sniffio.current_async_library() != "asyncio"
        self._is_writing = False
        self._settled = anyio.Event()
        self._waited_s = 0.0
        self._relay: LogRelay | None = None
        self._reader: LogReader | None = None
        #: What feeds the relay and reads for that reader, once it is known, and while it may be used.
        self._pass_on: Callable[[bytes], bytes] | None = None
        self._write: Write | None = None
        self._wake: Callable[[], None] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether what came had the call's answer."""
        return self._relay is not None and self._relay.has_ended

    def lend(self, reader: LogReader, write: Write, wake: Callable[[], None]) -> None:
        """Let what comes be read from `reader` and written with `write` by whoever brings it.

        The lender waits for more; `wake` ends that where it is not the reader that does.
        """
        if not self._is_over:
            self._reader, self._write, self._wake = reader.lendable, write, wake

    def take_back(self) -> None:
        """Let nothing more be written; a write that is on its way goes on until it is `settled`."""
        self._reader = self._pass_on = self._write = self._wake = None

    async def settled(self) -> None:
        """Return once no write is on its way any more, in bounded time."""
        while self._is_writing:
            await self._settled.wait()

    def through(self, relay: LogRelay, on_relay: OnRelay) -> Take:
        """Return what feeds `relay`, and takes this way where it may; it raises what stops the relay."""
        clock, self._relay = time.perf_counter, relay
        write_frames, untimed, most = self._write_frames, 0, 1  # the first is timed

        def take(piece: bytes) -> Awaitable[None] | None:
            nonlocal untimed, most
            pass_on = self._pass_on or self._find(relay)
            if pass_on is None:
                return feed(piece)
            untimed += 1
            if untimed < most:
                frames = pass_on(piece)
            else:
                began = clock()
                frames = pass_on(piece)
                on_relay(clock() - began, untimed)
                untimed, most = 0, _TIMED_EVERY
            return write_frames(frames) if frames else None

        async def feed(piece: bytes) -> None:
            began = clock()
            batch = await relay.feed(piece)
            on_relay(clock() - began)
            batch.check()

        return take

    def _find(self, relay: LogRelay) -> Callable[[bytes], bytes] | None:
        if self._reader is not None and not self._is_writing:
            self._pass_on = relay.passing(self._reader)
        return self._pass_on

    def _write_frames(self, frames: bytes) -> Awaitable[None] | None:
        """Write; return the rest of it if there is one: nearly always the server takes it without waiting."""
        assert self._write is not None, "a reader is lent with what writes"
        steps = self._write(frames).__await__()
        try:
            waits_for = next(steps)
        except StopIteration:
            return None
        except BaseException as error:
            self._give_up_connection(error)
            return None
        self._is_writing, self._pass_on = True, None
        self._settled = anyio.Event()
        return self._finish(_Rest(steps, waits_for))

    async def _finish(self, rest: _Rest) -> None:
        """Wait for the rest of a write, which stays in the task where it began, in bounded time."""
        task, began = asyncio.current_task(), time.monotonic()
        cancels = task.cancelling() if task is not None else 0
        timer = asyncio.get_running_loop().call_later(PATIENCE_S, rest.give_up)
        failure: BaseException | None = None
        try:
            await rest
        except BaseException as error:
            failure = error
        finally:
            timer.cancel()
            self._is_writing = False
            self._settled.set()
        self._waited_s += time.monotonic() - began
        if rest.is_given_up and (task is None or task.cancelling() == cancels):
            failure = TimeoutError()  # it was cancelled here, and by nobody else
        if failure is not None:
            self._give_up_connection(failure)
        elif self._waited_s > PATIENCE_S:
            self._is_over = True
            self.take_back()

    def _give_up_connection(self, failure: BaseException) -> None:
        """Have the connection given up by its own task; raise `failure` if it is meant for this one."""
        self.is_broken = self._is_over = True
        wake = self._wake
        self.take_back()
        if wake is not None:
            wake()
        if not isinstance(failure, Exception):
            raise failure


class _Rest:
    """The rest of a coroutine whose first step was made by hand; awaited, it goes on to its end."""

    __slots__ = ("_steps", "_waits_for", "is_given_up")

    def __init__(self, steps: Generator[Any, Any, None], waits_for: Any) -> None:
        self.is_given_up = False
        self._steps = steps
        self._waits_for = waits_for

    def give_up(self) -> None:
        """Cancel it at what it waits for."""
        self.is_given_up = True
        if isinstance(self._waits_for, asyncio.Future):
            self._waits_for.cancel()

    def __await__(self) -> Generator[Any, Any, None]:
        while True:
            try:
                yield self._waits_for
            except BaseException as error:
                failure: BaseException | None = error
            else:
                failure = asyncio.CancelledError() if self.is_given_up else None
            try:
                if failure is None:
                    self._waits_for = self._steps.send(None)
                else:
                    self._waits_for = self._steps.throw(failure)
            except StopIteration:
                return
