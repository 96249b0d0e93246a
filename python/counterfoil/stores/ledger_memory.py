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
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Literal, NoReturn, Self, TypeVar

from counterfoil.errors import CounterfoilError, ForkedHandle, LedgerClosed, UnsafeHandler
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.ledger_rows import LedgerRow, StreamMark
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Settled
from counterfoil.model.tokens import HandlerKind
from counterfoil.native import Scope
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Book, Horizon, Intent, Moment
from counterfoil.stores.ledger_blocking import BlockingLedger
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_stepped import Serials, SteppedLedger
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

    def keys_between(self, after: bytes, before: bytes, limit: int) -> list[bytes]:
        """Give the keys of rows above `after` and below `before`, in their order."""
        return heapq.nsmallest(limit, (key for key in self.rows if after < key < before))

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


class MemoryLedger(SteppedLedger):
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
        self._given_up = Serials()
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

    def apply(
        self,
        intent: Intent,
        handler: Callable[[Transaction], object],
        *,
        after: Ticket[ClaimAnswer | Settled] | None = None,
    ) -> NoReturn:
        """Refuse: there is no transaction that a handler's work could share."""
        raise UnsafeHandler("a transactional handler needs a ledger with transactions: use SqliteLedger")

    def abandon(self, claimed: Claimed) -> None:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.abandon`."""
        self._given_up.add(claimed.serial)

    def skip(self, scope: Scope, place: EventPlace) -> None:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.skip`."""
        self._put_step(lambda book, moment: steps.skip(book, moment, scope, place))

    def _put_step(self, step: Callable[[Book, Moment], T]) -> Ticket[T]:
        self._check_alive()
        with self._lock:
            self._now = max(self._now, self._clock())
            serial = next(self._serials)
            moment = Moment(
                now=self._now,
                fence=self._fence,
                commit=serial,
                serial=serial,
                horizon=self._horizon,
                given_up=self._given_up,
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
