"""When a stream has to look at the clock again: to judge, to notice that it is behind, to ask again.

It plans and waits for nothing; `counterfoil.decisions.reconnect` bounds it.
"""

from __future__ import annotations

from collections.abc import Callable

from counterfoil.decisions.reconnect import FULL, Spent, after_failure, after_poll
from counterfoil.model.tokens import Why
from counterfoil.protocol.client_stream.settings import StreamSettings


class Pacing:
    """The times of one stream, in seconds on the caller's clock, and the budget of its failures."""

    def __init__(self, settings: StreamSettings, jitter: Callable[[], float]) -> None:
        self._settings = settings
        self._jitter = jitter
        self._budget = FULL
        self._retry_ms = 0
        self._judge_at: float | None = None
        self._behind_at: float | None = None
        self._reopen_at: float | None = None

    @property
    def failures(self) -> int:
        """Failures in a row since the reader last moved forward."""
        return self._budget.failures

    def begin_judging(self, now: float) -> None:
        """An answer is there; it should be judged soon."""
        self._judge_at = now + self._settings.judge_within

    def end_judging(self) -> None:
        """It is judged, or the application has been told that it is not."""
        self._judge_at = None

    def note_behind(self, now: float) -> None:
        """The server has written more than arrived; it may still be on its way."""
        if self._behind_at is None:
            self._behind_at = now + self._settings.judge_within

    def note_level(self) -> None:
        """What the server has written has arrived."""
        self._behind_at = None

    def refill(self) -> None:
        """The reader moved forward."""
        self._budget = FULL

    def note_open(self) -> None:
        """The next connection is being opened."""
        self._reopen_at = None

    def plan(
        self, now: float, *, is_poll: bool, retry_ms: int | None, retry_after_ms: int | None
    ) -> Why | None:
        """Plan the next connection; return why there is none, if there is none.

        `retry_ms` is what the last connection gave, and holds for those after it; `retry_after_ms` only now.
        """
        self._judge_at = self._behind_at = None
        if retry_ms is not None:
            self._retry_ms = retry_ms
        floor_ms = max(self._retry_ms, retry_after_ms or 0)
        limits, deadline = self._settings.reconnect, self._settings.deadline
        if is_poll:
            planned = after_poll(self._budget, limits=limits, now=now, retry_ms=floor_ms, deadline=deadline)
        else:
            planned = after_failure(
                self._budget,
                limits=limits,
                now=now,
                jitter=self._jitter(),
                retry_ms=floor_ms,
                deadline=deadline,
            )
        if isinstance(planned, Spent):
            return planned.why
        self._budget = planned.budget
        self._reopen_at = planned.at
        return None

    def is_over(self, now: float) -> bool:
        """Whether the request's deadline has passed."""
        return _is_due(self._settings.deadline, now)

    def is_time_to_judge(self, now: float) -> bool:
        """Whether a verdict is overdue."""
        return _is_due(self._judge_at, now)

    def is_behind(self, now: float) -> bool:
        """Whether what the server has written should have arrived by now."""
        return _is_due(self._behind_at, now)

    def is_time_to_open(self, now: float) -> bool:
        """Whether the next connection is due."""
        return _is_due(self._reopen_at, now)

    @property
    def earliest(self) -> float | None:
        """When to look again."""
        earliest = self._settings.deadline
        for at in (self._judge_at, self._behind_at, self._reopen_at):
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        return earliest


def _is_due(at: float | None, now: float) -> bool:
    return at is not None and now >= at
