"""Compare an event that carries somebody else's id with the events that we hold.

Foreign ids are opaque: no arithmetic, unless the caller declared them dense or sparse.  An overlap proves
that the cursor was honoured, not that nothing is missing after it.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum

import msgspec

from counterfoil.model.events import Identity, Seen
from counterfoil.model.evidence import Asked, First, Token, Window
from counterfoil.protocol.client_stream.cf1_ids import FoundFirst, Identified, read_cursor
from counterfoil.protocol.client_stream.positions import Positions


class Order(StrEnum):
    """What a caller declares about a server's ids."""

    OPAQUE = "opaque"
    DENSE = "dense"
    SPARSE = "sparse"


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A scheme of foreign ids: `dense` adds 1, `sparse` only rises and has a token and a window beside it.

    The headers are named in lower case; the window is written `first-last`.
    """

    order: Order = Order.OPAQUE
    token_header: str = ""
    window_header: str = ""


ASKED = {Order.OPAQUE: Asked.OPAQUE, Order.DENSE: Asked.DENSE, Order.SPARSE: Asked.SPARSE}
#: ASCII digits only: `int()` would take signs, blanks, underscores and other scripts.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_WINDOW = re.compile(r"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})")
_SEGMENT = re.compile(r"[A-Za-z0-9]+")
#: What an id must hold so that a re-run of the same server could not make it again.
_PROOF_BITS = 64
_CLOCK_DIGITS = 13
_CLOCK_BITS = 24


def read_number(event_id: str) -> int | None:
    """Return the number that a dense or sparse id is, None for any other spelling."""
    return int(event_id) if _NUMBER.fullmatch(event_id) else None


def digest_event(event: str, data: bytes) -> str:
    """Return what an event is recognised by, type and data together."""
    return hashlib.blake2b(event.encode() + b"\0" + data, digest_size=16).hexdigest()


def is_unguessable(event_id: str) -> bool:
    """Return whether an id looks random enough that its return proves the same history.

    Counted are parts that mix letters and digits, and long numbers as clocks; words and counters are not,
    because a server that starts again makes them again.  The estimate errs towards no.
    """
    bits = 0
    for segment in _SEGMENT.findall(event_id):
        if segment.isdigit():
            bits += _CLOCK_BITS if len(segment) >= _CLOCK_DIGITS else 0
        elif any(c.isdigit() for c in segment):
            per_character = 4 if all(c in "0123456789abcdefABCDEF" for c in segment) else 5
            bits += per_character * len(segment)
    return bits >= _PROOF_BITS


def compare_token(found: str | None, ours: str | None) -> Token:
    """Return how the token beside sparse ids stands to the one that we know.

    Absent on either side is absent.
    """
    if found is None or ours is None:
        return Token.ABSENT
    return Token.SAME if found == ours else Token.OTHER


def compare_window(text: str | None, asked: int | None) -> Window:
    """Return whether the declared window holds the cursor, or the position just before its first event."""
    found = _WINDOW.fullmatch(text) if text is not None else None
    if found is None or asked is None:
        return Window.ABSENT
    first, last = int(found[1]), int(found[2])
    return Window.CONTAINS if first - 1 <= asked <= last else Window.EXCLUDES


def compare_first(
    event_id: str | None, digest: str, asked: str, positions: Positions, *, order: Order
) -> FoundFirst:
    """Return what the first event with data says, judged against the id asked with."""
    if not event_id:
        return FoundFirst(First.NO_ID)
    if read_cursor(event_id) is not None:
        return FoundFirst(First.OTHER_SCHEME)
    held = positions.by_id(event_id)
    if held is not None:
        if held.digest != digest:
            return FoundFirst(First.KNOWN_DIFFERENT)
        return FoundFirst(_compare_held(event_id, asked, positions))
    if order is Order.OPAQUE:
        return FoundFirst(First.UNKNOWN)
    return _compare_number(event_id, asked, positions, order=order)


def _compare_held(event_id: str, asked: str, positions: Positions) -> First:
    # Only the event asked with, or the one after it, shows that the cursor was honoured: a server that starts
    # from its oldest survivor shows old events too.
    following = positions.next_held(asked)
    is_honoured = event_id == asked or (following is not None and following.event_id == event_id)
    return First.KNOWN if is_honoured and is_unguessable(event_id) else First.KNOWN_PLAIN


def _compare_number(event_id: str, asked: str, positions: Positions, *, order: Order) -> FoundFirst:
    number, base = read_number(event_id), read_number(asked)
    if number is None or base is None:
        return FoundFirst(First.OTHER_SCHEME)
    if number <= base:
        return FoundFirst(First.BELOW, number)
    reachable = max(base, _newest_number(positions)) + 1
    is_reached = order is Order.SPARSE or number <= reachable
    return FoundFirst(First.NEXT if is_reached else First.BEYOND, number)


def _newest_number(positions: Positions) -> int:
    newest = positions.newest()
    number = read_number(newest.event_id) if newest is not None else None
    return -1 if number is None else number


def identify(
    event_id: str | None, digest: str, previous: int | None, positions: Positions, *, order: Order
) -> Identified:
    """Return what an event's id says; `previous` is the number before it, for ids with an order."""
    if event_id is None:
        return Identified(Identity.ABSENT)
    if event_id == "":
        return Identified(Identity.EMPTY)
    if read_cursor(event_id) is not None:
        return Identified(Identity.OTHER_SCHEME)
    held = positions.by_id(event_id)
    if held is not None:
        if held.digest != digest:
            return Identified(Identity.DIFFERENT)
        return Identified(Identity.NEXT, Seen.ANSWERED)
    if order is Order.OPAQUE:
        return Identified(Identity.NEXT)
    return _identify_number(event_id, previous, positions, order=order)


def _identify_number(
    event_id: str, previous: int | None, positions: Positions, *, order: Order
) -> Identified:
    number = read_number(event_id)
    if number is None:
        return Identified(Identity.OTHER_SCHEME)
    if previous is None:
        return Identified(Identity.NEXT)
    if number <= previous:
        return Identified(Identity.NOT_ABOVE)
    reachable = max(previous, _newest_number(positions)) + 1
    return Identified(Identity.JUMP if order is Order.DENSE and number > reachable else Identity.NEXT)
