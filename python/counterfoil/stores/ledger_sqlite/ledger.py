"""The idempotency ledger in a SQLite database: owned by one process, in the application's own file.

It queues work for the writer and hands out tickets; it runs no SQL itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

import anyio

import counterfoil.stores.ledger_sqlite.unsafe as unsafe
from counterfoil.errors import ForkedHandle, LedgerClosed, LedgerStalled, ReentrantCall, UnsafeStore
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import EventPlace, encode_stream
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Entry, Settled
from counterfoil.model.tokens import HandlerKind
from counterfoil.native import Scope
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Book, Horizon, Intent, Moment, Recovered
from counterfoil.stores.ledger_blocking import BlockingLedger
from counterfoil.stores.ledger_entries import describe_entry, find_entry
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_sqlite.owner_door import OwnerDoor, ResolveRequest
from counterfoil.stores.ledger_sqlite.owner_lock import OwnerLock
from counterfoil.stores.ledger_sqlite.settings import WriterSettings
from counterfoil.stores.ledger_sqlite.watch import StallWatch
from counterfoil.stores.ledger_sqlite.writer import Writer
from counterfoil.stores.ledger_stepped import SteppedLedger
from counterfoil.stores.tickets import Ticket

T = TypeVar("T")
#: How long an operator's command waits for each step of the writer.
_OPERATOR_S = 5.0


class SqliteLedger(SteppedLedger):
    """A ledger in a database file, with `async with` or `with ledger.blocking()` around its use.

    The tables lie beside the application's own, so that a transactional handler's work, its outcome and the
    cursor share one commit; `completed` holds through `kill -9` and power loss.

    Raises, on entering: LedgerInUse, LedgerReadOnly, LedgerCorrupt, LedgerSchemaNewer, LedgerBusy,
    UnsafeStore.
    """

    durability: Literal["disk"] = "disk"
    kinds = frozenset(HandlerKind)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limits: Limits | None = None,
        strict_sqlite: bool = False,
        foreign_keys: bool = False,
        on_stalled: Callable[[LedgerStalled], None] | None = None,
        clock: Callable[[], float] = time.time,
        _reach: Callable[[str], None] | None = None,
    ) -> None:
        name = os.fspath(path)
        if name in ("", ":memory:") or name.startswith("file:"):
            raise UnsafeStore(
                f"a ledger needs a file of its own name, not {name!r}: use MemoryLedger for tests"
            )
        self.path = Path(name)
        self.limits = limits if limits is not None else Limits()
        self._strict = strict_sqlite
        self._lock = OwnerLock(self.path)
        self._door = OwnerDoor(self.path, self.resolve_named)
        self._pid = os.getpid()
        limits_ = self.limits
        self._settings = WriterSettings(
            path=self.path,
            horizon=Horizon(
                row_age_s=limits_.ledger_row_age_s,
                tombstone_age_s=limits_.ledger_tombstone_age_s,
                open_rows=limits_.ledger_open_rows,
                attempts=limits_.attempts,
            ),
            busy_s=limits_.ledger_busy_ms / 1000,
            handler_s=limits_.handler_ms / 1000,
            group=limits_.ledger_group,
            queue=limits_.ledger_queue,
            foreign_keys=foreign_keys,
            clock=clock,
            reach=_reach,
        )
        self._on_stalled = on_stalled
        self._writer: Writer | None = None
        self._ending: Writer | None = None
        self._watch: StallWatch | None = None

    def __repr__(self) -> str:
        return f"<SqliteLedger {'closed' if self._writer is None else 'open'}>"

    # --- opening and closing ---

    def open_nowait(self) -> Ticket[None]:
        """Take the owner lock and begin to open; the ticket says when the ledger may be used."""
        if self._writer is not None:
            raise LedgerClosed("the ledger is open already")
        self._pid = os.getpid()
        unsafe.check_version(strict=self._strict)
        self._lock.acquire()
        writer = Writer(self._settings, on_end=self._lock.release)
        self._writer = writer
        writer.start()
        self._watch = StallWatch(
            lambda: writer.handler_since, limit_s=self.limits.handler_ms / 1000, on_stalled=self._on_stalled
        )
        self._watch.start()
        self._door.open()
        return writer.opened

    def close_nowait(self) -> Ticket[None]:
        """Refuse new work, and close when what is queued is done; the ticket says when the next owner may
        come.
        """
        writer = self._outside_handlers()
        self._writer, self._ending = None, writer
        self._door.close()
        if self._watch is not None:
            self._watch.stop()
        writer.close()
        return writer.closed

    async def __aenter__(self) -> Self:
        opened = self.open_nowait()
        try:
            await opened
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.close_nowait()
            raise
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # A native Task.cancel() can cut this wait all the same; the writer then ends by itself.
        with anyio.CancelScope(shield=True):
            await self.close_nowait()

    def blocking(self) -> BlockingLedger:
        """Give the same ledger for plain threads; `with` opens and closes it unless it is open already."""
        return BlockingLedger(self)

    @property
    def is_open(self) -> bool:
        """Say whether work is accepted."""
        return self._writer is not None

    # --- facts ---

    @property
    def fence(self) -> int:
        """The number of this incarnation."""
        return self._alive().fence

    @property
    def secret(self) -> bytes:
        """Key for the hash under which a caller's key travels on the wire (decision L8)."""
        return self._alive().secret

    @property
    def commits(self) -> int:
        """How many durable commits were paid for since opening."""
        return self._alive().commits

    @property
    def stalled(self) -> LedgerStalled | None:
        """What holds the ledger now, None while nothing does."""
        return self._watch.stalled() if self._watch is not None else None

    # --- work ---

    def apply(
        self,
        intent: Intent,
        handler: Callable[[Transaction], object],
        *,
        after: Ticket[ClaimAnswer | Settled] | None = None,
    ) -> Ticket[ClaimAnswer | Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.apply`."""
        return self._outside_handlers().put_handler(intent, handler, after)

    def abandon(self, claimed: Claimed) -> None:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.abandon`."""
        if self._writer is not None:
            self._writer.give_up(claimed.serial)

    def skip(self, scope: Scope, place: EventPlace) -> None:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.skip`."""
        self._outside_handlers().put_skip(lambda book, moment: steps.skip(book, moment, scope, place))

    def recover(self) -> Ticket[Recovered]:
        """Distrust what a restored backup cannot know: cursors are dropped, intents become indeterminate."""
        return self._put_step(steps.recover)

    def resolve_named(self, request: ResolveRequest) -> Entry:
        """Settle what a person calls by a name, and give the entry as it is then; blocks the thread.

        Raises LedgerError where no entry that waits for a person is meant, or several are; StillPending
        where the ledger is held up, and may write it yet.
        """
        entry = find_entry(self._waiting_entries(), request.name)
        ticket = self.resolve(entry, request.outcome, note=request.note)
        return describe_entry(entry.key, ticket.wait_blocking(_OPERATOR_S).row)

    def _waiting_entries(self) -> Iterator[Entry]:
        after = b""
        while page := self.open_page(after).wait_blocking(_OPERATOR_S):
            after = page[-1][0]
            yield from (entry for _, entry in page if entry is not None)

    def prove(self, scope: Scope, *, server: str, stream: str) -> Ticket[str | None]:
        """Check that the mark of a stream and the row at the mark were written by one commit; None if so."""
        key = encode_stream(scope, server, stream)

        def check(book: Book, _moment: Moment) -> str | None:
            mark = book.mark(key)
            return steps.check_witness(mark) if mark is not None else None

        return self._put_step(check)

    # --- guards ---

    def _put_step(self, step: Callable[[Book, Moment], T]) -> Ticket[T]:
        return self._outside_handlers().put_step(step)

    def _alive(self) -> Writer:
        if os.getpid() != self._pid:
            raise ForkedHandle("this ledger was opened before a fork: open one of its own in each process")
        if self._writer is None and self._ending is not None and self._ending.is_own_thread():
            return self._ending  # what follows from the last tickets is still written
        if self._writer is None:
            raise LedgerClosed(
                "the ledger is not open: use `async with SqliteLedger(...)`, or its .blocking()"
            )
        return self._writer

    def _outside_handlers(self) -> Writer:
        writer = self._alive()
        if writer.is_in_handler and writer.is_own_thread():
            raise ReentrantCall("a transactional handler may use its transaction only, not the ledger itself")
        return writer
