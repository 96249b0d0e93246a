"""The cards' three functions, compared exhaustively with the cards' rules restated in plain words."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import counterfoil
import pytest
from counterfoil import resumption
from counterfoil.errors import NotApplied
from counterfoil.resumption import (
    SSEResumptionInvariantError,
    SSEresumptionInvariantError,
    StreamResumptionViolation,
    apply_event,
    classify_reconnect,
    validate_resumption,
)
from counterfoil.stores.ledger_memory import MemoryLedger
from counterfoil.stores.ledger_sqlite import SqliteLedger

WIDE = 2**62


# The cards, restated.


def card_b(cursor: int, first: int, log: dict[int, str], idempotent: bool) -> int | str:
    missing = list(range(cursor + 1, first))
    if first <= cursor:
        return "abort"
    if missing:
        return f"missing {missing[0]} to {missing[-1]}"
    if log.get(first) == "committed" and not idempotent:
        return "ambiguous"
    return first


def card_a(cursor: int, asked: str | None, first: int, answered: str | None, window: bool) -> str:
    tokens = {asked, answered} - {None}
    if None not in (asked, answered) and len(tokens) == 2:
        return "reoriginated"
    if not first > cursor:
        return "reoriginated"
    token_equal = asked == answered and asked is not None
    return "resumed" if token_equal or window else "unverifiable"


def card_apply(
    key: str | None, classification: str, known: set[str], fails: bool
) -> tuple[str, set[str], int]:
    """What happens, the keys afterwards, and how often the effect is started."""
    if key in known:
        return "skipped", known, 0
    if classification == "unverifiable" or (classification == "reoriginated" and key is None):
        return "violation", known, 0
    if fails:
        return "raised", known, 1
    return "applied", known | ({key} if key else set()), 1


def outcome_of(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except SSEResumptionInvariantError as error:
        text = str(error)
        if "missing" in text:
            _, first, _, last, *_ = text.split()
            return f"missing {first} to {last}"
        return "abort" if "abort" in text else "ambiguous"


def test_validate_resumption_is_card_b_over_all_small_cases() -> None:
    states: list[str | None] = [None, "committed", "processed"]
    count = 0
    for cursor, first in itertools.product(range(-1, 7), range(-1, 9)):
        for state, idempotent in itertools.product(states, [False, True]):
            log = {first: state} if state else {}
            # What lies elsewhere in the log must not matter.
            for extra in ({}, {cursor: "processed"}, {first + 1: "committed"}):
                full = {**extra, **log}
                expected = card_b(cursor, first, full, idempotent)
                assert outcome_of(validate_resumption, cursor, first, full, idempotent) == expected
                count += 1
    assert count == 8 * 10 * 3 * 2 * 3


def test_processed_id_passes_as_on_the_card() -> None:
    assert validate_resumption(7, 8, {8: "processed"}, False) == 8


@pytest.mark.parametrize("cursor", [0, 5, WIDE - 1])
def test_gap_of_any_width_takes_constant_memory(cursor: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(SSEResumptionInvariantError, match=f"events {cursor + 1} to {cursor + WIDE} are"):
            validate_resumption(cursor, cursor + WIDE + 1, {}, True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_classify_reconnect_is_card_a_over_all_small_cases() -> None:
    tokens = [None, "a", "b"]
    for cursor, first in itertools.product(range(5), repeat=2):
        for asked, answered, window in itertools.product(tokens, tokens, [False, True]):
            expected = card_a(cursor, asked, first, answered, window)
            assert classify_reconnect(cursor, asked, first, answered, window) == expected


def test_card_a_incident_is_reoriginated() -> None:
    """Resume at 4118; a replica whose own counter stood at 12 answers with 13."""
    assert classify_reconnect(4118, "replica-1", 13, "replica-2", False) == "reoriginated"
    assert classify_reconnect(4118, None, 13, None, False) == "reoriginated"


def test_numbers_that_line_up_without_token_or_window_are_unverifiable() -> None:
    assert classify_reconnect(4118, None, 4119, None, False) == "unverifiable"


@pytest.mark.parametrize("classification", ["resumed", "reoriginated", "unverifiable"])
@pytest.mark.parametrize("key", [None, "k", "known"])
@pytest.mark.parametrize("fails", [False, True])
def test_apply_event_is_the_card_over_all_cases(classification: Any, key: str | None, fails: bool) -> None:
    ledger = {"known"}
    runs = []

    def execute(event: Any) -> None:
        runs.append(event)
        if fails:
            raise LookupError("the effect failed")

    event = {"data": 1} if key is None else {"data": 1, "idempotency_key": key}
    try:
        happened = apply_event(event, classification, ledger, execute)
    except StreamResumptionViolation:
        happened = "violation"
    except LookupError:
        happened = "raised"
    assert (happened, ledger, len(runs)) == card_apply(key, classification, {"known"}, fails)
    assert all(run is event for run in runs)


def test_without_execute_nothing_is_run_and_the_key_is_recorded() -> None:
    ledger: set[str] = set()
    event = {"idempotency_key": "k"}
    assert apply_event(event, "reoriginated", ledger) == "applied"
    assert ledger == {"k"}
    assert apply_event(event, "resumed", ledger) == "skipped"


def test_nine_skipped_eleven_twice_does_not_happen() -> None:
    """Card A's incident with keys: re-originated events run once, whatever their new numbers."""
    ledger: set[str] = set()
    runs: list[str] = []
    tasks = [{"idempotency_key": f"task-{n}"} for n in range(11)]
    for event in tasks:
        apply_event(event, "resumed", ledger, lambda e: runs.append(e["idempotency_key"]))
    for event in tasks:
        apply_event(event, "reoriginated", ledger, lambda e: runs.append(e["idempotency_key"]))
    assert runs == [event["idempotency_key"] for event in tasks]


