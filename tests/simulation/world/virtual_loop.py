"""An asyncio event loop in virtual time: it waits for nothing, and the same work gives the same order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Clock:
    """In place of a selector: being asked to wait moves the time on."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        self.now += timeout or 0.0
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs coroutines in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self.clock = _Clock()
        self._clock_resolution = 1e-9
        self._broken: list[BaseException] = []
        self.set_exception_handler(self._note_broken)

    def time(self) -> float:
        return self.clock.now

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run until `work` is done; raises what a callback raised meanwhile."""
        value = self.run_until_complete(work)
        if self._broken:
            raise self._broken[0]
        return value

    def pass_time(self, seconds: float) -> None:
        """Let everything happen that is due in these seconds; raises what a callback raised."""
        until = self.clock.now + seconds
        asyncio._set_running_loop(self)
        try:
            while self._ready or (self._scheduled and self._scheduled[0].when() <= until):
                self._run_once()
        finally:
            asyncio._set_running_loop(None)
        self.clock.now = max(self.clock.now, until)
        if self._broken:
            raise self._broken[0]

    def _note_broken(self, _: Any, context: dict[str, Any]) -> None:
        self._broken.append(context.get("exception") or RuntimeError(context["message"]))

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass
