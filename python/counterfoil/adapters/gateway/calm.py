"""Slows a client that reconnects to one stream again and again without getting anything from it.

One stock client does so 600 times a second, and another loses its session at any refusal: so it is held,
never refused, and never when there is something to read.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from counterfoil.native import Scope, StreamToken

_WITHIN_S = 10.0
_FREE = 3
_FIRST_S = 0.5
_LONGEST_S = 15.0
_KNOWN = 10_000

Key = tuple[Scope, StreamToken]


class Calm:
    """Counts, per stream, the connections of the last ten seconds that carried no data."""

    def __init__(self) -> None:
        self._times: OrderedDict[Key, deque[float]] = OrderedDict()

    def hold_s(self, key: Key, now_s: float) -> float:
        """Note a connection, and return how long it is to be held."""
        times = self._times.setdefault(key, deque(maxlen=16))
        self._times.move_to_end(key)
        if len(self._times) > _KNOWN:
            self._times.popitem(last=False)
        while times and times[0] < now_s - _WITHIN_S:
            times.popleft()
        times.append(now_s)
        above = len(times) - _FREE
        return min(_FIRST_S * 2 ** (above - 1), _LONGEST_S) if above > 0 else 0.0

    def note_data(self, key: Key) -> None:
        """A connection of this stream carried data: it makes progress."""
        self._times.pop(key, None)


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

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one that is held while the block is open."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
