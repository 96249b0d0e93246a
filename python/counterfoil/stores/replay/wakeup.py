"""Wakes one waiting task of trio or asyncio from any thread.

It must hold no state of the store; readers make one waker for each wait and hand it to the store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import anyio
from anyio.lowlevel import current_token


class Waker:
    """A callable that ends one `wait`; calling it again, or too late, does nothing."""

    __slots__ = ("_event", "_schedule", "_thread")

    def __init__(self) -> None:
        native = current_token().native_token
        self._event = anyio.Event()
        self._thread = threading.get_ident()
        # trio's token is not named here: trio must stay unloaded where nobody uses it.
        name = "call_soon_threadsafe" if isinstance(native, asyncio.AbstractEventLoop) else "run_sync_soon"
        self._schedule = cast("Callable[[Callable[[], None]], object]", getattr(native, name))

    def __call__(self) -> None:
        """Wake the waiter, in its own thread or from another one."""
        if self._thread == threading.get_ident():
            try:
                self._event.set()
            except RuntimeError:
                pass  # in the thread of the loop, but outside of it
            else:
                return
        with suppress(RuntimeError):  # the loop is gone, and its waiter with it
            self._schedule(self._event.set)

    async def wait(self) -> None:
        """Return once the waker was called."""
        await self._event.wait()
