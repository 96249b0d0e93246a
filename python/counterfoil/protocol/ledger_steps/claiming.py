"""Read the row first, and say whether a run may begin: the rule at the top of every run."""

from __future__ import annotations

from typing import assert_never

import msgspec

from counterfoil.decisions.dispatch import decide_dispatch
from counterfoil.decisions.idempotency import match_request
from counterfoil.errors import LedgerFull
from counterfoil.model.dispatch import (
    Attempts,
    Dispatch,
    DispatchEvidence,
    DispatchVerdict,
    GiveUp,
    Honours,
    Incarnation,
    InFlight,
    KeyConflict,
    KeyExpired,
    Match,
    Park,
    RequestEvidence,
    RequestVerdict,
    ReturnQuestion,
    ReturnRecorded,
    Row,
)
from counterfoil.model.ledger_keys import EventPlace, encode_key, encode_place
from counterfoil.model.ledger_rows import LedgerRow, RowKind, RowState
from counterfoil.model.ledger_verdicts import Asked, ClaimAnswer, Claimed, Conflict, Expired, Known, Running
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.protocol.ledger_steps.book import Book
from counterfoil.protocol.ledger_steps.keeping import ORPHANED, keep, put, settle_row
from counterfoil.protocol.ledger_steps.marks import put_base
from counterfoil.protocol.ledger_steps.rows import is_living, is_own, running_row
from counterfoil.protocol.ledger_steps.values import Begun, Intent, IntentKeys, Moment, Settlement

_replace = msgspec.structs.replace
_RERUNNABLE = (RowKind.TRANSACTIONAL, RowKind.IDEMPOTENT)


