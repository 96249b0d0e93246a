"""Write what became of a run: its outcome, a question, a release, or what a person found out."""

from __future__ import annotations

import msgspec

from counterfoil.errors import StaleAttempt
from counterfoil.model.ledger_rows import RowState, is_unresolved
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Known, Settled
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps.book import Book
from counterfoil.protocol.ledger_steps.claiming import claim
from counterfoil.protocol.ledger_steps.keeping import put, settle_row
from counterfoil.protocol.ledger_steps.marks import processed_of, remembered
from counterfoil.protocol.ledger_steps.rows import (
    check_running,
    is_living,
    is_own,
    place_of,
    row_of,
    running_row,
)
from counterfoil.protocol.ledger_steps.values import Begun, Intent, Moment, Settlement

_replace = msgspec.structs.replace
_FINAL = (OutcomeToken.COMPLETED, OutcomeToken.FAILED)


def settle_begun(book: Book, moment: Moment, begun: Begun, settlement: Settlement) -> Settled:
    """Write the outcome of a run whose intent was never written: both are one commit."""
    claimed = begun.claimed
    settled = settle_row(book, moment, claimed.key, begun.row, settlement, claimed.stream, claimed.place)
    return Settled(key=claimed.key, row=settled, processed=processed_of(book, claimed.stream))


def settle(book: Book, moment: Moment, claimed: Claimed, settlement: Settlement) -> Settled:
    """Write the outcome of a run and move the mark; raises StaleAttempt where the row has moved on.

    Indeterminate may still become completed or failed by the real answer, never the reverse (decision L20).
    """
    stream, place = claimed.stream, claimed.place
    at_mark = remembered(book, claimed)
    if at_mark is not None and settlement.outcome is OutcomeToken.COMPLETED:
        return Settled(key=claimed.key, row=at_mark, processed=processed_of(book, stream))
    row = row_of(book, claimed)
    if row.state is RowState.SETTLED:
        is_same = row.fence == moment.fence or (claimed.run != b"" and row.result == settlement.result)
        if row.outcome is settlement.outcome and is_same:
            return Settled(key=claimed.key, row=row, processed=processed_of(book, stream))
        if row.outcome is not OutcomeToken.INDETERMINATE or settlement.outcome not in _FINAL:
            raise StaleAttempt(f"this run is settled as {row.outcome} already")
    else:
        check_running(row, claimed, RowState.INTENDED, RowState.CANCELLING)
    settled = settle_row(book, moment, claimed.key, row, settlement, stream, place)
    return Settled(key=claimed.key, row=settled, processed=processed_of(book, stream))


def resolve(book: Book, moment: Moment, key: bytes, outcome: OutcomeToken, note: str) -> Settled:
    """Write what a person found out; `not_applied` frees the key (decision L2).  Raises StaleAttempt if it
    is not open.
    """
    if outcome is OutcomeToken.INDETERMINATE:
        raise ValueError("an entry is resolved as completed, failed or not_applied")
    row = book.row(key)
    if row is not None and is_own(row, moment):
        return Settled(key=key, row=row)
    if row is None or not is_unresolved(row):
        raise StaleAttempt("there is nothing to resolve here: the entry is settled, or gone")
    if row.state is not RowState.SETTLED and is_living(row, moment):
        raise StaleAttempt("this run still goes on: wait for its outcome")
    stream, place = place_of(key, row)
    was_parked = row.state is RowState.SETTLED
    settlement = Settlement(
        outcome=outcome,
        result=row.result,
        why="resolved",
        evidence=row.evidence,
        note=note,
        parked=row.parked or was_parked,
    )
    settled = settle_row(book, moment, key, row, settlement, None if was_parked else stream, place)
    return Settled(key=key, row=settled, processed=processed_of(book, stream))


def record(book: Book, moment: Moment, intent: Intent, settlement: Settlement) -> ClaimAnswer | Settled:
    """Write an outcome for a key that nobody runs now: claim and settlement in one."""
    answer = claim(book, moment, intent)
    if isinstance(answer, Known) and answer.row is not None and is_own(answer.row, moment):
        return Settled(key=answer.key, row=answer.row)
    return settle(book, moment, answer, settlement) if isinstance(answer, Claimed) else answer


def release(book: Book, moment: Moment, claimed: Claimed) -> None:
    """Take back an intent whose handler has not been called."""
    row = running_row(book, claimed, RowState.INTENDED, RowState.RELEASED)
    released = _replace(row, state=RowState.RELEASED, commit=moment.commit, changed_at=moment.now)
    put(book, claimed.key, released, expires_at=moment.now + moment.horizon.row_age_s)


def await_input(book: Book, moment: Moment, claimed: Claimed, question: bytes) -> None:
    """Keep the question that a call was answered with, until another round answers it."""
    row = running_row(book, claimed, RowState.INTENDED, RowState.AWAITING_INPUT)
    waiting = _replace(
        row, state=RowState.AWAITING_INPUT, question=question, commit=moment.commit, changed_at=moment.now
    )
    put(book, claimed.key, waiting, expires_at=None)


def begin_cancelling(book: Book, moment: Moment, claimed: Claimed) -> None:
    """Note that a call was cancelled; it is settled when its upstream leg is closed (decision L11)."""
    row = running_row(book, claimed, RowState.INTENDED, RowState.CANCELLING)
    cancelling = _replace(row, state=RowState.CANCELLING, commit=moment.commit, changed_at=moment.now)
    put(book, claimed.key, cancelling, expires_at=None)


def mark_delivered(book: Book, moment: Moment, claimed: Claimed) -> None:
    """Note that the answer was handed over (decision L17)."""
    row = row_of(book, claimed)
    if row.state is not RowState.SETTLED:
        raise StaleAttempt(f"this run is {row.state}: there is no answer to hand over")
    delivered = _replace(row, delivered=True, commit=moment.commit)
    put(
        book,
        claimed.key,
        delivered,
        expires_at=None if is_unresolved(delivered) else moment.now + moment.horizon.row_age_s,
    )
