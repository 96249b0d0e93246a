"""Follow one stream's events: whose ids they carry, where each one stands, and what to ask with next.

It judges nothing.  The stream tells it every echo and event; it must not be told of one before the verdict.
"""

from __future__ import annotations

from typing import NamedTuple

import counterfoil.protocol.client_stream.cf1_ids as cf1_ids
import counterfoil.protocol.client_stream.foreign_ids as foreign_ids
from counterfoil.model.events import Identity, Scheme, Seen
from counterfoil.model.evidence import Asked, First
from counterfoil.model.stream import HeldEvent, Place, StreamRecord
from counterfoil.native import Cursor
from counterfoil.protocol.client_stream.cf1_ids import FoundFirst, Identified, read_cursor
from counterfoil.protocol.client_stream.foreign_ids import ASKED, Declared, Order, digest_event, read_number
from counterfoil.protocol.client_stream.positions import Positions


class AskedWith(NamedTuple):
    """How a connection was asked for, and the cursor that went with it."""

    how: Asked
    event_id: str = ""
    cursor: Cursor | None = None
    number: int | None = None


class Arrived(NamedTuple):
    """One event with data, as the track sees it."""

    name: str
    data: bytes
    event_id: str | None


class Track:
    """Where a stream stands; `handle` and `epoch` name it locally, as long as its ids are not ours."""

    def __init__(self, handle: str, epoch: str, declared: Declared) -> None:
        self._handle = handle
        self._declared = declared
        self._previous: Cursor | None = None
        self._previous_number: int | None = None
        self._replayed = 0
        self._strays = 0
        self.start(epoch)

    def start(self, epoch: str) -> None:
        """Begin a new history under a new local epoch; nothing of the old one is kept."""
        self.epoch = epoch
        self.scheme = Scheme.NONE
        self.positions = Positions()
        self._previous = None
        self._previous_number = None
        self._replayed = 0
        self._base: int | None = None

    def restore(self, record: StreamRecord) -> None:
        """Go on where an earlier process stopped.

        What it had received and not processed is asked for again.
        """
        held = [event for event in record.held if event.position <= record.processed]
        self.epoch = record.epoch
        self.positions = Positions(held, processed=record.processed)
        if held:
            self.scheme = Scheme.FOREIGN if read_cursor(held[-1].event_id) is None else Scheme.CF1

    @property
    def has_cursor(self) -> bool:
        """Whether there is anything to ask with."""
        return self.positions.cursor() is not None

    @property
    def sequence(self) -> int | None:
        """The sequence of the last event of ours on this connection."""
        return None if self._previous is None else self._previous.sequence

    @property
    def ids_epoch(self) -> str | None:
        """The epoch that our ids name on this connection."""
        return None if self._previous is None else self._previous.epoch

    def ask(self, *, newest: bool) -> AskedWith:
        """Return what to ask with: our processed event, or the position from which an overlap shows.

        With `newest` a foreign stream gives the overlap up and asks with the last id that it received.
        """
        if self.scheme is Scheme.FOREIGN:
            chosen = self.positions.newest() if newest else self._overlap_base()
        else:
            chosen = self.positions.cursor()
        if chosen is None:
            return AskedWith(Asked.NO_CURSOR)
        cursor = read_cursor(chosen.event_id)
        if cursor is not None:
            return AskedWith(Asked.CF1, chosen.event_id, cursor, cursor.sequence)
        order = self._declared.order
        number = None if order is Order.OPAQUE else read_number(chosen.event_id)
        return AskedWith(ASKED[order], chosen.event_id, None, number)

    def _overlap_base(self) -> HeldEvent | None:
        return self.positions.predecessor() or self.positions.cursor()

    def is_probe(self, asked: AskedWith) -> bool:
        """Return whether this position was chosen for its overlap, so that a newer one is left to try."""
        newest = self.positions.newest()
        return self.scheme is Scheme.FOREIGN and newest is not None and newest.event_id != asked.event_id

    def connect(self, asked: AskedWith) -> None:
        """Judge what follows against the position asked for."""
        self._previous = asked.cursor
        self._previous_number = asked.number
        self.positions.pin(asked.event_id)
        self._replayed = self.positions.place_of(asked.event_id)

    def compare_first(self, arrived: Arrived, asked: AskedWith) -> FoundFirst:
        """Return what the first event with data says of the cursor asked for."""
        if not asked.event_id:
            return FoundFirst(First.UNKNOWN if arrived.event_id else First.NO_ID)
        if asked.cursor is not None:
            return cf1_ids.compare_first(arrived.event_id, asked.cursor, self.positions)
        return foreign_ids.compare_first(
            arrived.event_id,
            digest_event(arrived.name, arrived.data),
            asked.event_id,
            self.positions,
            order=self._declared.order,
        )

    def begin_at(self, echo_id: str | None, after: int | None) -> None:
        """Take the base of a new history: the echo, or the sequence that the server says comes before."""
        if echo_id:
            self._take_echo(echo_id)
        elif after is not None:
            self._base = after

    def _take_echo(self, echo_id: str) -> None:
        cursor = read_cursor(echo_id)
        if cursor is None:
            self.scheme = Scheme.FOREIGN
            self.positions.add(
                HeldEvent(position=self.positions.received, event_id=echo_id, digest="", has_data=False)
            )
            return
        self.scheme = Scheme.CF1
        base = HeldEvent(position=cursor.sequence, event_id=echo_id, digest=cursor.digest, has_data=False)
        self.positions = Positions([base], processed=cursor.sequence)
        self._previous = cursor

    def echo(self, echo_id: str) -> None:
        """Take an echo on a continuous stream: it moves a foreign cursor; ours it may only begin.

        Ours never moves by an echo afterwards, or a server that names its newest event would skip what lies
        between.
        """
        is_foreign = read_cursor(echo_id) is None
        if echo_id and (self.scheme is Scheme.NONE or (self.scheme is Scheme.FOREIGN and is_foreign)):
            self._take_echo(echo_id)

    def identify(self, arrived: Arrived) -> Identified:
        """Return what the event's id says against the event before it."""
        if self.scheme is Scheme.NONE and arrived.event_id:
            is_foreign = read_cursor(arrived.event_id) is None
            self.scheme = Scheme.FOREIGN if is_foreign else Scheme.CF1
        if self.scheme is Scheme.CF1:
            return cf1_ids.identify(arrived.event_id, self._previous, self.positions, base=self._base)
        digest = digest_event(arrived.name, arrived.data)
        found = foreign_ids.identify(
            arrived.event_id, digest, self._previous_number, self.positions, order=self._declared.order
        )
        return self._unless_replay_is_short(found)

    def _unless_replay_is_short(self, found: Identified) -> Identified:
        """A new event before all that we hold have come again: the server has lost one of them."""
        is_new = found.identity is Identity.NEXT and found.seen is Seen.NEVER
        if is_new and self._replayed < self.positions.newest_held:
            return Identified(Identity.JUMP)
        return found

    def take_next(self, event_id: str | None) -> Place | None:
        """Take an event of ours that follows the last one and was never seen; None for any other."""
        previous = self._previous
        if previous is None or not event_id:
            return None
        cursor = read_cursor(event_id)
        if cursor is None:
            return None
        stream, epoch, sequence = cursor.stream, cursor.epoch, cursor.sequence
        is_next = sequence == previous.sequence + 1 and sequence > self.positions.received
        if not is_next or epoch != previous.epoch or stream != previous.stream:
            return None
        self._previous = cursor
        digest = cursor.digest
        self.positions.add(HeldEvent(position=sequence, event_id=event_id, digest=digest))
        return Place(
            stream=stream, epoch=epoch, position=sequence, event_id=event_id, digest=digest, foreign=False
        )

    def take(self, arrived: Arrived, found: Identified) -> tuple[Place, bool]:
        """Take the event as the next one.

        Return its place, and whether it lies beyond all received so far.
        """
        if found.cursor is not None:
            return self._take_ours(arrived.event_id or "", found.cursor)
        return self._take_foreign(arrived)

    def _take_ours(self, event_id: str, cursor: Cursor) -> tuple[Place, bool]:
        if self._previous is None and not self.positions.held:
            # The first event of a history whose base nobody named: it begins here.
            self.positions = Positions(processed=cursor.sequence - 1)
        self._previous = cursor
        is_new = cursor.sequence > self.positions.received
        if is_new:
            self.positions.add(HeldEvent(position=cursor.sequence, event_id=event_id, digest=cursor.digest))
        place = Place(
            stream=cursor.stream,
            epoch=cursor.epoch,
            position=cursor.sequence,
            event_id=event_id,
            digest=cursor.digest,
            foreign=False,
        )
        return place, is_new

    def _take_foreign(self, arrived: Arrived) -> tuple[Place, bool]:
        digest = digest_event(arrived.name, arrived.data)
        event_id = arrived.event_id or ""
        held = self.positions.by_id(event_id)
        is_new = held is None
        position = self.positions.received + 1 if held is None else held.position
        if is_new:
            self.positions.add(HeldEvent(position=position, event_id=event_id, digest=digest))
        if arrived.event_id == "":
            self.positions.forget()
        self._replayed = max(self._replayed, position)
        number = read_number(event_id)
        self._previous_number = self._previous_number if number is None else number
        return self._foreign_place(position, event_id, digest), is_new

    def stray(self, arrived: Arrived) -> Place:
        """Return a place for an event of a stream that is not continuous; its payload key is what counts."""
        self._strays += 1
        digest = digest_event(arrived.name, arrived.data)
        return self._foreign_place(self._strays, arrived.event_id or "", digest)

    def _foreign_place(self, position: int, event_id: str, digest: str) -> Place:
        return Place(
            stream=self._handle,
            epoch=self.epoch,
            position=position,
            event_id=event_id,
            digest=digest,
            foreign=True,
        )