class _Free(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody has the key: the next attempt may begin."""

    attempt: int = 1
    tries: int = 1


_FIRST = _Free()


def claim(book: Book, moment: Moment, intent: Intent) -> ClaimAnswer:
    """Write the intent unless the key is taken; raises LedgerFull at the bound on open entries."""
    begun = begin(book, moment, intent)
    if not isinstance(begun, Begun):
        return begun
    write_intent(book, moment, begun)
    return begun.claimed


def keys_of(intent: Intent) -> IntentKeys:
    """Give the keys of what is stored for an intent."""
    scope, named, payload_key = intent.scope, intent.key, intent.payload_key
    alias = encode_key(scope, payload_key) if payload_key is not None else None
    if isinstance(named, EventPlace):
        key, stream = encode_place(scope, named)
        return key, stream, alias
    return encode_key(scope, named), None, alias


def begin(book: Book, moment: Moment, intent: Intent, keys: IntentKeys | None = None) -> ClaimAnswer | Begun:
    """Read the row first, and say what may be done; nothing is written but what settles an orphan.

    A run that shares the commit of its outcome needs no intent on the disk: see :func:`settle_begun`.
    `keys` are the intent's, where the caller has them already.
    """
    key, stream, alias = keys if keys is not None else keys_of(intent)
    place = intent.key if isinstance(intent.key, EventPlace) else None
    free = _FIRST
    # The payload key is looked up first: it outlives the stream that the event key names (decision L16).
    for candidate in (key,) if alias is None else (alias, key):
        judged = _judge(book, moment, intent, candidate, stream, place)
        if not isinstance(judged, _Free):
            if candidate == alias and isinstance(judged, Known) and judged.row is not None:
                _repeat_for_event(book, moment, key, judged.row, stream, place)
            return _replace(judged, key=key)
        free = judged if judged.attempt > free.attempt else free
    if place is not None and stream is not None and not place.foreign and free.attempt == 1:
        mark = book.mark(stream)
        if mark is not None and mark.epoch == place.epoch and place.position <= mark.processed:
            return Known(key=key, row=mark.last if place.position == mark.processed else None)
    row = LedgerRow(
        state=RowState.INTENDED,
        kind=intent.kind,
        attempt=free.attempt,
        tries=free.tries,
        fence=moment.fence,
        serial=moment.serial,
        commit=moment.commit,
        changed_at=moment.now,
        label=intent.label,
        fingerprint=intent.fingerprint,
        position=place.position if place is not None else None,
        payload_key=alias,
        round=intent.round,
        run=intent.run,
    )
    return Begun(claimed=claimed_of(key, row, stream, place), row=row)


def write_intent(book: Book, moment: Moment, begun: Begun) -> None:
    """Make the intent of a run durable before it; raises LedgerFull at the bound on open entries."""
    if book.open_rows() >= moment.horizon.open_rows:
        raise LedgerFull(
            f"{moment.horizon.open_rows} entries wait for their outcome (Limits.ledger_open_rows): "
            "resolve the indeterminate ones, or raise the limit"
        )
    place = begun.claimed.place
    row = begun.row
    if place is not None:
        row = _replace(row, event_id=place.event_id, digest=place.digest)
    put(book, begun.claimed.key, row, expires_at=None)
    put_base(book, begun.claimed)


def claim_again(book: Book, moment: Moment, claimed: Claimed) -> Claimed:
    """Count one more try of a run that ended in an exception and is safe to repeat."""
    own = book.row(claimed.key)
    if own is not None and is_own(own, moment):
        return claimed_of(claimed.key, own, claimed.stream, claimed.place)
    row = running_row(book, claimed, RowState.INTENDED)
    again = _replace(
        row, attempt=row.attempt + 1, tries=row.tries + 1, serial=moment.serial, commit=moment.commit
    )
    put(book, claimed.key, again, expires_at=None)
    return _replace(claimed, attempt=again.attempt, tries=again.tries, serial=again.serial)


def claimed_of(key: bytes, row: LedgerRow, stream: bytes | None, place: EventPlace | None) -> Claimed:
    """Give the right to write that a row stands for."""
    return Claimed(
        key=key,
        attempt=row.attempt,
        tries=row.tries,
        fence=row.fence,
        serial=row.serial,
        stream=stream,
        place=place,
        run=row.run,
    )


def _carry_on(book: Book, moment: Moment, key: bytes, row: LedgerRow) -> LedgerRow:
    """Count a run that its own process claims again among this owner's; its intent stays what it was."""
    if is_living(row, moment):
        return row
    row = _replace(row, fence=moment.fence, serial=moment.serial, commit=moment.commit)
    put(book, key, row, expires_at=None)
    return row


def _judge(
    book: Book, moment: Moment, intent: Intent, key: bytes, stream: bytes | None, place: EventPlace | None
) -> ClaimAnswer | _Free:
    """Read the row first: design, section 7, the rule at the top of every run."""
    row = book.row(key)
    if row is None:
        return _FIRST
    if row.state is RowState.INTENDED and (is_own(row, moment) or _is_untold(row, moment)):
        return claimed_of(key, row, stream, place)
    if intent.run and row.run == intent.run and row.state in (RowState.INTENDED, RowState.CANCELLING):
        return claimed_of(key, _carry_on(book, moment, key, row), stream, place)
    until = row.changed_at + moment.horizon.tombstone_age_s
    if row.state is RowState.TOMBSTONE and moment.now >= until:
        return _Free()
    if row.fingerprint and intent.fingerprint and row.fingerprint != intent.fingerprint:
        return Conflict(key=key, label=row.label)
    verdict = _decide(moment, intent, row)
    match verdict:
        case Dispatch():
            # A release is known not to have started, so it does not count as a try; not_applied begins anew.
            tries = {RowState.RELEASED: row.tries, RowState.INTENDED: row.tries + 1}.get(row.state, 1)
            return _Free(attempt=verdict.attempt, tries=tries)
        case ReturnRecorded():
            return Known(key=key, row=row)
        case ReturnQuestion():
            return Asked(key=key, question=row.question or b"")
        case InFlight():
            return Running(key=key, attempt=row.attempt)
        case KeyConflict():
            return Conflict(key=key, label=row.label)
        case KeyExpired():
            return Expired(key=key, until=until)
        case Park():
            settled = settle_row(book, moment, key, row, ORPHANED, stream, place)
            return Known(key=key, row=settled, fresh=True)
        case GiveUp():
            settled = settle_row(book, moment, key, row, _given_up(row), stream, place)
            return Known(key=key, row=settled, fresh=True)
        case _:
            assert_never(verdict)


def _is_untold(row: LedgerRow, moment: Moment) -> bool:
    """Say whether an intent reached the disk by a step whose caller was told that it had failed: nothing has
    run under it, and nobody but the next claim will.
    """
    return row.fence == moment.fence and row.serial in moment.untold


def _decide(moment: Moment, intent: Intent, row: LedgerRow) -> DispatchVerdict | RequestVerdict:
    """Put the row before the decision that fits what is to be run."""
    incarnation = Incarnation.LIVING if is_living(row, moment) else Incarnation.EARLIER
    if intent.kind is RowKind.CALL:
        return match_request(
            RequestEvidence(
                row=_row_word(row),
                input_round=Match.EQUAL if row.round == intent.round else Match.DIFFERENT,
                incarnation=incarnation,
                honours=Honours.KEYS if intent.honours_keys else Honours.NOTHING,
                attempt=row.attempt,
            )
        )
    rerunnable = row.kind in _RERUNNABLE and intent.kind in _RERUNNABLE
    exhausted = row.state is RowState.INTENDED and row.tries >= moment.horizon.attempts
    return decide_dispatch(
        DispatchEvidence(
            row=_row_word(row),
            # What was promised when the intent was written counts as well as what is promised now.
            kind=HandlerKind.IDEMPOTENT if rerunnable else HandlerKind.AT_MOST_ONCE,
            incarnation=incarnation,
            attempts=Attempts.EXHAUSTED if exhausted else Attempts.LEFT,
            attempt=row.attempt,
        )
    )


def _row_word(row: LedgerRow) -> Row:
    if row.state is RowState.SETTLED and row.outcome is not None:
        return _SETTLED_ROWS[row.outcome]
    return _OPEN_ROWS[row.state]


_SETTLED_ROWS = {
    OutcomeToken.COMPLETED: Row.COMPLETED,
    OutcomeToken.FAILED: Row.FAILED,
    OutcomeToken.NOT_APPLIED: Row.NOT_APPLIED,
    OutcomeToken.INDETERMINATE: Row.INDETERMINATE,
}
_OPEN_ROWS = {
    RowState.INTENDED: Row.INTENDED,
    RowState.RELEASED: Row.RELEASED,
    RowState.AWAITING_INPUT: Row.AWAITING_INPUT,
    RowState.CANCELLING: Row.CANCELLING,
    RowState.TOMBSTONE: Row.TOMBSTONE,
}


def _given_up(row: LedgerRow) -> Settlement:
    return Settlement(
        outcome=OutcomeToken.FAILED,
        why="attempts",
        evidence=f"{row.tries} runs were begun, and the process ended in each",
        parked=True,
    )


def _repeat_for_event(
    book: Book, moment: Moment, key: bytes, row: LedgerRow, stream: bytes | None, place: EventPlace | None
) -> None:
    """The work was done under another event: this one counts as settled alike (decision L29)."""
    if stream is None or place is None:
        return
    again = _replace(
        row,
        position=place.position,
        commit=moment.commit,
        serial=moment.serial,
        fence=moment.fence,
        changed_at=moment.now,
    )
    keep(book, moment, key, again, stream, place)
