"""The queue in front of the writer, and how long it waits for company before it pays for a commit.

A lone caller never waits.  Where several come at once, the next group waits for as many as the last one
had, at most for a part of what a commit costs.  Jobs that follow others come behind those that do not, so
that a long backlog of one stream holds up no other stream.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from counterfoil.errors import LedgerBusy, LedgerClosed
from counterfoil.stores.ledger_sqlite.jobs import Job

#: The part of a commit's time that a group may wait for company, and its bound.
_LINGER_PART = 0.5
_LINGER_S = 0.002
#: The part of a full group that is kept for jobs that follow others.
_FOLLOWERS_PART = 4


class JobQueue:
    """Many threads put, the writer takes groups."""

    def __init__(self, *, longest: int, group: int) -> None:
        self._jobs: deque[Job] = deque()
        self._followers: deque[Job] = deque()
        self._lock = threading.Lock()
        #: Held while nobody rings; a bare lock wakes a thread for a third of what a condition takes.
        self._bell = threading.Lock()
        self._bell.acquire()
        #: How many jobs the writer sleeps for; 0 while it does not.
        self._wanted = 0
        self._longest = longest
        self._group = group
        self._last_group = 1
        self._linger_s = 0.0
        self._closing = False

    def put(self, job: Job, *, follows: bool = False) -> None:
        """Queue a job; raises LedgerBusy when the queue is full, LedgerClosed after :meth:`close`.

        A job that follows from one just written, put by the writer itself, is taken while it closes too.
        """
        with self._lock:
            if self._closing and not follows:
                raise LedgerClosed("the ledger is closing: nothing was queued")
            if len(self._jobs) + len(self._followers) >= self._longest:
                raise LedgerBusy(f"{self._longest} writes wait already (Limits.ledger_queue): try again")
            (self._jobs if job.after is None else self._followers).append(job)
            if self._wanted and len(self._jobs) + len(self._followers) >= self._wanted:
                self._ring()

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Put jobs before all others of their kind; for the writer, whose jobs are begun already."""
        with self._lock:
            for job in reversed(jobs):
                (self._jobs if job.after is None else self._followers).appendleft(job)

    def close(self) -> None:
        """Refuse new jobs; those queued are still taken."""
        with self._lock:
            self._closing = True
            if self._wanted:
                self._ring()

    def note_commit(self, jobs: list[Job], commit_s: float) -> None:
        """Learn from a group that was committed."""
        self._last_group = sum(job.after is None for job in jobs) if len(jobs) > 1 else 1
        self._linger_s = min(commit_s * _LINGER_PART, _LINGER_S)

    def take(self) -> list[Job]:
        """Wait for jobs and take a group of them; an empty one means that the queue is closed and drained."""
        self._sleep_for(1)
        wanted = min(self._last_group, self._group)
        if wanted > 1:
            self._sleep_for(wanted, self._linger_s)
        jobs, followers = self._jobs, self._followers
        with self._lock:
            kept = min(len(followers), self._group // _FOLLOWERS_PART)
            group = [jobs.popleft() for _ in range(min(len(jobs), self._group - kept))]
            if followers:
                left = min(len(followers), self._group - len(group))
                group += [followers.popleft() for _ in range(left)]
            return group

    def drain(self) -> list[Job]:
        """Take everything at once; for a writer that ends."""
        with self._lock:
            self._closing = True
            jobs = [*self._jobs, *self._followers]
            self._jobs.clear()
            self._followers.clear()
            return jobs

    def _sleep_for(self, jobs: int, timeout_s: float = -1) -> None:
        """Wait until so many jobs are there, the queue closes, or the time is over; -1 is without end."""
        with self._lock:
            if len(self._jobs) + len(self._followers) >= jobs or self._closing:
                return
            self._wanted = jobs
        if self._bell.acquire(timeout=timeout_s):
            return
        with self._lock:
            if self._wanted:
                self._wanted = 0
            else:
                # Somebody rang after the time was over: the next sleep must not end by it.
                self._bell.acquire()

    def _ring(self) -> None:
        self._wanted = 0
        self._bell.release()
