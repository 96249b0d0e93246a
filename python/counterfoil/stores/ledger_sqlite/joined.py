"""The ledger inside the application's own transactions: it writes where the caller writes, and never ends
anything.

For transactional deliveries only: an intent would need a commit of its own.  What it proves is declared by
the caller, who alone knows whether the work went through the same connection.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

import counterfoil.stores.ledger_sqlite.opening as opening
import counterfoil.stores.ledger_sqlite.schema as schema
import counterfoil.stores.ledger_sqlite.unsafe as unsafe
from counterfoil.errors import (
    LedgerFenced,
    LedgerInUse,
    StaleAttempt,
    StillPending,
    TransactionMissing,
    TransactionOpen,
    UnsafeStore,
)
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import EventPlace, encode_stream
from counterfoil.model.ledger_rows import RowKind, StreamMark
from counterfoil.model.ledger_verdicts import ClaimAnswer, Known
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Begun, Horizon, Intent, Moment, Settlement
from counterfoil.stores.ledger_sqlite.book import SqliteBook
from counterfoil.stores.ledger_sqlite.owner_lock import is_owned
from counterfoil.stores.ledger_sqlite.statements import PlainStatements
from counterfoil.stores.tickets import Ticket, wake

_FULL = 2
_COMPLETED = Settlement(outcome=OutcomeToken.COMPLETED)


class JoinedTicket(Ticket[OutcomeToken]):
    """One event between :meth:`JoinedLedger.receive` and :meth:`JoinedLedger.settled`."""

    def __init__(self, intent: Intent, stream: bytes, fence: int, serial: int) -> None:
        super().__init__()
        self.intent = intent
        self.stream = stream
        self.fence = fence
        self.serial = serial


class JoinedLedger:
    """A ledger in whatever database the caller's connection writes; it opens no connection of its own.

    The order of use is :meth:`receive`, the caller's own work and :meth:`commit_in` in one transaction, the
    caller's commit or rollback, and :meth:`settled`.  Not for several threads at once.
    """

    durability: Literal["disk"] = "disk"
    proof: Literal["declared"] = "declared"
    kinds = frozenset({HandlerKind.TRANSACTIONAL})

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        strict_sqlite: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limits = limits if limits is not None else Limits()
        self._horizon = Horizon(
            row_age_s=self.limits.ledger_row_age_s,
            tombstone_age_s=self.limits.ledger_tombstone_age_s,
            open_rows=self.limits.ledger_open_rows,
            attempts=self.limits.attempts,
        )
        self._strict = strict_sqlite
        self._clock = clock
        self._warned = False
        # Many processes may join one database, so numbers begin at a random place.
        self._serials = count(secrets.randbits(48))
        self._pending: dict[bytes, JoinedTicket] = {}

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Make the ledger's tables where they are missing, in a transaction of its own.

        Raises UnsafeStore for a connection that is not `sqlite3`'s or not durable, LedgerInUse where a living
        process owns the file, TransactionOpen inside a transaction, LedgerSchemaNewer.
        """
        self._check_outside(connection)
        with _own_transaction(connection) as plain:
            schema.create(plain, secrets.token_bytes(32))
            schema.read_meta(plain)

    def receive(self, connection: sqlite3.Connection, intent: Intent) -> JoinedTicket | ClaimAnswer:
        """Read the row first; a ticket means that the event is to be applied.

        Raises what :meth:`prepare` raises, and StillPending while an event of the same stream is.
        """
        self._check_outside(connection)
        if intent.kind is not RowKind.TRANSACTIONAL or not isinstance(intent.key, EventPlace):
            raise UnsafeStore(
                "joined mode serves transactional events only: calls and other kinds need an owner"
            )
        stream = encode_stream(intent.scope, intent.key.server, intent.key.stream)
        if stream in self._pending:
            raise StillPending(
                "the event before it on this stream is not settled: call settled() for it first"
            )
        serial = next(self._serials)
        with _own_transaction(connection) as plain:
            book = SqliteBook(plain)
            fence = schema.read_meta(plain).fence
            answer = steps.begin(book, self._moment(fence, serial), intent)
            book.flush()
        if not isinstance(answer, Begun):
            return answer
        ticket = self._pending[stream] = JoinedTicket(intent, stream, fence, serial)
        return ticket

    def commit_in(self, connection: sqlite3.Connection, ticket: JoinedTicket) -> None:
        """Write outcome and mark inside the caller's open transaction; never begins, commits or closes.

        Raises TransactionMissing in autocommit, and, so that the caller rolls back, StaleAttempt where
        another process has settled the event and LedgerFenced where an owner has taken the ledger over.
        """
        _check_connection(connection)
        if not connection.in_transaction:
            raise TransactionMissing(
                "commit_in writes inside your transaction, and none is open: begin one first"
            )
        plain = PlainStatements(connection)
        fence = schema.read_meta(plain).fence
        if fence != ticket.fence:
            raise LedgerFenced(
                f"owner {fence} has taken the ledger over since the event was received: roll back"
            )
        book = SqliteBook(plain)
        moment = self._moment(fence, ticket.serial)
        begun = steps.begin(book, moment, ticket.intent)
        if not isinstance(begun, Begun):
            if self._is_own(begun, ticket):
                return
            raise StaleAttempt("another process has settled this event: roll back")
        steps.settle_begun(book, moment, begun, _COMPLETED)
        book.flush()

    def settled(self, connection: sqlite3.Connection, ticket: JoinedTicket) -> OutcomeToken:
        """Read what the caller's commit or rollback left, after it; settles the ticket and frees the stream.

        Raises TransactionOpen inside a transaction.
        """
        self._check_outside(connection)
        book = SqliteBook(PlainStatements(connection))
        answer = steps.begin(book, self._moment(ticket.fence, ticket.serial), ticket.intent)
        outcome = OutcomeToken.COMPLETED if isinstance(answer, Known) else OutcomeToken.NOT_APPLIED
        self._pending.pop(ticket.stream, None)
        wake(ticket.settle(outcome, outcome=outcome))
        return outcome

    def mark(
        self, connection: sqlite3.Connection, scope: Scope, *, server: str, stream: str
    ) -> StreamMark | None:
        """Give how far a stream is processed."""
        self._check_outside(connection)
        return SqliteBook(PlainStatements(connection)).mark(encode_stream(scope, server, stream))

    def _is_own(self, answer: ClaimAnswer, ticket: JoinedTicket) -> bool:
        return isinstance(answer, Known) and answer.row is not None and answer.row.serial == ticket.serial

    def _moment(self, fence: int, serial: int) -> Moment:
        return Moment(now=self._clock(), fence=fence, commit=serial, serial=serial, horizon=self._horizon)

    def _check_outside(self, connection: sqlite3.Connection) -> None:
        _check_connection(connection)
        if connection.in_transaction:
            raise TransactionOpen(
                "this reads what is durable: commit or roll back the open transaction first"
            )
        plain = PlainStatements(connection)
        (_, _, name), *_ = plain.execute("PRAGMA database_list").fetchall()
        if not name:
            raise UnsafeStore("the connection's main database is no file: its ledger would end with it")
        if is_owned(Path(name)):
            raise LedgerInUse("a process owns this ledger: joined writes beside an owner could be lost")
        (synchronous,) = plain.execute("PRAGMA synchronous").fetchone()
        if synchronous < _FULL:
            raise UnsafeStore(
                "the connection's PRAGMA synchronous is below FULL: a commit could be lost with power"
            )
        (mode,) = plain.execute("PRAGMA journal_mode").fetchone()
        if mode in ("off", "memory"):
            raise UnsafeStore(f"the connection's journal mode is {mode!r}: a torn commit could not be undone")
        if mode == "wal" and not self._warned:
            unsafe.check_version(strict=self._strict)
            if unsafe.has_wal_reset_bug():
                self._warned = True
                unsafe.warn_of_bug("joined mode shares the file with the application's connections")


@contextmanager
def _own_transaction(connection: sqlite3.Connection) -> Iterator[PlainStatements]:
    """A short transaction of the ledger's own, while the caller has none."""
    plain = PlainStatements(connection)
    try:
        plain.execute("BEGIN IMMEDIATE")
        try:
            yield plain
            plain.execute("COMMIT")
        finally:
            if connection.in_transaction:
                plain.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise opening.translate(error) from error


def _check_connection(connection: sqlite3.Connection) -> None:
    if not isinstance(connection, sqlite3.Connection):
        raise UnsafeStore(
            f"joined mode needs a connection of Python's own sqlite3, not {type(connection).__module__}: "
            "two SQLite libraries on one file drop each other's locks"
        )
