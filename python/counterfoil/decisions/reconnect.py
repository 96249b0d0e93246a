"""Decide when to ask again, and when to stop: one budget for failures, the request's deadline for polls.

Jitter and clock are arguments.  Only what moves the reader forward refills a budget; being accepted does not,
or a server that accepts and closes would be asked for ever.
"""

from __future__ import annotations

import msgspec

from counterfoil.model.tokens import Why


class ReconnectLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how fast a stream is asked for again."""

    failures: int = 8
    """Failures in a row before the stream is given up; browsers never stop, SDKs stop after 2 to 5."""
    first_delay_ms: int = 500
    """Added to the server's `retry` after the first failure, doubled after each further one."""
    longest_delay_ms: int = 30_000
    """Where doubling ends."""
    poll_floor_ms: int = 25
    """Least time between two polls, whatever `retry` says."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What has been used: failures since the reader last moved forward."""

    failures: int = 0


class WaitUntil(msgspec.Struct, frozen=True, kw_only=True):
    """Ask again at this time (seconds on the caller's clock), with this budget."""

    at: float
    budget: Budget


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Do not ask again: `budget` (too many failures) or `deadline` (the next time lies beyond it)."""

    why: Why


FULL = Budget()


def after_failure(
    budget: Budget,
    *,
    limits: ReconnectLimits,
    now: float,
    jitter: float,
    retry_ms: int | None = None,
    deadline: float | None = None,
) -> WaitUntil | Spent:
    """Count an error, a refusal, a fault, or a close without `retry` or `end`.

    `now` and `deadline` are seconds on one clock, `jitter` lies in [0, 1), `retry_ms` is the server's last
    wish.
    """
    used = budget.failures + 1
    if used > limits.failures:
        return Spent(why=Why.BUDGET)
    grown_ms = min(limits.longest_delay_ms, limits.first_delay_ms << (used - 1))
    delay_ms = (retry_ms or 0) + grown_ms * (1 + jitter) / 2
    return _unless_too_late(now + delay_ms / 1000, deadline, Budget(failures=used))


def after_poll(
    budget: Budget,
    *,
    limits: ReconnectLimits,
    now: float,
    retry_ms: int,
    deadline: float | None = None,
) -> WaitUntil | Spent:
    """Plan the next poll after a clean close that followed an id and `retry`; it uses up no failure.

    What bounds polls is the deadline of the request, so a `retry` beyond it settles the request now.
    """
    delay_ms = max(limits.poll_floor_ms, retry_ms)
    return _unless_too_late(now + delay_ms / 1000, deadline, budget)


def _unless_too_late(at: float, deadline: float | None, budget: Budget) -> WaitUntil | Spent:
    if deadline is not None and at >= deadline:
        return Spent(why=Why.DEADLINE)
    return WaitUntil(at=at, budget=budget)
