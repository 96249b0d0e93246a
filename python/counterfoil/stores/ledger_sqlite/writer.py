"""The one thread that writes the ledger: it takes jobs in groups, and each group shares one durable commit.

Nothing of a group is acknowledged before its commit.  Whatever ends a group early (a handler that rolled it
back, a refused commit, the disk), everything in it is written again, handlers one by one.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

import counterfoil.stores.ledger_sqlite.opening as opening
import counterfoil.stores.ledger_sqlite.unsafe as unsafe
from counterfoil.errors import (
    CounterfoilError,
    HandlerError,
    LedgerClosed,
    LedgerFailed,
    LedgerFenced,
    TransactionLost,
)
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Known, Settled
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Begun, Horizon, Moment, Settlement
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_sqlite.book import SqliteBook
from counterfoil.stores.ledger_sqlite.guard import ControlTexts, Guard
from counterfoil.stores.ledger_sqlite.job_queue import JobQueue
from counterfoil.stores.ledger_sqlite.jobs import HandlerJob, Job, StepJob
from counterfoil.stores.ledger_sqlite.transaction import SqliteTransaction
from counterfoil.stores.ledger_stepped import Serials
from counterfoil.stores.tickets import Ticket, wake

_replace = msgspec.structs.replace
_COMPLETED = Settlement(outcome=OutcomeToken.COMPLETED)
_READ_FENCE = "SELECT fence FROM counterfoil_meta WHERE id = 1"
#: A commit's number is its owner's fence and its place among that owner's commits: unique without a write.
_COMMITS_PER_FENCE = 1 << 32
#: Rows that are aged out per group, beyond as many as the group writes, and how often where it writes none.
_SWEEP = 32
_SWEEP_S = 1.0
#: How many commits pass between two looks for other writers; only a warning hangs on it.
_LOOK_AT_OTHERS = 8


class WriterSettings:
    """What the writer is made with."""

    def __init__(
        self,
        *,
        path: Path,
        horizon: Horizon,
        busy_s: float,
        handler_s: float,
        group: int,
        queue: int,
        foreign_keys: bool,
        clock: Callable[[], float],
        reach: Callable[[str], None] | None,
    ) -> None:
        self.path = path
        self.horizon = horizon
        self.busy_s = busy_s
        self.handler_s = handler_s
        self.group = group
        self.queue = queue
        self.foreign_keys = foreign_keys
        self.clock = clock
        self.reach = reach


class _GroupLost(Exception):
    """The transaction of a group is gone, and with it everything that was done in it."""

    def __init__(
        self, cause: BaseException, culprit: HandlerJob | None = None, *, at_commit: bool = False
    ) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.culprit = culprit
        self.at_commit = at_commit


class _Ends:
    """What each job of a group came to; told after the commit only."""

    def __init__(self) -> None:
        self.told: list[tuple[Ticket[Any], Any, BaseException | None]] = []
        self.again: list[tuple[HandlerJob, Claimed]] = []
        self.wrote = False


class Writer:
    """Owns the thread and the connection; every other thread only queues."""

    def __init__(self, settings: WriterSettings, *, on_end: Callable[[], None]) -> None:
        self._settings = settings
        self._on_end = on_end
        self._guard = Guard()
        self._control = ControlTexts()
        self._queue = JobQueue(longest=settings.queue, group=settings.group)
        self._serials = count(1)
        self._untold = Serials()
        #: Intents whose runs are over and could not be settled.
        self.given_up = Serials()
        self._skips: deque[Callable[[steps.Book, Moment], object]] = deque()
        self._skipping: list[Callable[[steps.Book, Moment], object]] = []
        self._thread = threading.Thread(target=self._run, name="counterfoil-ledger", daemon=True)
        self._connection: sqlite3.Connection | None = None
        self._book: SqliteBook | None = None
        self._now = 0.0
        self._swept_at = 0.0
        self._has_written_rows = False
        self._unclean = False
        self._first_seen: set[bytes] = set()
        self._data_version: int | None = None
        self._fenced = False
        self.fence = 0
        self.secret = b""
        self.commits = 0
        self.opened: Ticket[None] = Ticket()
        self.closed: Ticket[None] = Ticket()
        #: When the handler that runs now began, on the monotonic clock; None while none runs.
        self.handler_since: float | None = None

    # --- any thread ---

    def start(self) -> None:
        """Begin to open the database; `opened` says how it went."""
        self._thread.start()

    def close(self) -> None:
        """Finish what is queued, note the clean end, and close; `closed` says when."""
        self._queue.close()

    def is_own_thread(self) -> bool:
        """Say whether the caller runs on the writer's thread: a handler, or what follows from a ticket."""
        return threading.get_ident() == self._thread.ident

    def is_inside_handler(self) -> bool:
        """Say whether the caller is a handler."""
        return self._guard.handler_runs and self.is_own_thread()

    def put_step(self, step: Callable[[steps.Book, Moment], Any]) -> Ticket[Any]:
        """Queue a step."""
        job = StepJob(step, next(self._serials))
        self._queue.put(job, follows=self.is_own_thread())
        return job.ticket

    def put_handler(self, intent: steps.Intent, handler: Callable[[Transaction], object]) -> Ticket[Any]:
        """Queue a transactional handler."""
        job = HandlerJob(intent, handler, next(self._serials))
        self._queue.put(job)
        return job.ticket

    def put_skip(self, step: Callable[[steps.Book, Moment], object]) -> None:
        """Add a step that costs no commit of its own: it is done with the next group."""
        self._skips.append(step)

    # --- the writer's thread ---

    def _run(self) -> None:
        try:
            self._open()
        except BaseException as error:
            self._close_connection()
            self._on_end()
            self._fail_all(self._queue.drain(), error)
            wake([*self.opened.settle(error=error), *self.closed.settle()])
            return
        wake(self.opened.settle())
        try:
            while jobs := self._queue.take():
                jobs = [job for job in jobs if job.ticket.begin()]
                if jobs:
                    self._write(jobs)
            self._end()
        finally:
            # Whatever ended the thread: nobody may wait for it for ever.
            self._close_connection()
            self._on_end()
            self._fail_all(self._queue.drain(), LedgerClosed("the writer ended: nothing was written"))
            wake(self.closed.settle())

    def _open(self) -> None:
        settings = self._settings
        unsafe.check_second_library(settings.path)
        self._connect()
        assert self._connection is not None
        meta, was_clean = opening.take_over(self._connection, self._control)
        self.fence, self.secret = meta.fence, meta.secret
        self._unclean = not was_clean
        self._book = SqliteBook(self._connection)

    def _connect(self) -> None:
        settings = self._settings
        self._connection = opening.connect(
            settings.path, busy_s=settings.busy_s, guard=self._guard, foreign_keys=settings.foreign_keys
        )
        if unsafe.has_wal_reset_bug():
            (self._data_version,) = self._connection.execute("PRAGMA data_version").fetchone()

    def _reopen(self) -> None:
        """Close a connection that can no longer be trusted, and read the truth afresh."""
        self._close_connection()
        self._connect()
        assert self._connection is not None
        (fence,) = self._connection.execute(_READ_FENCE).fetchone()
        if fence != self.fence:
            raise self._fence_off(fence)
        self._book = SqliteBook(self._connection)

    def _end(self) -> None:
        with contextlib.suppress(sqlite3.Error, CounterfoilError, _GroupLost):
            if self._skips and not self._fenced:
                self._commit_group([])
            if self._connection is not None and not self._fenced:
                self._connection.execute(self._control.begin)
                self._connection.execute(
                    "UPDATE counterfoil_meta SET clean = 1 WHERE id = 1 AND fence = ?", (self.fence,)
                )
                self._connection.execute(self._control.commit)
                opening.empty_log(self._connection)
        self._close_connection()

    def _close_connection(self) -> None:
        connection, self._connection, self._book = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _write(self, jobs: list[Job]) -> None:
        lost = self._try_group(jobs)
        if lost is None:
            return
        rest = self._give_up_culprit(jobs, lost)
        if self._connection is None:
            # The disk failed: what it took is read afresh before anything is done again (decision L30).
            try:
                self._reopen()
            except (sqlite3.Error, CounterfoilError):
                self._close_connection()
                self._fail_all(rest, _as_error(lost))
                return
        # Own steps are written again together, handlers one by one, in their order.
        for batch in _split(rest):
            again = self._try_group(batch)
            if again is not None:
                self._fail_all(self._give_up_culprit(batch, again), _as_error(again))

    def _try_group(self, jobs: list[Job]) -> _GroupLost | None:
        """Commit a group; gives what ended its transaction, None when each job has its end."""
        try:
            if self._fenced:
                raise self._fence_off(None)
            if self._connection is None:
                self._reopen()
            self._commit_group(jobs)
        except _GroupLost as lost:
            self._abandon(lost.cause)
            return lost
        except sqlite3.Error as error:
            self._abandon(error)
            self._fail_all(jobs, opening.translate(error))
        except CounterfoilError as error:
            self._abandon(error)
            self._fail_all(jobs, error)
        except Exception as error:
            # A bug of ours must not take the thread, and every caller's ticket, with it.
            self._abandon(error)
            self._fail_all(jobs, LedgerFailed(f"the ledger failed: {type(error).__name__}: {error}"))
        return None

    def _give_up_culprit(self, jobs: list[Job], lost: _GroupLost) -> list[Job]:
        """Fail the handler that is known to have ended the transaction; it was rolled back, so nothing of
        it is left.
        """
        culprit = lost.culprit
        if culprit is None or opening.is_store_failure(lost.cause):
            return jobs
        self._release_later(culprit)
        wake(culprit.ticket.settle(error=lost.cause))
        return [job for job in jobs if job is not culprit]

    def _release_later(self, job: HandlerJob) -> None:
        claimed = job.claimed
        if claimed is not None:
            step = StepJob(lambda book, moment: steps.release(book, moment, claimed), next(self._serials))
            self._queue.put_back([step])

    def _abandon(self, cause: BaseException) -> None:
        """Roll back what is still open; after a failure of the disk the connection itself is given up."""
        if self._book is not None:
            self._book.forget()
        self._skips.extendleft(reversed(self._skipping))
        self._skipping.clear()
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute(self._control.rollback)
        if opening.is_store_failure(cause):
            self._close_connection()

    def _commit_group(self, jobs: list[Job]) -> None:
        connection, book = self._connection, self._book
        assert connection is not None
        assert book is not None
        number = self._begin(connection)
        ends = _Ends()
        self._run_skips(book, number)
        self._sweep(book, number, len(jobs))
        moment = self._moment(number, 0)
        for job in jobs:
            self._run_job(job, connection, book, _replace(moment, serial=job.serial), ends)
        self._has_written_rows = book.has_rows
        self._reach("B5")
        began = time.monotonic()
        self._commit(connection, book, ends)
        self._queue.note_commit(len(jobs), time.monotonic() - began)
        self._reach("B7")
        for job, claimed in ends.again:
            job.claimed = claimed
            self._first_seen.add(claimed.stream or b"")
        if ends.again:
            self._queue.put_back([job for job, _ in ends.again])
        wakers = [waker for ticket, value, error in ends.told for waker in ticket.settle(value, error)]
        wake(wakers)

    def _begin(self, connection: sqlite3.Connection) -> int:
        connection.execute(self._control.begin)
        (fence,) = connection.execute(_READ_FENCE).fetchone()
        if fence != self.fence:
            raise self._fence_off(fence)
        if self._data_version is not None and self.commits % _LOOK_AT_OTHERS == 0:
            (seen,) = connection.execute("PRAGMA data_version").fetchone()
            if seen != self._data_version:
                self._data_version = None
                # An application that makes errors of warnings must not lose the group for it.
                with contextlib.suppress(unsafe.UnsafeSqliteWarning):
                    unsafe.warn_of_bug("another connection writes the ledger's database")
        return self.fence * _COMMITS_PER_FENCE + self.commits + 1

    def _commit(self, connection: sqlite3.Connection, book: SqliteBook, ends: _Ends) -> None:
        try:
            if book.is_dirty or ends.wrote:
                book.flush()
                self.commits += 1
            self._reach("B6")
            connection.execute(self._control.commit)
        except sqlite3.Error as error:
            raise _GroupLost(error, at_commit=True) from error
        book.accept()
        self._skipping.clear()

    def _run_job(
        self, job: Job, connection: sqlite3.Connection, book: SqliteBook, moment: Moment, ends: _Ends
    ) -> None:
        book.begin_step()
        try:
            if isinstance(job, HandlerJob):
                value = self._run_handler(job, connection, book, moment, ends)
                if value is None:
                    return
            else:
                value = job.step(book, moment)
        except sqlite3.Error as error:
            raise _GroupLost(error) from error
        except (CounterfoilError, ValueError) as error:
            book.undo_step()
            ends.told.append((job.ticket, None, error))
        else:
            ends.told.append((job.ticket, value, None))

    def _run_handler(
        self, job: HandlerJob, connection: sqlite3.Connection, book: SqliteBook, moment: Moment, ends: _Ends
    ) -> object:
        """Read the row, run the handler in its own savepoint, write the outcome; None when its end is noted
        already.
        """
        claimed, begun = job.claimed, None
        if claimed is None:
            answer = steps.begin(book, moment, job.intent)
            if isinstance(answer, Claimed):
                # Its intent had reached the disk by a commit that seemed to fail: nothing has run under it.
                claimed = job.claimed = answer
            elif isinstance(answer, Begun):
                begun, claimed = answer, answer.claimed
                if self._needs_own_intent(claimed):
                    steps.write_intent(book, moment, begun)
                    ends.again.append((job, claimed))
                    return None
            else:
                return self._answer(answer, moment)
        ends.wrote = True
        error = self._call_handler(job, connection)
        if error is not None:
            book.undo_step()
            if job.claimed is not None:
                steps.release(book, moment, job.claimed)
            else:
                steps.put_base(book, claimed)
            ends.told.append((job.ticket, None, error))
            return None
        if begun is not None:
            return steps.settle_begun(book, moment, begun, _COMPLETED)
        return steps.settle(book, moment, claimed, _COMPLETED)

    def _answer(self, answer: ClaimAnswer, moment: Moment) -> ClaimAnswer | Settled:
        """A commit that seemed to fail and had reached the disk leaves this very run settled."""
        row = answer.row if isinstance(answer, Known) else None
        if row is not None and row.serial == moment.serial and row.fence == moment.fence:
            return Settled(key=answer.key, row=row)
        return answer

    def _call_handler(self, job: HandlerJob, connection: sqlite3.Connection) -> BaseException | None:
        control, guard = self._control, self._guard
        connection.execute(control.savepoint)
        transaction = SqliteTransaction(connection, guard)
        error: BaseException | None = None
        self._reach("B3")
        self.handler_since = time.monotonic()
        guard.enter(self._settings.handler_s)
        try:
            job.handler(transaction)
            transaction.check()
        except Exception as raised:
            error = raised
        except BaseException as raised:
            # What ends an interpreter elsewhere must not travel into the task that waits.
            error = HandlerError(f"the handler raised {type(raised).__name__}")
        finally:
            guard.leave()
            self.handler_since = None
            transaction.finish()
        self._reach("B4")
        if transaction.lost is not None or not connection.in_transaction:
            cause = (
                transaction.lost
                if opening.is_store_failure(transaction.lost)
                else (error or transaction.lost)
            )
            raise _GroupLost(cause or TransactionLost("the handler ended the transaction"), job)
        if error is not None:
            if opening.is_store_failure(error):
                raise _GroupLost(error, job)
            connection.execute(control.rollback_to)
        connection.execute(control.release)
        return error

    def _needs_own_intent(self, claimed: Claimed) -> bool:
        """After an unclean end a run that kills the process must be counted before it runs (decision L22)."""
        if claimed.tries > 1:
            return True
        return self._unclean and claimed.stream is not None and claimed.stream not in self._first_seen

    def _run_skips(self, book: SqliteBook, number: int) -> None:
        while self._skips:
            step = self._skips.popleft()
            self._skipping.append(step)
            book.begin_step()
            step(book, self._moment(number, next(self._serials)))

    def _sweep(self, book: SqliteBook, number: int, jobs: int) -> None:
        moment = self._moment(number, 0)
        if not self._has_written_rows and moment.now - self._swept_at < _SWEEP_S:
            return
        self._swept_at = moment.now
        for key in book.expired(moment.now, _SWEEP + 2 * jobs):
            row = book.row(key)
            if row is not None:
                steps.expire(book, moment, key, row)

    def _moment(self, number: int, serial: int) -> Moment:
        # A clock that is set back must not make anything younger.
        self._now = max(self._now, self._settings.clock())
        return Moment(
            now=self._now,
            fence=self.fence,
            commit=number,
            serial=serial,
            horizon=self._settings.horizon,
            untold=self._untold,
            given_up=self.given_up,
        )

    def _fence_off(self, fence: int | None) -> LedgerFenced:
        self._fenced = True
        by = "a later owner" if fence is None else f"owner {fence}"
        return LedgerFenced(
            f"{by} has taken this ledger over from owner {self.fence}: it writes nothing any more"
        )

    def _fail_all(self, jobs: list[Job], error: BaseException) -> None:
        if not isinstance(error, Exception):
            error = LedgerClosed("the writer ended")
        for job in jobs:
            # The disk may have taken it all the same, and whoever asks again must not wait for this run.
            self._untold.add(job.serial)
        wake([waker for job in jobs for waker in job.ticket.settle(error=error)])

    def _reach(self, boundary: str) -> None:
        """A place where tests let a fault happen."""
        if self._settings.reach is not None:
            self._settings.reach(boundary)


def _split(jobs: list[Job]) -> list[list[Job]]:
    batches: list[list[Job]] = []
    for job in jobs:
        if isinstance(job, HandlerJob) or not batches or isinstance(batches[-1][-1], HandlerJob):
            batches.append([job])
        else:
            batches[-1].append(job)
    return batches


def _as_error(lost: _GroupLost) -> BaseException:
    cause = lost.cause
    if isinstance(cause, sqlite3.IntegrityError):
        return TransactionLost(f"the commit was refused: {cause}")
    if isinstance(cause, sqlite3.Error):
        return opening.translate(cause, ambiguous=lost.at_commit and opening.is_store_failure(cause))
    return cause
