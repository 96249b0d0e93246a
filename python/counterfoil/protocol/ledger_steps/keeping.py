"""Write rows: under their key and their payload key, as long as the mark does not remember them by itself."""

from __future__ import annotations

import msgspec

from counterfoil.model.ledger_keys import EventPlace, is_unkeyed
from counterfoil.model.ledger_rows import LedgerRow, RowState, is_unresolved
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps.book import Book
from counterfoil.protocol.ledger_steps.marks import advance, remembers
from counterfoil.protocol.ledger_steps.values import Moment, Settlement

_replace = msgspec.structs.replace
#: What becomes of a run whose process ended in the middle.
ORPHANED = Settlement(
    outcome=OutcomeToken.INDETERMINATE,
    why="interrupted",
    evidence="the process ended between the intent and the outcome: the effect may or may not have happened",
    parked=True,
)


def settle_row(
    book: Book,
    moment: Moment,
    key: bytes,
    row: LedgerRow,
    settlement: Settlement,
    stream: bytes | None,
    place: EventPlace | None,
) -> LedgerRow:
    """Write the outcome of a run, and move the mark over its event."""
    settled = _replace(
        row,
        state=RowState.SETTLED,
        outcome=settlement.outcome,
        result=settlement.result,
        why=settlement.why,
        evidence=settlement.evidence,
        note=settlement.note,
        parked=settlement.parked,
        question=None,
        fence=moment.fence,
        commit=moment.commit,
        serial=moment.serial,
        changed_at=moment.now,
        event_id="",
        digest="",
    )
    keep(book, moment, key, settled, stream, place)
    return settled


def keep(
    book: Book, moment: Moment, key: bytes, row: LedgerRow, stream: bytes | None, place: EventPlace | None
) -> None:
    """Write a settled row and move the mark over it; a completed event behind the mark needs no row."""
    is_behind = False
    if stream is not None and place is not None and row.outcome is not OutcomeToken.NOT_APPLIED:
        is_behind = advance(book, moment, key, row, stream, place) and remembers(row, place)
    if is_behind:
        book.drop_row(key)
        if row.payload_key is None:
            return
    expires_at = expiry_of(moment, key, row)
    if not is_behind:
        book.put_row(key, row, expires_at)
    put_alias(book, row, expires_at)


def expiry_of(moment: Moment, key: bytes, row: LedgerRow) -> float | None:
    """Say when a row goes; None for never.

    A doubt is kept for whoever asks for its key again.  Nobody asks for that of an unkeyed call: its doubt is
    there for people, as long as a key would be known, and takes no room of those that must stay.
    """
    if not is_unresolved(row):
        return moment.now + moment.horizon.row_age_s
    if row.state is RowState.SETTLED and is_unkeyed(key):
        return row.changed_at + moment.horizon.tombstone_age_s
    return None


def put(book: Book, key: bytes, row: LedgerRow, *, expires_at: float | None) -> None:
    """Write a row, and the same under its payload key."""
    book.put_row(key, row, expires_at)
    put_alias(book, row, expires_at)


def put_alias(book: Book, row: LedgerRow, expires_at: float | None) -> None:
    """Write a row under its payload key alone, if it has one."""
    if row.payload_key is not None:
        # The mark belongs to the event's row alone.
        book.put_row(row.payload_key, _replace(row, payload_key=None, position=None), expires_at)
