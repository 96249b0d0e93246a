"""The events that we may be shown again, and the two positions between which they lie.

*Received* is the furthest event read, *processed* the mark below which every event is done; only the second
may be asked with.  It compares nothing: that is what the files on ids are for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from counterfoil.model.stream import HeldEvent


class Positions:
    """A bounded tail of one stream, from the event before the processed one to the last received."""

    def __init__(self, held: Iterable[HeldEvent] = (), *, processed: int = 0) -> None:
        self._held: deque[HeldEvent] = deque(held)
        self._by_id = {event.event_id: event for event in self._held if event.has_data}
        self._by_position = {event.position: event for event in self._held if event.has_data}
        self._pinned: int | None = None
        self.processed = processed
        self.received = max((event.position for event in self._held), default=processed)

    @property
    def held(self) -> tuple[HeldEvent, ...]:
        """The events held, oldest first."""
        return tuple(self._held)

    @property
    def unprocessed(self) -> int:
        """How many received events are not processed yet."""
        return self.received - self.processed

    @property
    def newest_held(self) -> int:
        """The position of the newest event with an id, 0 where there is none."""
        return next((event.position for event in reversed(self._held) if event.has_data), 0)

    def place_of(self, event_id: str) -> int:
        """Return the position of a held event or echo, 0 where it is not held."""
        return next((event.position for event in self._held if event.event_id == event_id), 0)

    def next_held(self, event_id: str) -> HeldEvent | None:
        """Return the held event with data that came after this event or echo."""
        start = next((n for n, event in enumerate(self._held) if event.event_id == event_id), None)
        if start is None:
            return None
        return next((event for event in list(self._held)[start + 1 :] if event.has_data), None)

    def by_id(self, event_id: str) -> HeldEvent | None:
        """Return the held event with data that has this id."""
        return self._by_id.get(event_id)

    def by_position(self, position: int) -> HeldEvent | None:
        """Return the held event with data at this position."""
        return self._by_position.get(position)

    def add(self, event: HeldEvent) -> None:
        """Hold an event that was not held before; an echo has the position of the event before it.

        An event without an id is counted and not held: nobody can ask with it.
        """
        if event.has_data:
            self.received = max(self.received, event.position)
        if not event.event_id:
            return
        self._held.append(event)
        if event.has_data:
            self._by_position[event.position] = event
            self._by_id[event.event_id] = event

    def settle(self, through: int) -> None:
        """Move the processed mark; it never goes back, nor beyond what was received."""
        self.processed = max(self.processed, min(through, self.received))
        self._trim()

    def pin(self, event_id: str) -> None:
        """Hold everything from this event on, whatever is processed meanwhile: it may all come again."""
        self._pinned = self.place_of(event_id) if event_id else None

    def unpin(self) -> None:
        """What was asked for again has come."""
        self._pinned = None
        self._trim()

    def _trim(self) -> None:
        # The event before the processed one stays: an overlap is asked for with it.
        limit = self.processed if self._pinned is None else min(self.processed, self._pinned)
        while len(self._held) > 1 and self._held[1].position < limit:
            gone = self._held.popleft()
            if gone.has_data:
                self._by_position.pop(gone.position, None)
                self._by_id.pop(gone.event_id, None)

    def forget(self) -> None:
        """Drop every event held: the stream took its cursor back (an empty id)."""
        self._held.clear()
        self._by_id.clear()
        self._by_position.clear()

    def cursor(self) -> HeldEvent | None:
        """Return the newest event or echo with an id at or below the processed mark."""
        return self._newest(self.processed)

    def predecessor(self) -> HeldEvent | None:
        """Return the older of the cursor and what came before the last event received."""
        return self._newest(min(self.processed, self.received - 1))

    def newest(self) -> HeldEvent | None:
        """Return the last one received that has an id."""
        return self._newest(self.received)

    def _newest(self, limit: int) -> HeldEvent | None:
        candidates = (event for event in reversed(self._held) if event.position <= limit)
        return next(candidates, None)
