"""Bounds how many connections a gateway writes to at once; each way of answering counts its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from counterfoil.errors import RequestOverLimit


class Connections:
    """The connections that are written to now, by their number."""

    def __init__(self, limit: int, on_limit: Callable[[str], None]) -> None:
        self._limit = limit
        self._on_limit = on_limit
        self._open = 0

    def check(self) -> None:
        """Raise `RequestOverLimit` (503) if there are as many as there may be."""
        if self._open >= self._limit:
            raise RequestOverLimit(503, "reads_at_once", "the gateway has as many connections as it takes")

    def is_full(self) -> bool:
        """Whether there are as many as there may be; whoever asks in vain is counted."""
        if self._open < self._limit:
            return False
        self._on_limit("reads_at_once")
        return True

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one while the block is open."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
