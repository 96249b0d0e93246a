"""The ledger's steps for calls without a key: what of them is kept until their answer was handed over.

A row is worth keeping while somebody may still take its call over, and when a person has to look at it.
"""

from __future__ import annotations

import msgspec

from counterfoil.model.ledger_keys import UNKEYED_RANGE
from counterfoil.model.ledger_rows import LedgerRow, RowState, is_unresolved
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.protocol.ledger_steps.book import Book
from counterfoil.protocol.ledger_steps.keeping import ORPHANED, expiry_of, settle_row
from counterfoil.protocol.ledger_steps.rows import is_living
from counterfoil.protocol.ledger_steps.values import Moment

_PAGE = 256


class KeptCall(msgspec.Struct, frozen=True, kw_only=True):
    """An unkeyed call that was not handed over, as far as the ledger knows."""

    key: bytes
    row: LedgerRow


def close_call(book: Book, moment: Moment, claimed: Claimed) -> None:
    """Forget a call that was handed over, refused or cancelled; one that was adopted or is in doubt stays."""
    row = book.row(claimed.key)
    if row is None or row.attempt != claimed.attempt:
        return
    is_doubt = row.state is RowState.SETTLED and is_unresolved(row)
    if not is_doubt and not row.adopted:
        book.drop_row(claimed.key)
        return
    row = msgspec.structs.replace(row, delivered=True, result=row.result if is_doubt else None)
    _put(book, moment, claimed.key, row)


def note_adopted(book: Book, moment: Moment, claimed: Claimed) -> None:
    """Count a caller that took a call over."""
    row = book.row(claimed.key)
    if row is not None and row.attempt == claimed.attempt:
        _put(book, moment, claimed.key, msgspec.structs.replace(row, adopted=row.adopted + 1))


def kept_calls(book: Book, after: bytes) -> list[KeptCall]:
    """Give the next page of unkeyed calls above `after`, or from the first if it is empty."""
    low, high = UNKEYED_RANGE
    page: list[KeptCall] = []
    for key in book.keys_between(after or low, high, _PAGE):
        row = book.row(key)
        if row is not None:
            page.append(KeptCall(key=key, row=row))
    return page


def take_call(book: Book, moment: Moment, call: KeptCall, run: bytes) -> LedgerRow | None:
    """Have one process go on with a call that its own left, under the name of `run`; gives the row then.

    None where another one was first, or the run goes on.  What is open is settled as indeterminate.
    """
    row = book.row(call.key)
    if row is None or (row.delivered and not is_unresolved(row)):
        return None
    if row.run == run and row.state is RowState.SETTLED:
        return row
    if row.run != call.row.run or row.attempt != call.row.attempt:
        return None
    if row.state in (RowState.INTENDED, RowState.CANCELLING):
        if is_living(row, moment):
            return None
        row = settle_row(book, moment, call.key, row, ORPHANED, None, None)
    if row.state is not RowState.SETTLED:
        return None
    row = msgspec.structs.replace(row, run=run, commit=moment.commit)
    _put(book, moment, call.key, row)
    return row


def _put(book: Book, moment: Moment, key: bytes, row: LedgerRow) -> None:
    row = msgspec.structs.replace(row, commit=moment.commit)
    book.put_row(key, row, expiry_of(moment, key, row))
