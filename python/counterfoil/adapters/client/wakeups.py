"""One timer for all streams of a connection, so that no stream needs a task of its own for its deadlines.

It wakes whoever asked, once, and decides nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable

import anyio
import sniffio

_SLACK = 64


def loop_clock() -> Callable[[], float]:
    """Return the running loop's own clock: `anyio.current_time` without looking for the loop each time."""
    if sniffio.current_async_library() == "asyncio":
        return asyncio.get_running_loop().time
    import trio

    return trio.current_time


class Wakeup:
    """One waker and the time of its next call; a later plan replaces an earlier one."""

    __slots__ = ("at", "call")

    def __init__(self, call: Callable[[], None]) -> None:
        self.at = math.inf
        self.call = call


class Wakeups:
    """Calls wakers at their times, while `run` runs."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Wakeup]] = []
        self._live = 0
        self._count = 0
        self._changed = anyio.Event()

    def plan(self, wakeup: Wakeup, at: float) -> None:
        """Call the waker at `at` (seconds of `anyio.current_time()`) and at no time planned before."""
        self._live += wakeup.at == math.inf
        wakeup.at = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, wakeup))
        self._compact()
        if self._heap[0][2] is wakeup:
            self._changed.set()

    def forget(self, wakeup: Wakeup) -> None:
        """Call the waker no more."""
        self._live -= wakeup.at != math.inf
        wakeup.at = math.inf
        self._compact()

    async def run(self) -> None:
        """Call wakers until cancelled."""
        while True:
            self._call_due(anyio.current_time())
            self._changed = anyio.Event()
            deadline = self._heap[0][0] if self._heap else math.inf
            with anyio.CancelScope(deadline=deadline):
                await self._changed.wait()

    def _call_due(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            at, _, wakeup = heapq.heappop(self._heap)
            if wakeup.at == at:
                self._live -= 1
                wakeup.at = math.inf
                wakeup.call()

    def _compact(self) -> None:
        # Replaced and forgotten times stay in the heap until they are most of it.
        if len(self._heap) > _SLACK + 2 * self._live:
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].at]
            heapq.heapify(self._heap)
