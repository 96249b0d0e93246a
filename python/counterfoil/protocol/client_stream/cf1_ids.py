"""Compare an event that carries one of our ids with the cursor asked for, and with the event before it.

Epoch and sequence are one value: without the same epoch no number is compared.  It proves no signature; the
server's MAC is for the server.
"""

from __future__ import annotations

from typing import NamedTuple

from counterfoil.errors import ForeignEventId, MalformedEventId, UnknownEventIdVersion
from counterfoil.model.events import Identity, Seen
from counterfoil.model.evidence import Echo, First
from counterfoil.native import Cursor, EventId
from counterfoil.protocol.client_stream.positions import Positions


class FoundFirst(NamedTuple):
    """The first event with data as a fact, and what the verdict is filled in with."""

    fact: First
    sequence: int | None = None
    epoch: str | None = None

    @classmethod
    def nothing(cls) -> FoundFirst:
        """Return the fact that no event with data was seen yet."""
        return cls(First.NONE)


class Identified(NamedTuple):
    """An event as a fact; `cursor` is its place, where its id has one."""

    identity: Identity
    seen: Seen = Seen.NEVER
    cursor: Cursor | None = None


def read_cursor(event_id: str) -> Cursor | None:
    """Return the place that one of our ids names; None for an id of any other scheme or version."""
    try:
        return EventId.parse(event_id).cursor
    except (ForeignEventId, UnknownEventIdVersion, MalformedEventId):
        return None


def compare_echo(event_id: str, asked: Cursor) -> Echo:
    """Return what an echo says of the cursor asked for; compared decoded, not as text."""
    echoed = read_cursor(event_id)
    if echoed is None:
        return Echo.FOREIGN
    if (echoed.stream, echoed.epoch) != (asked.stream, asked.epoch):
        return Echo.OTHER_EPOCH
    return Echo.OURS if echoed == asked else Echo.OTHER_POSITION


def compare_first(event_id: str | None, asked: Cursor, positions: Positions) -> FoundFirst:
    """Return what the first event with data says, judged against the position asked for."""
    if not event_id:
        return FoundFirst(First.NO_ID)
    found = read_cursor(event_id)
    if found is None:
        return FoundFirst(First.OTHER_SCHEME)
    if found.stream != asked.stream:
        return FoundFirst(First.OTHER_STREAM, found.sequence, found.epoch)
    if found.epoch != asked.epoch:
        return FoundFirst(First.OTHER_EPOCH, found.sequence, found.epoch)
    return FoundFirst(_compare_sequence(found, asked, positions), found.sequence, found.epoch)


def _compare_sequence(found: Cursor, asked: Cursor, positions: Positions) -> First:
    if found.sequence < asked.sequence:
        return First.BELOW
    if found.sequence == asked.sequence:
        return First.SAME if found.digest == asked.digest else First.DIVERGED
    held = positions.by_position(found.sequence)
    if held is not None and held.digest != found.digest:
        return First.DIVERGED
    # Events that we already hold are never a gap.
    reachable = max(asked.sequence, positions.received) + 1
    return First.NEXT if found.sequence <= reachable else First.BEYOND


def identify(
    event_id: str | None, previous: Cursor | None, positions: Positions, *, base: int | None = None
) -> Identified:
    """Return what an event's id says against the event before it.

    `previous` is None where a history begins; `base` is then the sequence that the server says it follows.
    """
    if event_id is None:
        return Identified(Identity.ABSENT)
    if event_id == "":
        return Identified(Identity.EMPTY)
    found = read_cursor(event_id)
    if found is None:
        return Identified(Identity.OTHER_SCHEME)
    if previous is None:
        return _identify_beginning(found, base)
    if found.stream != previous.stream:
        return Identified(Identity.OTHER_STREAM)
    if found.epoch != previous.epoch:
        return Identified(Identity.OTHER_EPOCH)
    return _identify_sequence(found, previous, positions)


def _identify_beginning(found: Cursor, base: int | None) -> Identified:
    if base is None or found.sequence == base + 1:
        return Identified(Identity.NEXT, Seen.NEVER, found)
    return Identified(Identity.NOT_ABOVE if found.sequence <= base else Identity.JUMP)


def _identify_sequence(found: Cursor, previous: Cursor, positions: Positions) -> Identified:
    if found.sequence <= previous.sequence:
        return Identified(Identity.NOT_ABOVE)
    held = positions.by_position(found.sequence)
    if held is not None and held.digest != found.digest:
        return Identified(Identity.DIFFERENT)
    if found.sequence > previous.sequence + 1:
        # What we hold is no loss, but what was left out may have been rewritten: only asking again tells.
        return Identified(Identity.JUMP)
    return Identified(Identity.NEXT, Seen.NEVER if held is None else Seen.ANSWERED, found)
