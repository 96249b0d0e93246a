"""The steps over a book of two dictionaries: what only shows without a store around them.

The contract that stores keep through these steps is in `tests/stores/test_ledger_interface.py`.
"""

from __future__ import annotations

import msgspec
import pytest
from counterfoil import Scope
from counterfoil.model.ledger_keys import CallKey, EventPlace, PayloadKey, encode_stream
from counterfoil.model.ledger_rows import RowKind, StreamMark
from counterfoil.model.ledger_verdicts import Claimed, Known, Settled
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Horizon, Intent, Moment, Settlement, marks
from counterfoil.stores.ledger_memory import MemoryBook
from hypothesis import given
from hypothesis import strategies as st

SCOPE = Scope(principal="p")
HORIZON = Horizon(row_age_s=100, tombstone_age_s=1000, open_rows=100, attempts=3)
DONE = Settlement(outcome=OutcomeToken.COMPLETED)


def moment(serial: int, *, fence: int = 1, now: float = 0.0) -> Moment:
    return Moment(now=now, fence=fence, commit=serial, serial=serial, horizon=HORIZON)


def place(position: int, *, foreign: bool = False) -> EventPlace:
    return EventPlace(
        server="s", stream="st", epoch="e", position=position, event_id=f"id{position}", foreign=foreign
    )


def wanted(key: EventPlace | CallKey, kind: RowKind = RowKind.IDEMPOTENT, **more: object) -> Intent:
    return Intent(scope=SCOPE, key=key, kind=kind, **more)  # type: ignore[arg-type]


def claimed(book: MemoryBook, at: Moment, intent: Intent) -> Claimed:
    answer = steps.claim(book, at, intent)
    assert isinstance(answer, Claimed)
    return answer


def test_a_step_whose_commit_failed_after_it_reached_the_disk_recognises_its_own_rows() -> None:
    """Whatever is written again after a failed commit keeps its number, and finds itself."""
    book = MemoryBook()
    first = claimed(book, moment(1), wanted(place(1)))
    assert steps.claim(book, moment(1), wanted(place(1))) == first
    second = steps.claim_again(book, moment(2), first)
    assert steps.claim_again(book, moment(2), first) == second
    settled = steps.settle(book, moment(3), second, DONE)
    assert steps.settle(book, moment(3), second, DONE).row.outcome is settled.row.outcome
    released = claimed(book, moment(4), wanted(place(2)))
    for _ in range(2):
        steps.release(book, moment(5), released)
    call = wanted(CallKey(route="r", key="k"), RowKind.CALL)
    asked = claimed(book, moment(6), call)
    for _ in range(2):
        steps.await_input(book, moment(7), asked, b"?")
    doubt = claimed(book, moment(8), wanted(CallKey(route="r", key="d"), RowKind.CALL))
    steps.settle(book, moment(9), doubt, Settlement(outcome=OutcomeToken.INDETERMINATE))
    for _ in range(2):
        one = steps.resolve(book, moment(10), doubt.key, OutcomeToken.FAILED, "n")
        assert one.row.note == "n"
    record = wanted(CallKey(route="r", key="w"), RowKind.CALL)
    for _ in range(2):
        assert isinstance(steps.record(book, moment(11), record, DONE), Settled)


def test_record_gives_what_is_known_instead_of_overwriting_it() -> None:
    book = MemoryBook()
    steps.record(book, moment(1), wanted(place(1)), DONE)
    failed = Settlement(outcome=OutcomeToken.FAILED)
    assert isinstance(steps.record(book, moment(2), wanted(place(1)), failed), Known)


def test_both_rows_of_a_payload_key_live_and_end_together() -> None:
    book = MemoryBook()
    named = PayloadKey(server="s", key="w")
    run = claimed(book, moment(1), wanted(place(1, foreign=True), payload_key=named))
    assert book.open_rows() == 2
    steps.settle(book, moment(2), run, DONE)
    assert book.open_rows() == 0
    assert len(book.rows) == 2


@pytest.mark.parametrize("foreign", [False, True])
@given(order=st.permutations(range(1, 8)), doubts=st.sets(st.integers(1, 7)))
def test_the_mark_is_always_the_largest_settled_prefix(
    foreign: bool, order: list[int], doubts: set[int]
) -> None:
    """The mark against a plain restatement, for every order of settling, with the proof beside it."""
    book = MemoryBook()
    runs = {n: claimed(book, moment(n), wanted(place(n, foreign=foreign))) for n in range(1, 8)}
    done: set[int] = set()
    stream = encode_stream(SCOPE, "s", "st")
    for serial, position in enumerate(order, 10):
        outcome = OutcomeToken.INDETERMINATE if position in doubts else OutcomeToken.COMPLETED
        settled = steps.settle(book, moment(serial), runs[position], Settlement(outcome=outcome, parked=True))
        done.add(position)
        expected = next(n for n in range(8) if n + 1 not in done)
        mark = book.mark(stream)
        assert mark is not None
        assert settled.processed == mark.processed == expected
        assert mark.event_id == (f"id{expected}" if expected else "")
        assert steps.check_witness(mark) is None
        if expected:
            assert mark.last is not None
            assert (mark.last.outcome is OutcomeToken.INDETERMINATE) == (expected in doubts)
        # Whatever was settled is known, by its row or by the mark.
        for n in done:
            again = wanted(place(n, foreign=foreign))
            assert isinstance(steps.claim(book, moment(99, fence=2), again), Known)


def test_the_proof_of_atomicity_fails_where_the_records_contradict_each_other() -> None:
    """L25."""
    book = MemoryBook()
    run = claimed(book, moment(1), wanted(place(1)))
    steps.settle(book, moment(2), run, DONE)
    mark = book.mark(encode_stream(SCOPE, "s", "st"))
    assert mark is not None
    assert mark.last is not None
    assert steps.check_witness(mark) is None
    assert steps.check_witness(StreamMark(epoch="e")) is None
    for broken in (
        {"commit": 7},
        {"processed": 2},
        {"last": None},
        {"last": msgspec.structs.replace(mark.last, position=9)},
    ):
        assert steps.check_witness(msgspec.structs.replace(mark, **broken)) is not None


def test_events_that_the_mark_remembers_take_no_room() -> None:
    """Everything is bounded: a stream of a million completed events leaves one record."""
    book = MemoryBook()
    for n in range(1, 501):
        run = claimed(book, moment(2 * n), wanted(place(n)))
        steps.settle(book, moment(2 * n + 1), run, DONE)
    assert len(book.rows) == 0
    assert len(book.marks) == 1


def test_what_waits_above_the_mark_is_bounded_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    book = MemoryBook()
    runs = [claimed(book, moment(n), wanted(place(n))) for n in range(1, 60)]
    stream = encode_stream(SCOPE, "s", "st")
    monkeypatch.setattr(marks, "AHEAD_MAX", 10)
    for serial, run in enumerate(reversed(runs[1:]), 100):
        steps.settle(book, moment(serial), run, DONE)
    mark = book.mark(stream)
    assert mark is not None
    assert len(mark.ahead) == 10
    steps.settle(book, moment(300), runs[0], DONE)
    for n in range(2, 60):  # what was not remembered is brought again, and found by its row
        assert isinstance(steps.claim(book, moment(400 + n), wanted(place(n))), Known)
