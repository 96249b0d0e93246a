"""The transaction that a handler is lent: execute and fetch, and nothing that could end it.

It checks before and after every statement that the ledger's transaction is still open; once it is not, it
is dead for good, whatever the handler does with the error.
"""

from __future__ import annotations

import sqlite3
from time import monotonic
from typing import Any

from counterfoil.errors import HandlerTooSlow, TransactionControlRefused, TransactionLost
from counterfoil.stores.ledger_interface import Parameters
from counterfoil.stores.ledger_sqlite.guard import Guard


class SqliteRows:
    """What one statement gave."""

    __slots__ = ("__cursor", "__owner")

    def __init__(self, owner: SqliteTransaction, cursor: sqlite3.Cursor) -> None:
        self.__owner = owner
        self.__cursor = cursor

    @property
    def rowcount(self) -> int:
        return self.__cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self.__cursor.lastrowid

    def fetchone(self) -> tuple[Any, ...] | None:
        """Give the next row, None after the last."""
        self.__owner.check()
        try:
            row: tuple[Any, ...] | None = self.__cursor.fetchone()
        except sqlite3.Error as error:
            raise self.__owner.translate(error) from error
        self.__owner.check()
        return row

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Give all rows that are left."""
        self.__owner.check()
        try:
            rows = self.__cursor.fetchall()
        except sqlite3.Error as error:
            raise self.__owner.translate(error) from error
        self.__owner.check()
        return rows


class SqliteTransaction:
    """Lent to one handler for one run; see :class:`counterfoil.Transaction`."""

    __slots__ = ("__connection", "__cursors", "__guard", "__over", "lost")

    def __init__(self, connection: sqlite3.Connection, guard: Guard) -> None:
        self.__connection = connection
        self.__guard = guard
        self.__cursors: list[sqlite3.Cursor] = []
        self.__over = False
        #: What ended the transaction from inside; None while it is open.
        self.lost: BaseException | None = None

    def execute(self, sql: str, parameters: Parameters = (), /) -> SqliteRows:
        """Run one statement; see :meth:`counterfoil.Transaction.execute`."""
        self.check()
        try:
            cursor = self.__connection.execute(sql, parameters)
        except sqlite3.Error as error:
            raise self.translate(error) from error
        self.__cursors.append(cursor)
        self.check()
        return SqliteRows(self, cursor)

    def check(self) -> None:
        """Raise unless the transaction is open and in time."""
        if self.lost is not None:
            raise TransactionLost(
                "this transaction was rolled back: nothing done through it counts"
            ) from self.lost
        if self.__over:
            raise TransactionLost("this transaction has ended: use it inside the handler only")
        if not self.__connection.in_transaction:
            self.lost = TransactionLost("a statement rolled the whole transaction back")
            raise self.lost
        if monotonic() > self.__guard.deadline:
            raise HandlerTooSlow("the handler passed its time limit (Limits.handler_ms)")

    def translate(self, error: sqlite3.Error) -> BaseException:
        """Note what the error did to the transaction, and give the one to raise."""
        if not self.__connection.in_transaction:
            self.lost = error
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_INTERRUPT:
            return HandlerTooSlow("the handler passed its time limit (Limits.handler_ms)")
        if code == sqlite3.SQLITE_AUTH:
            return TransactionControlRefused(
                "a handler may not use transaction control, ATTACH, PRAGMA or tables named counterfoil_…"
            )
        return error

    def finish(self) -> None:
        """End the loan: statements left open are reset, so that the savepoint can be closed."""
        self.__over = True
        for cursor in self.__cursors:
            cursor.close()
        self.__cursors.clear()