def test_key_is_taken_out_when_the_caller_is_interrupted() -> None:
    ledger: set[str] = set()

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply_event({"idempotency_key": "k"}, "resumed", ledger, interrupted)
    assert ledger == set()


@pytest.fixture(params=["memory", "sqlite"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    ledger = MemoryLedger() if request.param == "memory" else SqliteLedger(tmp_path / "ledger.db")
    with ledger.blocking() as blocking:
        yield blocking


def test_durable_ledger_runs_an_event_once_under_every_classification(durable: Any) -> None:
    event, runs = {"idempotency_key": "k"}, []
    assert apply_event(event, "resumed", durable, runs.append) == "applied"
    for classification in ("resumed", "reoriginated", "unverifiable"):
        assert apply_event(event, classification, durable, runs.append) == "skipped"
    assert runs == [event]


def test_exception_after_the_effect_is_never_run_again(durable: Any) -> None:
    """Decision L28: with a set this very event would be applied twice."""
    event, effects = {"idempotency_key": "k"}, []

    def effect_then_failure(applied: Any) -> None:
        effects.append(applied)
        raise LookupError("after the effect")

    with pytest.raises(LookupError):
        apply_event(event, "resumed", durable, effect_then_failure)
    with pytest.raises(StreamResumptionViolation, match="may have happened"):
        apply_event(event, "resumed", durable, effect_then_failure)
    assert len(effects) == 1


def test_not_applied_takes_the_intent_out(durable: Any) -> None:
    event, runs = {"idempotency_key": "k"}, []

    def refused(_: Any) -> None:
        raise NotApplied("connection refused")

    with pytest.raises(NotApplied):
        apply_event(event, "resumed", durable, refused)
    assert apply_event(event, "resumed", durable, runs.append) == "applied"
    assert len(runs) == 1


def test_refused_event_leaves_no_intent_behind(durable: Any) -> None:
    event, runs = {"idempotency_key": "k"}, []
    with pytest.raises(StreamResumptionViolation, match="unverifiable"):
        apply_event(event, "unverifiable", durable, runs.append)
    assert apply_event(event, "resumed", durable, runs.append) == "applied"


def test_intent_of_a_killed_process_is_told_and_not_skipped(tmp_path: Path) -> None:
    """Killed between the intent and the outcome.

    A silent skip would lose the effect, a run could double it.
    """
    code = (
        "import os, sys; from counterfoil.stores.ledger_sqlite import SqliteLedger;"
        "from counterfoil.resumption import apply_event\n"
        "with SqliteLedger(sys.argv[1]).blocking() as ledger:"
        " apply_event({'idempotency_key': 'k'}, 'resumed', ledger, lambda e: os.kill(os.getpid(), 9))"
    )
    path = tmp_path / "ledger.db"
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -9
    with SqliteLedger(path).blocking() as ledger, pytest.raises(StreamResumptionViolation):
        apply_event({"idempotency_key": "k"}, "resumed", ledger, lambda e: None)


def test_unknown_classification_is_refused() -> None:
    with pytest.raises(ValueError, match="resumed, reoriginated or unverifiable"):
        apply_event({}, "probably", set())  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [SSEResumptionInvariantError, StreamResumptionViolation])
def test_exceptions_are_runtime_errors_of_ours_and_pickle(error: type[Exception]) -> None:
    assert issubclass(error, RuntimeError)
    assert issubclass(error, counterfoil.CounterfoilError)
    again = pickle.loads(pickle.dumps(error("why")))
    assert type(again) is error
    assert str(again) == "why"


def test_names_of_the_cards_are_exported() -> None:
    assert SSEresumptionInvariantError is SSEResumptionInvariantError
    for name in resumption.__all__:
        assert getattr(resumption, name) is not None
