"""An unkeyed call's row goes when its answer was handed over, unless a person or an adopter has to see it."""

from __future__ import annotations

from counterfoil.model.ledger_keys import UNKEYED_RANGE, CallKey, UnkeyedCall, encode_key, read_unkeyed
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.model.tokens import OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol.ledger_steps import (
    Horizon,
    Intent,
    Moment,
    Settlement,
    claim,
    close_call,
    kept_calls,
    note_adopted,
    settle,
    take_call,
)
from counterfoil.stores.ledger_memory import MemoryBook

SCOPE = Scope(tenant="t", principal="alice", session="s")
HORIZON = Horizon(row_age_s=100, tombstone_age_s=1_000, open_rows=10, attempts=3)
ANSWER = Settlement(outcome=OutcomeToken.COMPLETED, result=b"answer")
DOUBT = Settlement(outcome=OutcomeToken.INDETERMINATE, why="closed")


def moment(serial: int, fence: int = 1) -> Moment:
    return Moment(now=1.0, fence=fence, commit=serial, serial=serial, horizon=HORIZON)


def key(number: str) -> UnkeyedCall:
    return UnkeyedCall(route="/mcp", identity=b"\xff" * 32, number=number)


def begin(book: MemoryBook, number: str, serial: int = 1) -> Claimed:
    claimed = claim(book, moment(serial), Intent(scope=SCOPE, key=key(number), kind=RowKind.CALL))
    assert isinstance(claimed, Claimed)
    return claimed


def test_a_stored_key_is_read_back_and_lies_in_the_range_with_no_other_kind() -> None:
    stored = encode_key(SCOPE, key("1"))
    assert read_unkeyed(stored) == (SCOPE, key("1"))
    low, high = UNKEYED_RANGE
    assert low < stored < high
    assert not low < encode_key(SCOPE, CallKey(route="/mcp", key="unkeyed")) < high


def test_an_answer_that_was_handed_over_is_forgotten() -> None:
    book = MemoryBook()
    claimed = begin(book, "1")
    settle(book, moment(2), claimed, ANSWER)
    assert [call.key for call in kept_calls(book, b"")] == [claimed.key]
    close_call(book, moment(3), claimed)
    assert kept_calls(book, b"") == []
    close_call(book, moment(4), claimed)  # once more changes nothing


def test_a_call_that_was_refused_or_cancelled_before_its_outcome_is_forgotten_too() -> None:
    book = MemoryBook()
    close_call(book, moment(2), begin(book, "1"))
    assert book.open_rows() == 0


def test_an_adopted_call_stays_for_people_without_its_answer() -> None:
    book = MemoryBook()
    claimed = begin(book, "1")
    note_adopted(book, moment(2), claimed)
    settle(book, moment(3), claimed, ANSWER)
    note_adopted(book, moment(4), claimed)
    close_call(book, moment(5), claimed)
    (kept,) = kept_calls(book, b"")
    assert (kept.row.adopted, kept.row.delivered, kept.row.result) == (2, True, None)
    assert book.open_rows() == 0


def test_a_doubt_stays_for_a_person_though_its_caller_was_told_and_keeps_no_call_out() -> None:
    book = MemoryBook()
    claimed = begin(book, "1")
    settle(book, moment(2), claimed, DOUBT)
    close_call(book, moment(3), claimed)
    (kept,) = kept_calls(book, b"")
    assert (kept.row.outcome, kept.row.delivered) == (OutcomeToken.INDETERMINATE, True)
    assert book.open_rows() == 0
    assert book.expired(HORIZON.tombstone_age_s) == []
    assert book.expired(HORIZON.tombstone_age_s + 1.5) == [claimed.key]


def test_calls_are_read_page_by_page() -> None:
    book = MemoryBook()
    for number in "123":
        begin(book, number)
    (first, second, third) = kept_calls(book, b"")
    assert [call.key for call in kept_calls(book, first.key)] == [second.key, third.key]


def test_a_call_that_was_left_has_one_taker_and_who_asks_twice_is_told_the_same() -> None:
    book = MemoryBook()
    settle(book, moment(2), begin(book, "1"), ANSWER)
    (left,) = kept_calls(book, b"")
    taken = take_call(book, moment(3), left, b"first")
    assert taken is not None
    assert (taken.result, taken.run) == (b"answer", b"first")
    assert take_call(book, moment(4), left, b"second") is None
    assert take_call(book, moment(5), left, b"first") == taken


def test_what_runs_is_not_taken_and_what_an_earlier_owner_left_open_is_a_doubt_then() -> None:
    book = MemoryBook()
    begin(book, "1")
    (left,) = kept_calls(book, b"")
    assert take_call(book, moment(2), left, b"taker") is None
    taken = take_call(book, moment(3, fence=2), left, b"taker")
    assert taken is not None
    assert (taken.outcome, taken.run) == (OutcomeToken.INDETERMINATE, b"taker")


def test_l10_a_doubt_that_was_told_is_taken_all_the_same_and_an_answer_handed_over_is_not() -> None:
    for number, (settlement, is_taken) in enumerate(((DOUBT, True), (ANSWER, False))):
        book = MemoryBook()
        claimed = begin(book, str(number))
        note_adopted(book, moment(2), claimed)
        settle(book, moment(3), claimed, settlement)
        close_call(book, moment(4), claimed)
        (left,) = kept_calls(book, b"")
        assert (take_call(book, moment(5), left, b"taker") is not None) is is_taken
