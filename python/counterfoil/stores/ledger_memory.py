"""The ledger in memory: what every other ledger must mean, for tests and for readers that keep nothing.

It forgets everything with the process, and it has no transaction to lend, so transactional handlers are
refused.
"""

from __future__ import annotations

import heapq
import os
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable
from itertools import count
from types import TracebackType
from typing import Literal, NoReturn, Self, TypeVar

from counterfoil.errors import CounterfoilError, ForkedHandle, LedgerClosed, UnsafeHandler
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import EventPlace, LedgerKey, encode_key, encode_stream
from counterfoil.model.ledger_rows import LedgerRow, StreamMark
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Entry, Settled
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Book, Horizon, Intent, Moment, Settlement
from counterfoil.stores.ledger_blocking import BlockingLedger
from counterfoil.stores.ledger_entries import describe_entry, open_entries
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.tickets import Ticket, settled_ticket

T = TypeVar("T")


class MemoryBook:
    """Two dictionaries."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[LedgerRow, float | None]] = {}
        self.marks: dict[bytes, StreamMark] = {}
        self._open: set[bytes] = set()
        self._ends: list[tuple[float, bytes]] = []

    def row(self, key: bytes) -> LedgerRow | None:
        """Give the row of a key."""
        held = self.rows.get(key)
        return held[0] if held is not None else None

    def put_row(self, key: bytes, row: LedgerRow, expires_at: float | None) -> None:
        """Write a row; `expires_at` None means never."""
        self.rows[key] = (row, expires_at)
        if expires_at is None:
            self._open.add(key)
        else:
            self._open.discard(key)
            heapq.heappush(self._ends, (expires_at, key))

    def drop_row(self, key: bytes) -> None:
        """Remove a row."""
        self.rows.pop(key, None)
        self._open.discard(key)

    def mark(self, stream: bytes) -> StreamMark | None:
        """Give the mark of a stream."""
        return self.marks.get(stream)

    def put_mark(self, stream: bytes, mark: StreamMark) -> None:
        """Write the mark of a stream."""
        self.marks[stream] = mark

    def drop_mark(self, stream: bytes) -> None:
        """Remove the mark of a stream."""
        self.marks.pop(stream, None)

    def open_rows(self) -> int:
        """Count the rows that never expire."""
        return len(self._open)

    def open_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Give the keys of rows that never expire, above `after`, in their order."""
        return heapq.nsmallest(limit, (key for key in self._open if key > after))

    def stream_keys(self, after: bytes, limit: int) -> list[bytes]:
        """Give the keys of streams above `after`, in their order."""
        return heapq.nsmallest(limit, (key for key in self.marks if key > after))

    def expired(self, now: float) -> list[bytes]:
        """Give the keys whose time has come."""
        keys: dict[bytes, None] = {}
        while self._ends and self._ends[0][0] <= now:
            at, key = heapq.heappop(self._ends)
            # An entry whose row was written again since speaks for nothing any more; one may be there twice.
            if key in self.rows and self.rows[key][1] == at:
                keys[key] = None
        return list(keys)


class MemoryLedger:
    """A ledger that ends with its process; with `async with`, or `with ledger.blocking()`, around its use."""

    durability: Literal["memory"] = "memory"
    kinds = frozenset({HandlerKind.IDEMPOTENT, HandlerKind.AT_MOST_ONCE})

    def __init__(self, *, limits: Limits | None = None, clock: Callable[[], float] = time.time) -> None:
        self.limits = limits if limits is not None else Limits()
        self._horizon = Horizon(
            row_age_s=self.limits.ledger_row_age_s,
            tombstone_age_s=self.limits.ledger_tombstone_age_s,
            open_rows=self.limits.ledger_open_rows,
            attempts=self.limits.attempts,
        )
        self._clock = clock
        self._book = MemoryBook()
        self._lock = threading.Lock()
        self._serials = count(1)
        self._now = 0.0
        self._fence = 0
        self._open = False
        self._pid = os.getpid()
        self._secret = secrets.token_bytes(32)

    def __repr__(self) -> str:
        return f"<MemoryLedger {'open' if self._open else 'closed'}>"

    # --- opening and closing ---

    @property
    def is_open(self) -> bool:
        """Say whether work is accepted."""
        return self._open

    def open_nowait(self) -> Ticket[None]:
        """Begin an incarnation; rows of an earlier one belong to nobody alive."""
        if self._open:
            raise LedgerClosed("the ledger is open already")
        self._open = True
        self._fence += 1
        return settled_ticket()

    def close_nowait(self) -> Ticket[None]:
        """End the incarnation; what was recorded stays."""
        self._check_alive()
        self._open = False
        return settled_ticket()

    async def __aenter__(self) -> Self:
        await self.open_nowait()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close_nowait()

    def blocking(self) -> BlockingLedger:
        """Give the same ledger for plain threads; `with` opens and closes it unless it is open already."""
        return BlockingLedger(self)

    @property
    def fence(self) -> int:
        """The number of this incarnation."""
        return self._fence

    @property
    def secret(self) -> bytes:
        """Key for the hash under which a caller's key travels on the wire (decision L8)."""
        return self._secret

    # --- work ---

    def claim(self, intent: Intent) -> Ticket[ClaimAnswer]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.claim`."""
        return self._do(lambda book, moment: steps.claim(book, moment, intent))

    def claim_again(self, claimed: Claimed) -> Ticket[Claimed]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.claim_again`."""
        return self._do(lambda book, moment: steps.claim_again(book, moment, claimed))

    def settle(self, claimed: Claimed, settlement: Settlement) -> Ticket[Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.settle`."""
        return self._do(lambda book, moment: steps.settle(book, moment, claimed, settlement))

    def apply(self, intent: Intent, handler: Callable[[Transaction], object]) -> NoReturn:
        """Refuse: there is no transaction that a handler's work could share."""
        raise UnsafeHandler("a transactional handler needs a ledger with transactions: use SqliteLedger")

    def record(self, intent: Intent, settlement: Settlement) -> Ticket[ClaimAnswer | Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.record`."""
        return self._do(lambda book, moment: steps.record(book, moment, intent, settlement))

    def release(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.release`."""
        return self._do(lambda book, moment: steps.release(book, moment, claimed))

    def await_input(self, claimed: Claimed, question: bytes) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.await_input`."""
        return self._do(lambda book, moment: steps.await_input(book, moment, claimed, question))

    def begin_cancelling(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.begin_cancelling`."""
        return self._do(lambda book, moment: steps.begin_cancelling(book, moment, claimed))

    def mark_delivered(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.mark_delivered`."""
        return self._do(lambda book, moment: steps.mark_delivered(book, moment, claimed))

    def skip(self, scope: Scope, place: EventPlace) -> None:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.skip`."""
        self._do(lambda book, moment: steps.skip(book, moment, scope, place))

    def begin_stream(
        self, scope: Scope, place: EventPlace, *, ended: str = "", record: bytes = b""
    ) -> Ticket[StreamMark]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.begin_stream`."""
        return self._do(
            lambda book, moment: steps.begin_stream(book, moment, scope, place, ended=ended, record=record)
        )

    def resolve(
        self, entry: Entry, outcome: Literal["completed", "failed", "not_applied"], *, note: str
    ) -> Ticket[Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.resolve`."""
        token = OutcomeToken(outcome)
        return self._do(lambda book, moment: steps.resolve(book, moment, entry.key, token, note))

    # --- reading ---

    def mark(self, scope: Scope, *, server: str, stream: str) -> Ticket[StreamMark | None]:
        """See :meth:`counterfoil.stores.ledger_interface.LedgerReads.mark`."""
        key = encode_stream(scope, server, stream)
        return self._do(lambda book, _moment: book.mark(key))

    def entry(self, scope: Scope, key: LedgerKey) -> Ticket[Entry | None]:
        """See :meth:`counterfoil.stores.ledger_interface.LedgerReads.entry`."""
        stored = encode_key(scope, key)

        def read(book: Book, _moment: Moment) -> Entry | None:
            row = book.row(stored)
            return describe_entry(stored, row) if row is not None else None

        return self._do(read)

    async def indeterminate(self) -> AsyncIterator[Entry]:
        """See :meth:`counterfoil.stores.ledger_interface.LedgerReads.indeterminate`."""
        after = b""
        while page := await self.open_page(after):
            for key, entry in page:
                if entry is not None:
                    yield entry
                after = key

    def open_page(self, after: bytes) -> Ticket[list[tuple[bytes, Entry | None]]]:
        """Give the next keys that never expire, with an entry for each that waits for a person."""
        return self._do(lambda book, moment: open_entries(book, moment, after))

    def _do(self, step: Callable[[Book, Moment], T]) -> Ticket[T]:
        self._check_alive()
        with self._lock:
            self._now = max(self._now, self._clock())
            serial = next(self._serials)
            moment = Moment(
                now=self._now, fence=self._fence, commit=serial, serial=serial, horizon=self._horizon
            )
            for key in self._book.expired(self._now):
                row = self._book.row(key)
                if row is not None:
                    steps.expire(self._book, moment, key, row)
            try:
                value = step(self._book, moment)
            except (CounterfoilError, ValueError) as error:
                return settled_ticket(error=error)
        return settled_ticket(value)

    def _check_alive(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedHandle("this ledger was opened before a fork: open one of its own in each process")
        if not self._open:
            raise LedgerClosed("the ledger is not open: use `async with`, or `with ledger.blocking()`")
