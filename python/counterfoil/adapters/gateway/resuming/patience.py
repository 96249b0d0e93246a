"""Counts how often a cursor was put off, so that nobody is put off for ever (row 6 becomes row 7)."""

from __future__ import annotations

from collections import OrderedDict

_LONGEST_S = 60.0
_MOST = 3
_KNOWN = 10_000


class Patience:
    """The cursors that were put off lately: since when, and how often."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def put_off(self, cursor: str, now_s: float) -> int | None:
        """Note that `cursor` is put off; return how often it was before, None once that is enough.

        It is enough from the fourth time on, or after a minute.
        """
        since, count = self._asked.pop(cursor, (now_s, 0))
        if count >= _MOST or now_s - since >= _LONGEST_S:
            return None
        self._asked[cursor] = (since, count + 1)
        if len(self._asked) > _KNOWN:
            self._asked.popitem(last=False)
        return count
