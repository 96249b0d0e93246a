"""The one thread that writes the ledger: it takes jobs in groups, and each group shares one durable commit.

Nothing of a group is acknowledged before its commit.  Whatever ends a group early (a handler that rolled it
back, a refused commit, the disk), everything in it is written again, handlers one by one.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import counterfoil.stores.ledger_sqlite.opening as opening
import counterfoil.stores.ledger_sqlite.unsafe as unsafe
from counterfoil.errors import CounterfoilError, LedgerClosed, LedgerFailed
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Moment
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_sqlite.group import Groups
from counterfoil.stores.ledger_sqlite.group_lost import GroupLost
from counterfoil.stores.ledger_sqlite.guard import ControlTexts, Guard
from counterfoil.stores.ledger_sqlite.handler_runs import HandlerRuns
from counterfoil.stores.ledger_sqlite.job_queue import JobQueue
from counterfoil.stores.ledger_sqlite.jobs import HandlerJob, Job, StepJob
from counterfoil.stores.ledger_sqlite.settings import WriterSettings
from counterfoil.stores.ledger_sqlite.statements import OwnStatements
from counterfoil.stores.tickets import Ticket, wake

_READ_FENCE = "SELECT fence FROM counterfoil_meta WHERE id = 1"


class Writer:
    """Owns the thread and the connection; every other thread only queues."""

    def __init__(self, settings: WriterSettings, *, on_end: Callable[[], None]) -> None:
        self._settings = settings
        self._on_end = on_end
        self._guard = Guard()
        self._control = ControlTexts()
        self._queue = JobQueue(longest=settings.queue, group=settings.group)
        self._handlers = HandlerRuns(
            self._guard, self._control, limit_s=settings.handler_s, reach=settings.reach
        )
        self._groups = Groups(settings, self._control, self._handlers)
        self._thread = threading.Thread(target=self._run, name="counterfoil-ledger", daemon=True)
        self._connection: sqlite3.Connection | None = None
        self.secret = b""
        self.opened: Ticket[None] = Ticket()
        self.closed: Ticket[None] = Ticket()

    # --- any thread ---

    @property
    def fence(self) -> int:
        """The number of this incarnation."""
        return self._groups.fence

    @property
    def commits(self) -> int:
        """How many durable commits were paid for."""
        return self._groups.commits

    @property
    def handler_since(self) -> float | None:
        """When the handler that runs now began, on the monotonic clock; None while none runs."""
        return self._handlers.since

    def start(self) -> None:
        """Begin to open the database; `opened` says how it went."""
        self._thread.start()

    def close(self) -> None:
        """Finish what is queued, note the clean end, and close; `closed` says when."""
        self._queue.close()

    def is_own_thread(self) -> bool:
        """Say whether the caller runs on the writer's thread: a handler, or what follows from a ticket."""
        return threading.get_ident() == self._thread.ident

    @property
    def is_in_handler(self) -> bool:
        """Say whether a handler runs now, on the writer's own thread."""
        return self._guard.handler_runs

    def put_step(self, step: Callable[[steps.Book, Moment], Any]) -> Ticket[Any]:
        """Queue a step."""
        job = StepJob(step, self._groups.next_serial())
        self._queue.put(job, follows=self.is_own_thread())
        return job.ticket

    def put_handler(
        self,
        intent: steps.Intent,
        handler: Callable[[Transaction], object],
        after: Ticket[Any] | None,
    ) -> Ticket[Any]:
        """Queue a transactional handler."""
        job = HandlerJob(intent, handler, self._groups.next_serial(), after)
        self._queue.put(job)
        return job.ticket

    def put_skip(self, step: Callable[[steps.Book, Moment], object]) -> None:
        """Add a step that costs no commit of its own: it is done with the next group."""
        self._groups.put_skip(step)

    def give_up(self, serial: int) -> None:
        """Note that nobody carries on the run whose intent has this number."""
        self._groups.given_up.add(serial)

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
        unsafe.check_second_library(self._settings.path)
        connection = self._connect()
        meta, was_clean = opening.take_over(connection, self._control)
        self._groups.fence, self.secret = meta.fence, meta.secret
        self._groups.is_after_crash = not was_clean
        self._groups.attach(connection)

    def _connect(self) -> sqlite3.Connection:
        settings = self._settings
        self._connection = opening.connect(
            settings.path,
            busy_s=settings.busy_s,
            guard=self._guard,
            control=self._control,
            foreign_keys=settings.foreign_keys,
        )
        return self._connection

    def _reopen(self) -> None:
        """Close a connection that can no longer be trusted, and read the truth afresh."""
        self._close_connection()
        connection = self._connect()
        own = OwnStatements(connection, self._control.comment)
        (fence,) = own.execute(_READ_FENCE).fetchone()
        if fence != self.fence:
            raise self._groups.fence_off(fence)
        self._groups.attach(connection)

    def _end(self) -> None:
        groups = self._groups
        with contextlib.suppress(sqlite3.Error, CounterfoilError, GroupLost):
            if groups.has_skips and not groups.is_fenced:
                groups.commit([])
            if self._connection is not None and not groups.is_fenced:
                self._connection.execute(self._control.begin)
                OwnStatements(self._connection, self._control.comment).execute(
                    "UPDATE counterfoil_meta SET clean = 1 WHERE id = 1 AND fence = ?", (self.fence,)
                )
                self._connection.execute(self._control.commit)
                opening.empty_log(self._connection)
        self._close_connection()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._groups.detach()
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
                self._fail_all(rest, lost.for_callers())
                return
        # Own steps are written again together, handlers one by one, in their order.
        for batch in _split(rest):
            again = self._try_group(batch)
            if again is not None:
                self._fail_all(self._give_up_culprit(batch, again), again.for_callers())

    def _try_group(self, jobs: list[Job]) -> GroupLost | None:
        """Commit a group; gives what ended its transaction, None when each job has its end."""
        try:
            if self._groups.is_fenced:
                raise self._groups.fence_off(None)
            if self._connection is None:
                self._reopen()
            self._commit(jobs)
        except GroupLost as lost:
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

    def _commit(self, jobs: list[Job]) -> None:
        ends = self._groups.commit(jobs)
        self._queue.note_commit(jobs, ends.commit_s)
        if self._settings.reach is not None:
            self._settings.reach("B7")
        if ends.again:
            for job, claimed in ends.again:
                if claimed is not None:
                    job.claimed = claimed
            self._queue.put_back([job for job, _ in ends.again])
        wake([waker for ticket, value, error in ends.told for waker in ticket.settle(value, error)])

    def _give_up_culprit(self, jobs: list[Job], lost: GroupLost) -> list[Job]:
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
            step = StepJob(
                lambda book, moment: steps.release(book, moment, claimed), self._groups.next_serial()
            )
            self._queue.put_back([step])

    def _abandon(self, cause: BaseException) -> None:
        """Roll back what is still open; after a failure of the disk the connection itself is given up."""
        self._groups.forget()
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute(self._control.rollback)
        if opening.is_store_failure(cause):
            self._close_connection()

    def _fail_all(self, jobs: list[Job], error: BaseException) -> None:
        if not isinstance(error, Exception):
            error = LedgerClosed("the writer ended")
        for job in jobs:
            # The disk may have taken it all the same, and whoever asks again must not wait for this run.
            self._groups.untold.add(job.serial)
        wake([waker for job in jobs for waker in job.ticket.settle(error=error)])


def _split(jobs: list[Job]) -> list[list[Job]]:
    batches: list[list[Job]] = []
    for job in jobs:
        if isinstance(job, HandlerJob) or not batches or isinstance(batches[-1][-1], HandlerJob):
            batches.append([job])
        else:
            batches[-1].append(job)
    return batches
