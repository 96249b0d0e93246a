"""Let rows go whose time has come, and distrust what a restored backup cannot know."""

from __future__ import annotations

import msgspec

from counterfoil.model.ledger_keys import EventPlace, is_stream, is_unkeyed
from counterfoil.model.ledger_rows import LedgerRow, RowState, StreamMark
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps.book import Book
from counterfoil.protocol.ledger_steps.keeping import settle_row
from counterfoil.protocol.ledger_steps.rows import place_of
from counterfoil.protocol.ledger_steps.values import Moment, Recovered, Settlement

_replace = msgspec.structs.replace
_PAGE = 256


_RESTORED = Settlement(
    outcome=OutcomeToken.INDETERMINATE,
    why="restored",
    evidence="the ledger was restored from a backup, which cannot know what happened after it",
    parked=True,
)


def recover(book: Book, moment: Moment) -> Recovered:
    """Distrust what a restored backup cannot know (decision L31).

    Every intent becomes indeterminate, every cursor is dropped; keys, local epochs and marks stay.
    """
    doubts = streams = 0
    after = b""
    while keys := book.open_keys(after, _PAGE):
        for key in keys:
            after, row = key, book.row(key)
            if row is not None and row.state in (RowState.INTENDED, RowState.CANCELLING):
                stream, place = place_of(key, row)
                settle_row(book, moment, key, row, _RESTORED, stream, place)
                doubts += 1
    after = b""
    while keys := book.stream_keys(after, _PAGE):
        for key in keys:
            after, mark = key, book.mark(key)
            if mark is not None:
                book.put_mark(key, _replace(mark, event_id="", digest="", record=b""))
                streams += 1
    return Recovered(doubts=doubts, streams=streams)


def expire(book: Book, moment: Moment, key: bytes, row: LedgerRow) -> None:
    """Let a row whose time has come go, or shrink it to a tombstone.

    Rows at or above the mark stay (decision L25); below it the mark itself remembers events of ours.  The
    row of a stream that has ended takes the stream's mark with it.
    """
    if is_stream(key):
        book.drop_row(key)
        book.drop_mark(key)
        return
    stream, place = place_of(key, row)
    mark = book.mark(stream) if stream is not None else None
    dense = place is not None and not place.foreign
    if place is not None and mark is not None and _is_kept(mark, place):
        book.put_row(key, row, moment.now + moment.horizon.row_age_s)
    elif not _is_asked_again(key, row) or dense:
        # A released run, a freed key, an old tombstone, a key that nobody has, or an event behind the mark.
        book.drop_row(key)
    else:
        stone = LedgerRow(
            state=RowState.TOMBSTONE,
            kind=row.kind,
            attempt=row.attempt,
            tries=row.tries,
            fence=row.fence,
            serial=row.serial,
            commit=moment.commit,
            changed_at=moment.now,
            outcome=row.outcome,
            label=row.label,
            fingerprint=row.fingerprint,
            position=row.position,
        )
        book.put_row(key, stone, moment.now + moment.horizon.tombstone_age_s)


def _is_asked_again(key: bytes, row: LedgerRow) -> bool:
    is_final = row.state is RowState.SETTLED and row.outcome is not OutcomeToken.NOT_APPLIED
    return is_final and not is_unkeyed(key)


def _is_kept(mark: StreamMark, place: EventPlace) -> bool:
    return mark.epoch == place.epoch and place.position >= mark.processed
