"""A place where a task waits until another thread wakes it, by each backend's own means.

It knows nothing of what is waited for; tickets wait here.  anyio's wrappers would cost a third of what a
waiting task costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import sniffio

if TYPE_CHECKING:
    import trio


class Place(Protocol):
    """One task's place, for one wait.

    `soon` calls the loop from another thread, at its next turn, by when whoever took the place waits; `wake`
    ends the wait, in the loop, or from any thread where `soon` is None.  One that comes late does no harm.
    """

    @property
    def soon(self) -> Callable[..., object] | None: ...

    @property
    def wake(self) -> Callable[[], object]: ...

    def wait(self) -> Awaitable[None]:
        """Wait until woken, in the task that calls; may be cancelled."""
        ...

    def leave(self) -> None:
        """Give the place up, whether or not anybody waited in it."""
        ...


def take_place() -> Place:
    """Give the running task a place in its loop."""
    if sniffio.current_async_library() != "trio":
        return _AsyncioPlace()
    lowlevel = _trio()
    token = lowlevel.current_trio_token()
    bell = _OF_THREAD.bell
    if bell is None or bell.token is not token:
        bell = _OF_THREAD.bell = _Bell(token)
    bell.waiting += 1
    # Only who is alone: the others are woken together, and nobody is to be awake before them.
    if bell.waiting == 1 and bell.descriptor >= 0:
        return _BellPlace(bell, lowlevel.wait_readable)
    return _TrioPlace(bell, lowlevel)


class _AsyncioPlace:
    __slots__ = ("_future", "soon")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.soon: Callable[..., object] = loop.call_soon_threadsafe
        self._future: asyncio.Future[None] = loop.create_future()

    def wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def wait(self) -> Awaitable[None]:
        return self._future

    def leave(self) -> None:
        pass


class _Bell:
    """A descriptor that any thread makes readable, and how many tasks of one run wait.

    The way through trio's queue takes a task of trio's own and a second turn of the loop, which is a good
    part of what a lone caller waits beside the commit.
    """

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self.token = token
        self.soon: Callable[..., object] = token.run_sync_soon
        self.waiting = 0
        self.descriptor = -1
        if hasattr(os, "eventfd"):
            # Where none is left, the way through trio's queue is open still.
            with contextlib.suppress(OSError):
                self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Whoever may still ring holds the bell, so that the number is not somebody else's by then.
        if self.descriptor >= 0:
            close(self.descriptor)


class _TrioPlace:
    """The place of a task that does not wait alone; they are woken together through trio's own queue."""

    __slots__ = ("_bell", "_lowlevel", "_task", "soon")

    def __init__(self, bell: _Bell, lowlevel: ModuleType) -> None:
        self._bell = bell
        self._lowlevel = lowlevel
        self._task: trio.lowlevel.Task | None = None
        self.soon = bell.soon

    def wake(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._lowlevel.reschedule(task)

    def wait(self) -> Awaitable[None]:
        self._task = self._lowlevel.current_task()
        waiting: Awaitable[None] = self._lowlevel.wait_task_rescheduled(self._stop)
        return waiting

    def _stop(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        stopped: trio.lowlevel.Abort = self._lowlevel.Abort.SUCCEEDED
        return stopped

    def leave(self) -> None:
        self._bell.waiting -= 1


class _BellPlace:
    """The place of a task that waits alone, for its run's bell."""

    __slots__ = ("_bell", "_is_woken", "_wait_readable")

    soon = None

    def __init__(self, bell: _Bell, wait_readable: Callable[[int], Awaitable[None]]) -> None:
        self._bell = bell
        self._wait_readable = wait_readable
        self._is_woken = False

    def wake(self) -> None:
        self._is_woken = True
        os.eventfd_write(self._bell.descriptor, 1)

    async def wait(self) -> None:
        descriptor = self._bell.descriptor
        while not self._is_woken:
            await self._wait_readable(descriptor)
            # A ring for a wait that was cancelled is heard by the next one, who waits on.
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(descriptor)

    def leave(self) -> None:
        self._bell.waiting -= 1


class _OfThread(threading.local):
    """The bell of this thread's latest run.

    A new run takes the place of the one before, so that no thread has more than one.
    """

    bell: _Bell | None = None


_OF_THREAD = _OfThread()


@cache
def _trio() -> ModuleType:
    """Give trio's inner parts; whoever asks runs in its loop already."""
    import trio.lowlevel

    return trio.lowlevel
