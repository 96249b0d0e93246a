"""Bounds how many clients are held before their answer, as the store asks for whoever comes too often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Holds:
    """Counts who is held before being answered; at the bound the next is answered at once."""

    def __init__(self, limit: int, on_limit: Callable[[str], None]) -> None:
        self._limit = limit
        self._on_limit = on_limit
        self._held = 0

    @property
    def is_full(self) -> bool:
        """Whether nobody else may be held now; whoever asks in vain is counted."""
        if self._held < self._limit:
            return False
        self._on_limit("holds_at_once")
        return True

    def note_limit(self, limit: str) -> None:
        """Count who meets another bound, and is held for that."""
        self._on_limit(limit)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one that is held while the block is open."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
