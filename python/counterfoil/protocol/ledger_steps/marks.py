"""Move the mark of a stream: the largest prefix of its events that is settled, and the proof at its end."""

from __future__ import annotations

import msgspec

from counterfoil.model.ledger_keys import EventPlace, encode_key, encode_stream
from counterfoil.model.ledger_rows import Ahead, LedgerRow, RowKind, RowState, StreamMark
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.model.tokens import OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol.ledger_steps.book import Book
from counterfoil.protocol.ledger_steps.values import Moment

_replace = msgspec.structs.replace
#: Settled events above the mark that are remembered; one that is not is found by its row when it comes again.
AHEAD_MAX = 1024


def advance(book: Book, moment: Moment, key: bytes, row: LedgerRow, stream: bytes, place: EventPlace) -> bool:
    """Move the mark over `place` and over what was settled ahead of it; False when it does not reach it.

    Never within another epoch, and never back.
    """
    mark = book.mark(stream)
    if mark is None:
        mark = StreamMark(epoch=place.epoch, processed=place.position - 1)
    if mark.epoch != place.epoch:
        return False
    if place.position <= mark.processed:
        return True
    last = Ahead(place.position, place.event_id, place.digest, key)
    if place.position > mark.processed + 1:
        if len(mark.ahead) < AHEAD_MAX and all(one.position != place.position for one in mark.ahead):
            ahead = sorted((*mark.ahead, last), key=lambda one: one.position)
            book.put_mark(stream, _replace(mark, ahead=tuple(ahead)))
        return False
    rest = mark.ahead
    while rest and rest[0].position == last.position + 1:
        last, rest = rest[0], rest[1:]
        found = book.row(last.key)
        if found is not None:
            row = found
            if remembers(found, place):
                book.drop_row(last.key)
    book.put_mark(
        stream,
        StreamMark(
            epoch=mark.epoch,
            processed=last.position,
            event_id=last.event_id,
            digest=last.digest,
            commit=moment.commit,
            last=_at_mark(row, moment, last.position),
            ahead=rest,
            ended=mark.ended,
            record=mark.record,
        ),
    )
    return True


def _at_mark(row: LedgerRow, moment: Moment, position: int) -> LedgerRow:
    """Give a row as the mark keeps it: written by this commit, and without its result."""
    if row.commit == moment.commit and row.position == position and row.result is None:
        return row
    return _replace(row, commit=moment.commit, position=position, result=None)


def remembers(row: LedgerRow, place: EventPlace) -> bool:
    """Say whether the mark alone tells that this event was done, so that it needs no row."""
    return row.outcome is OutcomeToken.COMPLETED and not place.foreign


def remembered(book: Book, claimed: Claimed) -> LedgerRow | None:
    """Give the outcome at the mark if it is this run's: a completed event has no row any more."""
    mark = book.mark(claimed.stream) if claimed.stream is not None else None
    place = claimed.place
    if mark is None or mark.last is None or place is None or book.row(claimed.key) is not None:
        return None
    is_there = mark.epoch == place.epoch and mark.processed == place.position
    last = mark.last
    is_own = last.attempt == claimed.attempt and last.fence == claimed.fence
    return last if is_there and is_own else None


def processed_of(book: Book, stream: bytes | None) -> int | None:
    """Give how far a stream is processed."""
    mark = book.mark(stream) if stream is not None else None
    return mark.processed if mark is not None else None


def put_base(book: Book, claimed: Claimed) -> None:
    """Take the first event of a stream that is ever begun as the base of its mark."""
    stream, place = claimed.stream, claimed.place
    if stream is not None and place is not None and book.mark(stream) is None:
        book.put_mark(stream, StreamMark(epoch=place.epoch, processed=place.position - 1))


def skip(book: Book, moment: Moment, scope: Scope, place: EventPlace) -> None:
    """Let the mark pass an event that nothing handles (decision L29)."""
    row = LedgerRow(
        state=RowState.SETTLED,
        kind=RowKind.NONE,
        attempt=0,
        tries=0,
        fence=moment.fence,
        serial=moment.serial,
        commit=moment.commit,
        changed_at=moment.now,
        outcome=OutcomeToken.COMPLETED,
        why="no-handler",
        position=place.position,
    )
    key = encode_key(scope, place)
    stream = encode_stream(scope, place.server, place.stream)
    if not advance(book, moment, key, row, stream, place):
        # It waits for the events before it.
        book.put_row(key, row, moment.now + moment.horizon.row_age_s)


def begin_stream(
    book: Book, moment: Moment, scope: Scope, place: EventPlace, *, ended: str = "", record: bytes = b""
) -> StreamMark:
    """Put the base of a stream at `place`: everything up to it is behind the reader.

    Within one epoch the mark never goes back.  A base has no outcome, and so no commit that could prove it.
    With `ended` the mark goes after the age of a row, and keeps no record but the one given here.
    """
    stream = encode_stream(scope, place.server, place.stream)
    mark = book.mark(stream)
    if mark is None or mark.epoch != place.epoch:
        mark = StreamMark(
            epoch=place.epoch,
            processed=place.position,
            event_id=place.event_id,
            digest=place.digest,
            commit=0,
            record=mark.record if mark is not None else b"",
        )
    elif place.position > mark.processed:
        mark = _replace(
            mark,
            processed=place.position,
            event_id=place.event_id,
            digest=place.digest,
            commit=0,
            last=None,
            ahead=tuple(one for one in mark.ahead if one.position > place.position),
        )
    if ended:
        # Under the stream's own key: what lets rows go when their time has come lets the mark go with it.
        book.put_row(stream, _end_of_stream(moment, ended), moment.now + moment.horizon.row_age_s)
    elif mark.ended:
        book.drop_row(stream)
    mark = _replace(mark, ended=ended, record=record if ended else record or mark.record)
    book.put_mark(stream, mark)
    return mark


def _end_of_stream(moment: Moment, ended: str) -> LedgerRow:
    return LedgerRow(
        state=RowState.TOMBSTONE,
        kind=RowKind.NONE,
        attempt=0,
        tries=0,
        fence=moment.fence,
        serial=moment.serial,
        commit=moment.commit,
        changed_at=moment.now,
        why=ended,
    )


def check_witness(mark: StreamMark) -> str | None:
    """Prove that one commit wrote the mark and the outcome at the mark; None if so, else what is wrong."""
    last = mark.last
    if last is None:
        return None if mark.commit == 0 else "the outcome at the mark is missing"
    if last.position != mark.processed:
        return f"the mark stands at {mark.processed}, the outcome beside it is of {last.position}"
    if last.commit != mark.commit:
        return f"the mark was written by commit {mark.commit}, the outcome by commit {last.commit}"
    return None
