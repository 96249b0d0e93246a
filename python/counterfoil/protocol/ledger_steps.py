"""The steps that change a ledger, one function each, over any book that can get and put records.

A step raises before its first put, or not at all, and knows no clock and no disk.  Every ledger runs these
same steps inside a transaction of its own, so that stores cannot differ in meaning.
"""

from __future__ import annotations

from typing import Protocol, assert_never

import msgspec

from counterfoil.decisions.dispatch import decide_dispatch
from counterfoil.decisions.fencing import check_fence, compare
from counterfoil.decisions.idempotency import match_request
from counterfoil.errors import LedgerFull, StaleAttempt
from counterfoil.model.dispatch import (
    Attempts,
    Dispatch,
    DispatchEvidence,
    DispatchVerdict,
    Fenced,
    FenceEvidence,
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
from counterfoil.model.ledger_keys import (
    EventPlace,
    LedgerKey,
    PayloadKey,
    describe_key,
    encode_key,
    encode_stream,
    is_stream,
    stream_of,
)
from counterfoil.model.ledger_rows import Ahead, LedgerRow, RowKind, RowState, StreamMark, is_unresolved
from counterfoil.model.ledger_verdicts import (
    Asked,
    ClaimAnswer,
    Claimed,
    Conflict,
    Expired,
    Known,
    Running,
    Settled,
)
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.native import Scope

#: Settled events above the mark that are remembered; one that is not is found by its row when it comes again.
AHEAD_MAX = 1024
_RERUNNABLE = (RowKind.TRANSACTIONAL, RowKind.IDEMPOTENT)
_FINAL = (OutcomeToken.COMPLETED, OutcomeToken.FAILED)
_replace = msgspec.structs.replace


class Book(Protocol):
    """What a step reads and writes; all of one transaction."""

    def row(self, key: bytes) -> LedgerRow | None: ...

    def put_row(self, key: bytes, row: LedgerRow, expires_at: float | None) -> None: ...

    def drop_row(self, key: bytes) -> None: ...

    def mark(self, stream: bytes) -> StreamMark | None: ...

    def put_mark(self, stream: bytes, mark: StreamMark) -> None: ...

    def drop_mark(self, stream: bytes) -> None: ...

    def open_rows(self) -> int:
        """Count the rows that never expire."""
        ...

    def open_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Give the keys of rows that never expire, above `after`, in their order."""
        ...

    def stream_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Give the keys of streams above `after`, in their order."""
        ...


class Horizon(msgspec.Struct, frozen=True, kw_only=True):
    """How long a ledger remembers, and how much; times in seconds."""

    row_age_s: float
    tombstone_age_s: float
    open_rows: int
    attempts: int


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When and by whom a step is done: the time, the owner's fence, the commit it will be part of, its own
    number.
    """

    now: float
    fence: int
    commit: int
    serial: int
    horizon: Horizon


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to run; `round` is the digest of what answers an earlier question (decision L23).

    `honours_keys` says that the peer has acknowledged our keys, so that a call may be sent to it again.
    """

    scope: Scope
    key: LedgerKey
    kind: RowKind
    label: str = ""
    fingerprint: bytes = b""
    payload_key: PayloadKey | None = None
    round: bytes = b""
    honours_keys: bool = False


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run; `result` is the encoded answer or error."""

    outcome: OutcomeToken
    result: bytes | None = None
    why: str = ""
    evidence: str = ""
    note: str = ""
    parked: bool = False


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that may begin, and the row that would be its intent."""

    claimed: Claimed
    row: LedgerRow


class _Free(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody has the key: the next attempt may begin."""

    attempt: int = 1
    tries: int = 1


_FIRST = _Free()
_PAGE = 256
_RESTORED = Settlement(
    outcome=OutcomeToken.INDETERMINATE,
    why="restored",
    evidence="the ledger was restored from a backup, which cannot know what happened after it",
    parked=True,
)
_ORPHANED = Settlement(
    outcome=OutcomeToken.INDETERMINATE,
    why="interrupted",
    evidence="the process ended between the intent and the outcome: the effect may or may not have happened",
    parked=True,
)


def claim(book: Book, moment: Moment, intent: Intent) -> ClaimAnswer:
    """Write the intent unless the key is taken; raises LedgerFull at the bound on open entries."""
    begun = begin(book, moment, intent)
    if not isinstance(begun, Begun):
        return begun
    write_intent(book, moment, begun)
    return begun.claimed


def begin(book: Book, moment: Moment, intent: Intent) -> ClaimAnswer | Begun:
    """Read the row first, and say what may be done; nothing is written but what settles an orphan.

    A run that shares the commit of its outcome needs no intent on the disk: see :func:`settle_begun`.
    """
    key = encode_key(intent.scope, intent.key)
    place = intent.key if isinstance(intent.key, EventPlace) else None
    stream = encode_stream(intent.scope, place.server, place.stream) if place is not None else None
    alias = encode_key(intent.scope, intent.payload_key) if intent.payload_key is not None else None
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
    )
    return Begun(claimed=_claimed(key, row, stream, place), row=row)


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
    _put(book, begun.claimed.key, row, expires_at=None)
    put_base(book, begun.claimed)


def put_base(book: Book, claimed: Claimed) -> None:
    """Take the first event of a stream that is ever begun as the base of its mark."""
    stream, place = claimed.stream, claimed.place
    if stream is not None and place is not None and book.mark(stream) is None:
        book.put_mark(stream, StreamMark(epoch=place.epoch, processed=place.position - 1))


def settle_begun(book: Book, moment: Moment, begun: Begun, settlement: Settlement) -> Settled:
    """Write the outcome of a run whose intent was never written: both are one commit."""
    claimed = begun.claimed
    settled = _settle_row(book, moment, claimed.key, begun.row, settlement, claimed.stream, claimed.place)
    return Settled(key=claimed.key, row=settled, processed=_processed(book, claimed.stream))


def _claimed(key: bytes, row: LedgerRow, stream: bytes | None, place: EventPlace | None) -> Claimed:
    return Claimed(
        key=key,
        attempt=row.attempt,
        tries=row.tries,
        fence=row.fence,
        serial=row.serial,
        stream=stream,
        place=place,
    )


def _judge(
    book: Book, moment: Moment, intent: Intent, key: bytes, stream: bytes | None, place: EventPlace | None
) -> ClaimAnswer | _Free:
    """Read the row first: design, section 7, the rule at the top of every run."""
    row = book.row(key)
    if row is None:
        return _Free()
    if row.state is RowState.INTENDED and _is_own(row, moment):
        return _claimed(key, row, stream, place)
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
            settled = _settle_row(book, moment, key, row, _ORPHANED, stream, place)
            return Known(key=key, row=settled, fresh=True)
        case GiveUp():
            settled = _settle_row(book, moment, key, row, _given_up(row), stream, place)
            return Known(key=key, row=settled, fresh=True)
        case _:
            assert_never(verdict)


def _decide(moment: Moment, intent: Intent, row: LedgerRow) -> DispatchVerdict | RequestVerdict:
    """Put the row before the decision that fits what is to be run."""
    incarnation = Incarnation.LIVING if row.fence == moment.fence else Incarnation.EARLIER
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
    _keep(book, moment, key, again, stream, place)


def claim_again(book: Book, moment: Moment, claimed: Claimed) -> Claimed:
    """Count one more try of a run that ended in an exception and is safe to repeat."""
    own = book.row(claimed.key)
    if own is not None and _is_own(own, moment):
        return _claimed(claimed.key, own, claimed.stream, claimed.place)
    row = _running_row(book, claimed, RowState.INTENDED)
    again = _replace(
        row, attempt=row.attempt + 1, tries=row.tries + 1, serial=moment.serial, commit=moment.commit
    )
    _put(book, claimed.key, again, expires_at=None)
    return _replace(claimed, attempt=again.attempt, tries=again.tries, serial=again.serial)


def settle(book: Book, moment: Moment, claimed: Claimed, settlement: Settlement) -> Settled:
    """Write the outcome of a run and move the mark; raises StaleAttempt where the row has moved on.

    Indeterminate may still become completed or failed by the real answer, never the reverse (decision L20).
    """
    stream, place = claimed.stream, claimed.place
    remembered = _remembered(book, claimed)
    if remembered is not None and settlement.outcome is OutcomeToken.COMPLETED:
        return Settled(key=claimed.key, row=remembered, processed=_processed(book, stream))
    row = _row_of(book, claimed)
    if row.state is RowState.SETTLED:
        if row.outcome is settlement.outcome and row.fence == moment.fence:
            return Settled(key=claimed.key, row=row, processed=_processed(book, stream))
        if row.outcome is not OutcomeToken.INDETERMINATE or settlement.outcome not in _FINAL:
            raise StaleAttempt(f"this run is settled as {row.outcome} already")
    else:
        _check_running(row, claimed, RowState.INTENDED, RowState.CANCELLING)
    settled = _settle_row(book, moment, claimed.key, row, settlement, stream, place)
    return Settled(key=claimed.key, row=settled, processed=_processed(book, stream))


def resolve(book: Book, moment: Moment, key: bytes, outcome: OutcomeToken, note: str) -> Settled:
    """Write what a person found out; `not_applied` frees the key (decision L2).  Raises StaleAttempt if it
    is not open.
    """
    if outcome is OutcomeToken.INDETERMINATE:
        raise ValueError("an entry is resolved as completed, failed or not_applied")
    row = book.row(key)
    if row is not None and _is_own(row, moment):
        return Settled(key=key, row=row)
    if row is None or not is_unresolved(row):
        raise StaleAttempt("there is nothing to resolve here: the entry is settled, or gone")
    if row.state is not RowState.SETTLED and row.fence == moment.fence:
        raise StaleAttempt("this run still goes on: wait for its outcome")
    stream, place = _place_of(key, row)
    was_parked = row.state is RowState.SETTLED
    settlement = Settlement(
        outcome=outcome,
        result=row.result,
        why="resolved",
        evidence=row.evidence,
        note=note,
        parked=row.parked or was_parked,
    )
    settled = _settle_row(book, moment, key, row, settlement, None if was_parked else stream, place)
    return Settled(key=key, row=settled, processed=_processed(book, stream))


def record(book: Book, moment: Moment, intent: Intent, settlement: Settlement) -> ClaimAnswer | Settled:
    """Write an outcome for a key that nobody runs now: claim and settlement in one."""
    answer = claim(book, moment, intent)
    if isinstance(answer, Known) and answer.row is not None and _is_own(answer.row, moment):
        return Settled(key=answer.key, row=answer.row)
    return settle(book, moment, answer, settlement) if isinstance(answer, Claimed) else answer


def release(book: Book, moment: Moment, claimed: Claimed) -> None:
    """Take back an intent whose handler has not been called."""
    row = _running_row(book, claimed, RowState.INTENDED, RowState.RELEASED)
    released = _replace(row, state=RowState.RELEASED, commit=moment.commit, changed_at=moment.now)
    _put(book, claimed.key, released, expires_at=moment.now + moment.horizon.row_age_s)


def await_input(book: Book, moment: Moment, claimed: Claimed, question: bytes) -> None:
    """Keep the question that a call was answered with, until another round answers it."""
    row = _running_row(book, claimed, RowState.INTENDED, RowState.AWAITING_INPUT)
    waiting = _replace(
        row, state=RowState.AWAITING_INPUT, question=question, commit=moment.commit, changed_at=moment.now
    )
    _put(book, claimed.key, waiting, expires_at=None)


def begin_cancelling(book: Book, moment: Moment, claimed: Claimed) -> None:
    """Note that a call was cancelled; it is settled when its upstream leg is closed (decision L11)."""
    row = _running_row(book, claimed, RowState.INTENDED, RowState.CANCELLING)
    cancelling = _replace(row, state=RowState.CANCELLING, commit=moment.commit, changed_at=moment.now)
    _put(book, claimed.key, cancelling, expires_at=None)


def mark_delivered(book: Book, moment: Moment, claimed: Claimed) -> None:
    """Note that the answer was handed over (decision L17)."""
    row = _row_of(book, claimed)
    if row.state is not RowState.SETTLED:
        raise StaleAttempt(f"this run is {row.state}: there is no answer to hand over")
    delivered = _replace(row, delivered=True, commit=moment.commit)
    _put(
        book,
        claimed.key,
        delivered,
        expires_at=None if is_unresolved(delivered) else moment.now + moment.horizon.row_age_s,
    )


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
    if not _advance(book, moment, key, row, stream, place):
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


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What was changed after a restore."""

    doubts: int
    streams: int


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
                stream, place = _place_of(key, row)
                _settle_row(book, moment, key, row, _RESTORED, stream, place)
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
    stream, place = _place_of(key, row)
    mark = book.mark(stream) if stream is not None else None
    dense = place is not None and not place.foreign
    if place is not None and mark is not None and _is_kept(mark, place):
        book.put_row(key, row, moment.now + moment.horizon.row_age_s)
    elif row.state is not RowState.SETTLED or row.outcome is OutcomeToken.NOT_APPLIED or dense:
        # A released run, a freed key, an old tombstone, or an event behind the mark.
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


def _is_kept(mark: StreamMark, place: EventPlace) -> bool:
    return mark.epoch == place.epoch and place.position >= mark.processed


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


def _settle_row(
    book: Book,
    moment: Moment,
    key: bytes,
    row: LedgerRow,
    settlement: Settlement,
    stream: bytes | None,
    place: EventPlace | None,
) -> LedgerRow:
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
    _keep(book, moment, key, settled, stream, place)
    return settled


def _keep(
    book: Book, moment: Moment, key: bytes, row: LedgerRow, stream: bytes | None, place: EventPlace | None
) -> None:
    """Write a settled row and move the mark over it; a completed event behind the mark needs no row."""
    expires_at = None if is_unresolved(row) else moment.now + moment.horizon.row_age_s
    passed = False
    if stream is not None and place is not None and row.outcome is not OutcomeToken.NOT_APPLIED:
        passed = _advance(book, moment, key, row, stream, place)
    if passed and place is not None and _mark_remembers(row, place):
        book.drop_row(key)
    else:
        book.put_row(key, row, expires_at)
    _put_alias(book, row, expires_at)


def _mark_remembers(row: LedgerRow, place: EventPlace) -> bool:
    return row.outcome is OutcomeToken.COMPLETED and not place.foreign


def _put(book: Book, key: bytes, row: LedgerRow, *, expires_at: float | None) -> None:
    """Write a row, and the same under its payload key."""
    book.put_row(key, row, expires_at)
    _put_alias(book, row, expires_at)


def _put_alias(book: Book, row: LedgerRow, expires_at: float | None) -> None:
    if row.payload_key is not None:
        # The mark belongs to the event's row alone.
        book.put_row(row.payload_key, _replace(row, payload_key=None, position=None), expires_at)


def _advance(
    book: Book, moment: Moment, key: bytes, row: LedgerRow, stream: bytes, place: EventPlace
) -> bool:
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
            if _mark_remembers(found, place):
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


def _is_own(row: LedgerRow, moment: Moment) -> bool:
    """Say whether this very step wrote the row before: a step whose commit failed is done again."""
    return row.fence == moment.fence and row.serial == moment.serial


def _remembered(book: Book, claimed: Claimed) -> LedgerRow | None:
    """Give the outcome at the mark if it is this run's: a completed event has no row any more."""
    mark = book.mark(claimed.stream) if claimed.stream is not None else None
    place = claimed.place
    if mark is None or mark.last is None or place is None or book.row(claimed.key) is not None:
        return None
    is_there = mark.epoch == place.epoch and mark.processed == place.position
    last = mark.last
    is_own = last.attempt == claimed.attempt and last.fence == claimed.fence
    return last if is_there and is_own else None


def _processed(book: Book, stream: bytes | None) -> int | None:
    mark = book.mark(stream) if stream is not None else None
    return mark.processed if mark is not None else None


def _place_of(key: bytes, row: LedgerRow) -> tuple[bytes | None, EventPlace | None]:
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


def _row_of(book: Book, claimed: Claimed) -> LedgerRow:
    row = book.row(claimed.key)
    if row is None or row.attempt != claimed.attempt:
        now = "gone" if row is None else f"at attempt {row.attempt}"
        raise StaleAttempt(f"attempt {claimed.attempt} is over: the row is {now}")
    return row


def _running_row(book: Book, claimed: Claimed, *states: RowState) -> LedgerRow:
    row = _row_of(book, claimed)
    _check_running(row, claimed, *states)
    return row


def _check_running(row: LedgerRow, claimed: Claimed, *states: RowState) -> None:
    """Refuse a writer that is no longer the one entitled; read and checked in the transaction that writes."""
    verdict = check_fence(
        FenceEvidence(
            fence=compare(claimed.fence, stored=row.fence),
            attempt=compare(claimed.attempt, stored=row.attempt),
        )
    )
    if isinstance(verdict, Fenced) or row.state not in states:
        raise StaleAttempt(f"this run is {row.state} now, of owner {row.fence}: it is not yours to write")
