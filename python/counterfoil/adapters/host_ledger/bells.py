"""A bell that any thread may ring and one task waits for: however often it rings, the task wakes once."""

from __future__ import annotations

import sys
from collections.abc import Callable

import anyio
import sniffio


class Bell:
    """Made in the event loop that waits for it."""

    def __init__(self) -> None:
        self._soon = _soon_of_this_loop()
        self._event = anyio.Event()
        self._is_ringing = False

    def ring(self) -> None:
        """Wake the task, from its own loop or from any thread."""
        if self._is_ringing:
            return
        self._is_ringing = True
        try:
            self._soon(self._ring)
        except RuntimeError:
            return  # the loop is gone, and the task with it

    def ring_here(self) -> None:
        """Wake the task, from its own loop only: that takes no hop."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for the next ring; what was rung for since the last wait counts."""
        await self._event.wait()
        self._event = anyio.Event()
        # Before what it rang for is looked at: what comes after that rings anew.
        self._is_ringing = False

    def _ring(self) -> None:
        self._event.set()


def _soon_of_this_loop() -> Callable[..., object]:
    if sniffio.current_async_library() == "trio":
        return sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon  # type: ignore[no-any-return]
    import asyncio

    return asyncio.get_running_loop().call_soon_threadsafe
