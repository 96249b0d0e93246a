"""The times of a stream: the earliest is named, the budget is used and refilled, `retry` is kept."""

from __future__ import annotations

import pytest
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.model.tokens import StreamKind, Why
from counterfoil.protocol.client_stream.pacing import Pacing
from counterfoil.protocol.client_stream.settings import StreamSettings


def make(*, deadline: float | None = None, failures: int = 2) -> Pacing:
    settings = StreamSettings(
        server="x",
        stream="l",
        kind=StreamKind.CALL,
        revision="2025-11-25",
        deadline=deadline,
        judge_within=5.0,
        reconnect=ReconnectLimits(failures=failures, first_delay_ms=1_000),
    )
    return Pacing(settings, lambda: 0.0)


def fail(pacing: Pacing, now: float, *, retry_ms: int | None = None) -> Why | None:
    return pacing.plan(now, is_poll=False, retry_ms=retry_ms, retry_after_ms=None)


def test_earliest_of_all_times() -> None:
    pacing = make(deadline=60.0)
    assert pacing.earliest == 60.0
    pacing.begin_judging(10.0)
    pacing.note_behind(8.0)
    assert pacing.earliest == 13.0
    pacing.note_level()
    assert pacing.earliest == 15.0
    assert pacing.is_time_to_judge(15.0)
    pacing.end_judging()
    assert pacing.earliest == 60.0
    assert pacing.is_over(60.0)


def test_behind_counts_from_the_first_sign() -> None:
    pacing = make()
    pacing.note_behind(1.0)
    pacing.note_behind(4.0)
    assert not pacing.is_behind(5.9)
    assert pacing.is_behind(6.0)


def test_budget_is_used_and_refilled() -> None:
    pacing = make()
    assert [fail(pacing, 0.0), fail(pacing, 0.0), fail(pacing, 0.0)] == [None, None, Why.BUDGET]
    pacing.refill()
    assert fail(pacing, 0.0) is None


def test_retry_of_one_connection_holds_for_those_after_it() -> None:
    pacing = make(failures=9)
    fail(pacing, 0.0, retry_ms=4_000)
    assert pacing.earliest == pytest.approx(4.5)
    fail(pacing, 10.0)
    assert pacing.earliest == pytest.approx(10 + 4 + 1)


def test_retry_after_holds_once() -> None:
    pacing = make(failures=9)
    pacing.plan(0.0, is_poll=True, retry_ms=100, retry_after_ms=7_000)
    assert pacing.earliest == pytest.approx(7.0)
    pacing.plan(0.0, is_poll=True, retry_ms=None, retry_after_ms=None)
    assert pacing.earliest == pytest.approx(0.1)


def test_nothing_of_a_closed_connection_is_waited_for() -> None:
    pacing = make()
    pacing.begin_judging(0.0)
    pacing.note_behind(0.0)
    fail(pacing, 0.0)
    assert not pacing.is_time_to_judge(99.0)
    assert not pacing.is_behind(99.0)
    assert pacing.is_time_to_open(99.0)
    pacing.note_open()
    assert pacing.earliest is None
