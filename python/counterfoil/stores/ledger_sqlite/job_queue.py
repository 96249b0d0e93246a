"""The queue in front of the writer, and how long it waits for company before it pays for a commit.

A lone caller never waits.  Where several come at once, the next group waits for as many as the last one
had, at most for a part of what a commit costs.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from counterfoil.errors import LedgerBusy, LedgerClosed
from counterfoil.stores.ledger_sqlite.jobs import Job

#: The part of a commit's time that a group may wait for company, and its bound.
_LINGER_PART = 0.5
_LINGER_S = 0.002


class JobQueue:
    """Many threads put, the writer takes groups."""

    def __init__(self, *, longest: int, group: int) -> None:
        self._jobs: deque[Job] = deque()
        self._condition = threading.Condition()
        self._longest = longest
        self._group = group
        self._wanted = 0
        self._last_group = 1
        self._linger_s = 0.0
        self._closing = False

    def put(self, job: Job, *, follows: bool = False) -> None:
        """Queue a job; raises LedgerBusy when the queue is full, LedgerClosed after :meth:`close`.

        A job that follows from one just written, put by the writer itself, is taken while it closes too.
        """
        with self._condition:
            if self._closing and not follows:
                raise LedgerClosed("the ledger is closing: nothing was queued")
            if len(self._jobs) >= self._longest:
                raise LedgerBusy(f"{self._longest} writes wait already (Limits.ledger_queue): try again")
            self._jobs.append(job)
            if self._wanted and len(self._jobs) >= self._wanted:
                self._condition.notify()

    def put_back(self, jobs: list[Job]) -> None:
        """Put jobs before all others; for the writer, whose jobs are begun already."""
        with self._condition:
            self._jobs.extendleft(reversed(jobs))

    def close(self) -> None:
        """Refuse new jobs; those queued are still taken."""
        with self._condition:
            self._closing = True
            self._condition.notify()

    def note_commit(self, jobs: int, commit_s: float) -> None:
        """Learn from a group that was committed."""
        self._last_group = jobs
        self._linger_s = min(commit_s * _LINGER_PART, _LINGER_S)

    def take(self) -> list[Job]:
        """Wait for jobs and take a group of them; an empty one means that the queue is closed and drained."""
        with self._condition:
            while not self._jobs and not self._closing:
                self._wait_for(1, None)
            wanted = min(self._last_group, self._group)
            if len(self._jobs) < wanted and not self._closing:
                until = time.monotonic() + self._linger_s
                while (
                    len(self._jobs) < wanted and (left := until - time.monotonic()) > 0 and not self._closing
                ):
                    self._wait_for(wanted, left)
            return [self._jobs.popleft() for _ in range(min(len(self._jobs), self._group))]

    def drain(self) -> list[Job]:
        """Take everything at once; for a writer that ends."""
        with self._condition:
            self._closing = True
            jobs = list(self._jobs)
            self._jobs.clear()
            return jobs

    def _wait_for(self, jobs: int, timeout_s: float | None) -> None:
        self._wanted = jobs
        self._condition.wait(timeout_s)
        self._wanted = 0
