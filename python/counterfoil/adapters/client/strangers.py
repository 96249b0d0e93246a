"""Tells which events another stream of the session had: some stores replay to one what belongs to all.

It looks at ids that nobody can mint twice, and only at those; the connection asks it before it delivers.
"""

from __future__ import annotations

from collections import OrderedDict

from counterfoil.model.stream import Place
from counterfoil.protocol.client_stream.foreign_ids import is_unguessable

#: Events that are remembered; the oldest make room.
SEEN_MAX = 8_192


class Strangers:
    """The latest events of one session with random ids, and the stream on which each came first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], str] = OrderedDict()

    def had(self, stream: str, place: Place) -> bool:
        """Remember an event, and return whether another stream had the very same one before this one."""
        if not place.foreign or not is_unguessable(place.event_id):
            return False
        event = (place.event_id, place.digest)
        first = self._seen.setdefault(event, stream)
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return first != stream
