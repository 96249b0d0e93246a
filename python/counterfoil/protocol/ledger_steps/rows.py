"""Find the row of a run, and refuse whoever is no longer the one entitled to write it.

Read and checked in the transaction that writes.
"""

from __future__ import annotations

from counterfoil.decisions.fencing import check_fence, compare
from counterfoil.errors import StaleAttempt
from counterfoil.model.dispatch import Fenced, FenceEvidence
from counterfoil.model.ledger_keys import EventPlace, describe_key, stream_of
from counterfoil.model.ledger_rows import LedgerRow, RowState
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.protocol.ledger_steps.book import Book
from counterfoil.protocol.ledger_steps.values import Moment


def is_own(row: LedgerRow, moment: Moment) -> bool:
    """Say whether this very step wrote the row before: a step whose commit failed is done again."""
    return row.fence == moment.fence and row.serial == moment.serial


def is_living(row: LedgerRow, moment: Moment) -> bool:
    """Say whether this owner still carries the run on that an open row stands for."""
    return row.fence == moment.fence and row.serial not in moment.given_up


def row_of(book: Book, claimed: Claimed) -> LedgerRow:
    """Give the row of a run; raises StaleAttempt where another attempt has it."""
    row = book.row(claimed.key)
    if row is None or row.attempt != claimed.attempt:
        now = "gone" if row is None else f"at attempt {row.attempt}"
        raise StaleAttempt(f"attempt {claimed.attempt} is over: the row is {now}")
    return row


def running_row(book: Book, claimed: Claimed, *states: RowState) -> LedgerRow:
    """Give the row of a run that stands in one of `states` and is its owner's to write."""
    row = row_of(book, claimed)
    check_running(row, claimed, *states)
    return row


def check_running(row: LedgerRow, claimed: Claimed, *states: RowState) -> None:
    """Refuse a writer that is no longer the one entitled; read and checked in the transaction that writes.

    A run that has a name is entitled by it: it may outlive the owner through which it was claimed.
    """
    fence = row.fence if claimed.run and claimed.run == row.run else claimed.fence
    verdict = check_fence(
        FenceEvidence(
            fence=compare(fence, stored=row.fence),
            attempt=compare(claimed.attempt, stored=row.attempt),
        )
    )
    if isinstance(verdict, Fenced) or row.state not in states:
        raise StaleAttempt(f"this run is {row.state} now, of owner {row.fence}: it is not yours to write")


def place_of(key: bytes, row: LedgerRow) -> tuple[bytes | None, EventPlace | None]:
    """Find where the event of a stored row stands; (None, None) for calls and payload keys."""
    stream = stream_of(key)
    if stream is None or row.position is None:
        return None, None
    words = describe_key(key)
    foreign = words.what == "foreign"
    place = EventPlace(
        server=words.server,
        stream=words.stream or "",
        epoch=words.epoch or "",
        position=row.position,
        event_id=words.key if foreign else row.event_id,
        digest=row.digest,
        foreign=foreign,
    )
    return stream, place
