"""Carry a group of jobs through one transaction: what each came to is told after the commit only.

It knows no queue and no thread, and gives up nothing: whatever ends a group early is the writer's to judge.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

import counterfoil.stores.ledger_sqlite.unsafe as unsafe
from counterfoil.errors import CounterfoilError, LedgerFenced, OutOfTurn
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Known, Settled, is_completed
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Begun, Moment, Settlement
from counterfoil.stores.ledger_sqlite.book import SqliteBook
from counterfoil.stores.ledger_sqlite.group_lost import GroupLost
from counterfoil.stores.ledger_sqlite.guard import ControlTexts
from counterfoil.stores.ledger_sqlite.handler_runs import HandlerRuns
from counterfoil.stores.ledger_sqlite.jobs import HandlerJob, Job
from counterfoil.stores.ledger_sqlite.settings import WriterSettings
from counterfoil.stores.ledger_sqlite.statements import OwnStatements
from counterfoil.stores.ledger_stepped import Serials
from counterfoil.stores.tickets import Ticket

_replace = msgspec.structs.replace
_COMPLETED = Settlement(outcome=OutcomeToken.COMPLETED)
#: A commit's number is its owner's fence and its place among that owner's commits: unique without a write.
_COMMITS_PER_FENCE = 1 << 32
#: Rows that are aged out per group, beyond as many as the group writes, and how often where it writes none.
_SWEEP = 32
_SWEEP_S = 1.0
#: For how many commits' time a group goes on with a stream's second and later events, and its bounds.
_FOLLOW_COMMITS = 4
_FOLLOW_LEAST_S = 0.001
_FOLLOW_MOST_S = 0.02
#: How many commits pass between two looks for other writers; only a warning hangs on it.
_LOOK_AT_OTHERS = 8

Skip = Callable[[steps.Book, Moment], object]


class Ends:
    """What each job of a group came to."""

    __slots__ = ("again", "commit_s", "told", "wrote")

    def __init__(self) -> None:
        #: How long the durable commit took.
        self.commit_s = 0.0
        self.told: list[tuple[Ticket[Any], Any, BaseException | None]] = []
        #: Jobs to run next: with an intent that has this commit for itself, or behind such a one.
        self.again: list[tuple[HandlerJob, Claimed | None]] = []
        self.wrote = False


class Groups:
    """One per writer; it has a connection between `attach` and `detach`, and outlives every one of them."""

    def __init__(self, settings: WriterSettings, control: ControlTexts, handlers: HandlerRuns) -> None:
        self._horizon = settings.horizon
        self._clock = settings.clock
        self._reach = settings.reach
        self._control = control
        self._handlers = handlers
        self._connection: sqlite3.Connection | None = None
        self._book: SqliteBook | None = None
        self._data_version: int | None = None
        self._serials = count(1)
        #: Steps whose callers were told of a failure although the disk may have taken them.
        self.untold = Serials()
        #: Intents whose runs are over and could not be settled.
        self.given_up = Serials()
        self._skips: deque[Skip] = deque()
        self._skipping: list[Skip] = []
        self._now = 0.0
        self._swept_at = 0.0
        self._has_written_rows = False
        self._follow_s = _FOLLOW_LEAST_S
        self._first_seen: set[bytes] = set()
        #: The last owner did not end cleanly.
        self.is_after_crash = False
        self.is_fenced = False
        self.fence = 0
        self.commits = 0

    # --- any thread ---

    def next_serial(self) -> int:
        """Number a job."""
        return next(self._serials)

    def put_skip(self, step: Skip) -> None:
        """Add a step that costs no commit of its own: it is done with the next group."""
        self._skips.append(step)

    # --- the writer's thread ---

    @property
    def has_skips(self) -> bool:
        """Say whether a group without jobs would have something to write."""
        return bool(self._skips)

    def attach(self, connection: sqlite3.Connection) -> None:
        """Write through this connection from now on."""
        self._connection = connection
        self._book = SqliteBook(OwnStatements(connection, self._control.comment))
        self._data_version = None
        if unsafe.has_wal_reset_bug():
            (self._data_version,) = connection.execute("PRAGMA data_version").fetchone()

    def detach(self) -> None:
        """The connection is closed, or is about to be."""
        self._connection = self._book = None

    def commit(self, jobs: list[Job]) -> Ends:
        """Do the jobs and commit them; gives what each came to.

        Raises GroupLost where the transaction was ended early, LedgerFenced where another owner has come,
        and `sqlite3.Error` where it could not begin; then :meth:`forget` is to be called.
        """
        connection, book = self._connection, self._book
        assert connection is not None
        assert book is not None
        handlers = [job for job in jobs if isinstance(job, HandlerJob)]
        connection.execute(self._control.begin)
        self._check_owner(book.read_ahead(_keys_of(handlers)))
        if self._data_version is not None and not self.commits % _LOOK_AT_OTHERS:
            self._look_for_others(connection)
        group = _Group(
            connection,
            book,
            number=self.fence * _COMMITS_PER_FENCE + self.commits + 1,
            is_shared=len(handlers) > 1,
            follow_until=time.monotonic() + self._follow_s,
        )
        if self._skips:
            self._run_skips(group)
        moment = self._moment(group.number)
        self._sweep(book, moment, len(jobs))
        for job in jobs:
            self._run_job(job, group, _replace(moment, serial=job.serial))
        self._has_written_rows = book.has_rows
        self._pass("B5")
        began = time.monotonic()
        self._commit(group)
        group.ends.commit_s = commit_s = time.monotonic() - began
        self._follow_s = min(max(commit_s * _FOLLOW_COMMITS, _FOLLOW_LEAST_S), _FOLLOW_MOST_S)
        for _job, claimed in group.ends.again:
            if claimed is not None:
                self._first_seen.add(claimed.stream or b"")
        return group.ends

    def forget(self) -> None:
        """The group was lost: nothing of it is true, and its skips are still to be done."""
        if self._book is not None:
            self._book.forget()
        self._skips.extendleft(reversed(self._skipping))
        self._skipping.clear()

    def fence_off(self, fence: int | None) -> LedgerFenced:
        """Note that another owner has come, and give the error that says so."""
        self.is_fenced = True
        by = "a later owner" if fence is None else f"owner {fence}"
        return LedgerFenced(
            f"{by} has taken this ledger over from owner {self.fence}: it writes nothing any more"
        )

    def _check_owner(self, fence: int) -> None:
        if fence != self.fence:
            raise self.fence_off(fence)

    def _look_for_others(self, connection: sqlite3.Connection) -> None:
        (seen,) = connection.execute("PRAGMA data_version").fetchone()
        if seen != self._data_version:
            self._data_version = None
            # An application that makes errors of warnings must not lose the group for it.
            with contextlib.suppress(unsafe.UnsafeSqliteWarning):
                unsafe.warn_of_bug("another connection writes the ledger's database")

    def _commit(self, group: _Group) -> None:
        book = group.book
        try:
            if book.is_dirty or group.ends.wrote:
                book.flush()
                self.commits += 1
            self._pass("B6")
            group.connection.execute(self._control.commit)
        except sqlite3.Error as error:
            raise GroupLost(error, at_commit=True) from error
        book.accept()
        self._skipping.clear()

    def _run_job(self, job: Job, group: _Group, moment: Moment) -> None:
        book, told = group.book, group.ends.told
        book.begin_step()
        try:
            if isinstance(job, HandlerJob):
                answer = value = self._run_handler(job, group, moment)
                if answer is None:
                    return
                if is_completed(answer):
                    group.completed.add(job.ticket)
            else:
                value = job.step(book, moment)
        except sqlite3.Error as error:
            raise GroupLost(error) from error
        except (CounterfoilError, ValueError) as error:
            book.undo_step()
            told.append((job.ticket, None, error))
        else:
            told.append((job.ticket, value, None))

    def _run_handler(self, job: HandlerJob, group: _Group, moment: Moment) -> ClaimAnswer | Settled | None:
        """Read the row, run the handler, write the outcome; None when its end is noted already."""
        book = group.book
        if job.after is not None and group.is_to_wait(job.after):
            group.defer(job, None)
            return None
        claimed, begun = job.claimed, None
        if claimed is None:
            answer = steps.begin(book, moment, job.intent, job.keys)
            if isinstance(answer, Begun):
                begun, claimed = answer, answer.claimed
            elif isinstance(answer, Claimed):
                # Its intent had reached the disk by a commit that seemed to fail: nothing has run under it.
                claimed = job.claimed = answer
            else:
                return _of_this_run(answer, moment)
        # Looked at behind the row: this very run may have been committed already by what seemed to fail.
        if job.after is not None and not group.is_completed(job.after):
            if job.claimed is not None:
                steps.release(book, moment, job.claimed)
            group.tell(job, OutOfTurn("the work that it was to follow is not completed"))
            return None
        if begun is not None and self._needs_own_intent(claimed):
            steps.write_intent(book, moment, begun)
            group.defer(job, claimed)
            return None
        group.ends.wrote = True
        error = self._call(job, group)
        if error is not None:
            book.undo_step()
            if job.claimed is not None:
                steps.release(book, moment, job.claimed)
            else:
                steps.put_base(book, claimed)
            group.tell(job, error)
            return None
        if begun is not None:
            return steps.settle_begun(book, moment, begun, _COMPLETED)
        return steps.settle(book, moment, claimed, _COMPLETED)

    def _call(self, job: HandlerJob, group: _Group) -> BaseException | None:
        """Run the handler; gives the error that it ended in, with its work taken back."""
        connection = group.connection
        if group.is_shared:
            return self._handlers.run_among_others(job, group.cursor)
        error = self._handlers.run_alone(job, connection)
        if error is not None:
            # Nothing but the handler has written into the database yet: what the steps put is in the book.
            connection.execute(self._control.rollback)
            connection.execute(self._control.begin)
            try:
                self._check_owner(group.book.read_ahead([]))
            except LedgerFenced as fenced:
                raise GroupLost(fenced) from fenced
        return error

    def _needs_own_intent(self, claimed: Claimed) -> bool:
        """After an unclean end a run that kills the process must be counted before it runs (decision L22)."""
        if claimed.tries > 1:
            return True
        return self.is_after_crash and claimed.stream is not None and claimed.stream not in self._first_seen

    def _run_skips(self, group: _Group) -> None:
        while self._skips:
            step = self._skips.popleft()
            self._skipping.append(step)
            group.book.begin_step()
            step(group.book, self._moment(group.number, self.next_serial()))

    def _sweep(self, book: SqliteBook, moment: Moment, jobs: int) -> None:
        if not self._has_written_rows and moment.now - self._swept_at < _SWEEP_S:
            return
        self._swept_at = moment.now
        for key in book.expired(moment.now, _SWEEP + 2 * jobs):
            row = book.row(key)
            if row is not None:
                steps.expire(book, moment, key, row)

    def _moment(self, number: int, serial: int = 0) -> Moment:
        # A clock that is set back must not make anything younger.
        self._now = max(self._now, self._clock())
        return Moment(
            now=self._now,
            fence=self.fence,
            commit=number,
            serial=serial,
            horizon=self._horizon,
            untold=self.untold,
            given_up=self.given_up,
        )

    def _pass(self, boundary: str) -> None:
        """A place where tests let a fault happen."""
        if self._reach is not None:
            self._reach(boundary)


class _Group:
    """One group on its way; `is_shared` where several handlers have to be kept apart by savepoints."""

    __slots__ = (
        "book",
        "completed",
        "connection",
        "cursor",
        "deferred",
        "ends",
        "follow_until",
        "is_shared",
        "number",
    )

    def __init__(
        self,
        connection: sqlite3.Connection,
        book: SqliteBook,
        *,
        number: int,
        is_shared: bool,
        follow_until: float,
    ) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.book = book
        self.number = number
        self.is_shared = is_shared
        self.follow_until = follow_until
        self.ends = Ends()
        #: What others may follow in this very commit, and what they have to wait for.
        self.completed: set[Ticket[Any]] = set()
        self.deferred: set[Ticket[Any]] = set()

    def is_to_wait(self, after: Ticket[Any]) -> bool:
        """Say whether what follows `after` has to wait for the next group: behind what waits itself, and so
        that a backlog of slow handlers holds up no other stream's commit.
        """
        if after in self.deferred:
            return True
        return after in self.completed and time.monotonic() >= self.follow_until

    def defer(self, job: HandlerJob, claimed: Claimed | None) -> None:
        """Have a handler run by the next group."""
        self.ends.again.append((job, claimed))
        self.deferred.add(job.ticket)

    def tell(self, job: HandlerJob, error: BaseException) -> None:
        """Note that a handler's work is not done."""
        self.ends.told.append((job.ticket, None, error))

    def is_completed(self, work: Ticket[Any]) -> bool:
        """Say whether work that was given before is completed, or will be by this commit."""
        if work in self.completed:
            return True
        return work.outcome is OutcomeToken.COMPLETED and is_completed(work.result())


def _keys_of(handlers: list[HandlerJob]) -> list[bytes]:
    """Give the keys whose rows are read first: those of runs that have no intent of their own yet."""
    keys = []
    for job in handlers:
        if job.claimed is None:
            key, _, alias = job.keys
            keys.append(key)
            if alias is not None:
                keys.append(alias)
    return keys


def _of_this_run(answer: ClaimAnswer, moment: Moment) -> ClaimAnswer | Settled:
    """A commit that seemed to fail and had reached the disk leaves this very run settled."""
    row = answer.row if isinstance(answer, Known) else None
    if row is not None and row.serial == moment.serial and row.fence == moment.fence:
        return Settled(key=answer.key, row=row)
    return answer
