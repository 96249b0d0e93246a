"""Run one handler on the writer's thread: guarded, timed, and with what it did taken back where it fails.

Where several handlers share a transaction each has a savepoint of its own; a lone one has the transaction to
itself.  Only the group calls it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

import counterfoil.stores.ledger_sqlite.opening as opening
from counterfoil.errors import HandlerError, TransactionLost
from counterfoil.stores.ledger_sqlite.group_lost import GroupLost
from counterfoil.stores.ledger_sqlite.guard import ControlTexts, Guard
from counterfoil.stores.ledger_sqlite.jobs import HandlerJob
from counterfoil.stores.ledger_sqlite.transaction import SqliteTransaction


class HandlerRuns:
    """Runs handlers, one at a time."""

    def __init__(
        self,
        guard: Guard,
        control: ControlTexts,
        *,
        limit_s: float,
        reach: Callable[[str], None] | None,
    ) -> None:
        self._guard = guard
        self._control = control
        self._limit_s = limit_s
        self._reach = reach
        #: When the handler that runs now began, on the monotonic clock; None while none runs.
        self.since: float | None = None

    def run_among_others(self, job: HandlerJob, cursor: sqlite3.Cursor) -> BaseException | None:
        """Run a handler in its own savepoint; gives the error that it ended in, with its work taken back.

        `cursor` is the group's own: one made for each statement costs a third of the statement.  Raises
        GroupLost where the handler left no transaction to go on with.
        """
        control = self._control
        cursor.execute(control.savepoint)
        error = self.run_alone(job, cursor.connection)
        if error is not None:
            cursor.execute(control.rollback_to)
        cursor.execute(control.release)
        return error

    def run_alone(self, job: HandlerJob, connection: sqlite3.Connection) -> BaseException | None:
        """Run a handler in the open transaction; gives the error that it ended in, with its work *not* taken
        back.

        Raises GroupLost where it left no transaction to go on with.
        """
        guard, reach = self._guard, self._reach
        transaction = SqliteTransaction(connection, guard)
        error: BaseException | None = None
        if reach is not None:
            reach("B3")
        self.since = began = time.monotonic()
        guard.enter(began + self._limit_s)
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
            self.since = None
            transaction.finish()
        if reach is not None:
            reach("B4")
        if transaction.lost is not None or not connection.in_transaction:
            raise _lost_inside(job, transaction.lost, error)
        if error is not None and opening.is_store_failure(error):
            raise GroupLost(error, job)
        return error


def _lost_inside(job: HandlerJob, lost: BaseException | None, error: BaseException | None) -> GroupLost:
    cause = lost if opening.is_store_failure(lost) else (error or lost)
    return GroupLost(cause or TransactionLost("the handler ended the transaction"), job)
