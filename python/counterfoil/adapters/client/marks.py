"""How far a stream is processed: the events handed over, in their order, and which of them are done.

It moves a low-water mark and decides nothing; the driver tells it of events, whoever consumes them of ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Held:
    """One event that was handed over; `done` may be called once its effect is durable, in any order."""

    __slots__ = ("_marks", "is_done", "position")

    def __init__(self, marks: Marks, position: int) -> None:
        self._marks = marks
        self.position = position
        self.is_done = False

    def done(self) -> None:
        """Count the event as processed; after the stream has begun anew this says nothing any more."""
        self.is_done = True
        self._marks.advance()


class Marks:
    """The events of one stream between the processed mark and the last one handed over."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._held: deque[Held] = deque()

    def add(self, position: int) -> Held:
        """Take the next event."""
        held = Held(self, position)
        self._held.append(held)
        return held

    def advance(self) -> None:
        """Move the mark over every event that is done, and tell where it stands."""
        through = None
        while self._held and self._held[0].is_done:
            through = self._held.popleft().position
        if through is not None:
            self._tell(through)

    def clear(self) -> None:
        """Forget all: another history begins, and what is done of the old one moves nothing in it."""
        self._held.clear()
