"""Reconnecting ends: failures are counted, polls have a deadline, and only progress refills."""

from __future__ import annotations

import pytest
from counterfoil.decisions.reconnect import FULL, ReconnectLimits, Spent, WaitUntil, after_failure, after_poll
from counterfoil.model.tokens import Why
from hypothesis import given
from hypothesis import strategies as st

LIMITS = ReconnectLimits()


def test_a_server_that_accepts_and_closes_is_given_up_after_eight() -> None:
    """It answered 200, empty, closed: no progress, so nothing refills."""
    budget, now, asked = FULL, 0.0, 0
    while True:
        answer = after_failure(budget, limits=LIMITS, now=now, jitter=0.5)
        if isinstance(answer, Spent):
            break
        budget, now, asked = answer.budget, answer.at, asked + 1
    assert asked == 8
    assert answer.why is Why.BUDGET


def test_delays_double_above_the_servers_retry_and_stop_growing() -> None:
    limits = ReconnectLimits(failures=12, first_delay_ms=100, longest_delay_ms=1_000)
    budget, delays = FULL, []
    for _ in range(12):
        answer = after_failure(budget, limits=limits, now=0.0, jitter=0.0, retry_ms=2_000)
        assert isinstance(answer, WaitUntil)
        budget = answer.budget
        delays.append(round(answer.at * 1000 - 2_000))
    assert delays == [50, 100, 200, 400, 500, 500, 500, 500, 500, 500, 500, 500]


@given(
    jitter=st.floats(0, 1, exclude_max=True),
    retry_ms=st.integers(0, 2**63),
    used=st.integers(0, 7),
    now=st.floats(0, 1e9),
)
def test_never_sooner_than_retry_and_never_later_than_the_longest_delay(
    jitter: float, retry_ms: int, used: int, now: float
) -> None:
    answer = after_failure(
        type(FULL)(failures=used), limits=LIMITS, now=now, jitter=jitter, retry_ms=retry_ms
    )
    assert isinstance(answer, WaitUntil)
    least = now + retry_ms / 1000
    assert least <= answer.at <= (least + LIMITS.longest_delay_ms / 1000) * (1 + 1e-12)


@pytest.mark.parametrize("retry_ms", [0, 1, 24, 25, 26, 5_000])
def test_polls_keep_their_distance_and_use_no_failure(retry_ms: int) -> None:
    answer = after_poll(FULL, limits=LIMITS, now=10.0, retry_ms=retry_ms, deadline=100.0)
    assert isinstance(answer, WaitUntil)
    assert answer.at == pytest.approx(10 + max(25, retry_ms) / 1000)
    assert answer.budget == FULL


def test_retry_beyond_the_deadline_settles_the_request_now() -> None:
    answer = after_poll(FULL, limits=LIMITS, now=0.0, retry_ms=3_600_000, deadline=60.0)
    assert answer == Spent(why=Why.DEADLINE)
    late = after_failure(FULL, limits=LIMITS, now=59.9, jitter=0.0, deadline=60.0)
    assert late == Spent(why=Why.DEADLINE)


def test_without_deadline_a_standalone_stream_is_polled_on() -> None:
    assert isinstance(after_poll(FULL, limits=LIMITS, now=0.0, retry_ms=3_600_000), WaitUntil)


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (0.5, 0.75), (0.999, 0.9995)])
def test_jitter_spreads_over_the_upper_half_of_the_delay(jitter: float, share: float) -> None:
    answer = after_failure(FULL, limits=ReconnectLimits(first_delay_ms=1_000), now=0.0, jitter=jitter)
    assert isinstance(answer, WaitUntil)
    assert answer.at == pytest.approx(share)


def test_question_at_the_very_deadline_is_too_late() -> None:
    at = after_poll(FULL, limits=LIMITS, now=0.0, retry_ms=1_000, deadline=1.0)
    assert at == Spent(why=Why.DEADLINE)
    assert isinstance(after_poll(FULL, limits=LIMITS, now=0.0, retry_ms=999, deadline=1.0), WaitUntil)


def test_defaults_are_those_of_the_documentation() -> None:
    assert (LIMITS.failures, LIMITS.first_delay_ms) == (8, 500)
    assert (LIMITS.longest_delay_ms, LIMITS.poll_floor_ms) == (30_000, 25)
    assert len({FULL, Spent(why=Why.BUDGET), WaitUntil(at=1.0, budget=FULL)}) == 3
