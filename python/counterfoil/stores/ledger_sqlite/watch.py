"""A second small thread that tells when a handler does not return: the writer's own thread cannot.

It stops nothing, because a thread cannot be stopped; it says so once per handler that stays.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from counterfoil.errors import LedgerStalled

_log = logging.getLogger("counterfoil.ledger")


class StallWatch:
    """Looks at the writer about as often as its handlers' limit."""

    def __init__(
        self,
        handler_since: Callable[[], float | None],
        *,
        limit_s: float,
        on_stalled: Callable[[LedgerStalled], None] | None,
    ) -> None:
        self._handler_since = handler_since
        self._limit_s = limit_s
        self._on_stalled = on_stalled
        self._told: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counterfoil-ledger-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stop.set()

    def stalled(self) -> LedgerStalled | None:
        """Say what holds the ledger now, None while nothing does."""
        since = self._handler_since()
        if since is None or time.monotonic() - since <= self._limit_s:
            return None
        return LedgerStalled(
            f"a transactional handler has not returned for {time.monotonic() - since:.1f} s and holds the "
            "ledger: every other write waits, none is lost"
        )

    def _run(self) -> None:
        while not self._stop.wait(self._limit_s / 2):
            since = self._handler_since()
            stalled = self.stalled()
            if stalled is None or since == self._told:
                continue
            self._told = since
            _log.error("%s", stalled)
            if self._on_stalled is not None:
                self._on_stalled(stalled)
