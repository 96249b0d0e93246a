"""What all ledgers share: every call is a step, and only how a step is carried out differs.

It runs nothing by itself; a ledger derives from it and says how a step is queued or done.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Callable
from typing import Literal, TypeVar

from counterfoil.model.ledger_keys import EventPlace, LedgerKey, encode_key, encode_stream
from counterfoil.model.ledger_rows import LedgerRow, StreamMark
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Entry, Settled
from counterfoil.model.tokens import OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Book, Intent, KeptCall, Moment, Settlement
from counterfoil.stores.ledger_entries import describe_entry, open_entries
from counterfoil.stores.tickets import Ticket

T = TypeVar("T")


class Serials:
    """The numbers of steps, as many as are worth remembering: the oldest are forgotten first."""

    def __init__(self, most: int = 65_536) -> None:
        self._most = most
        self._numbers: dict[int, None] = {}

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def add(self, number: int) -> None:
        """Remember a number."""
        self._numbers[number] = None
        if len(self._numbers) > self._most:
            del self._numbers[next(iter(self._numbers))]


class SteppedLedger(abc.ABC):
    """The calls of :class:`counterfoil.stores.ledger_interface.Ledger` that are one step each."""

    @abc.abstractmethod
    def _put_step(self, step: Callable[[Book, Moment], T]) -> Ticket[T]:
        """Have a step done in a transaction of its own or of others; the ticket says when it is durable."""

    # --- work ---

    def claim(self, intent: Intent) -> Ticket[ClaimAnswer]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.claim`."""
        return self._put_step(lambda book, moment: steps.claim(book, moment, intent))

    def claim_again(self, claimed: Claimed) -> Ticket[Claimed]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.claim_again`."""
        return self._put_step(lambda book, moment: steps.claim_again(book, moment, claimed))

    def settle(self, claimed: Claimed, settlement: Settlement) -> Ticket[Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.settle`."""
        return self._put_step(lambda book, moment: steps.settle(book, moment, claimed, settlement))

    def record(self, intent: Intent, settlement: Settlement) -> Ticket[ClaimAnswer | Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.record`."""
        return self._put_step(lambda book, moment: steps.record(book, moment, intent, settlement))

    def release(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.release`."""
        return self._put_step(lambda book, moment: steps.release(book, moment, claimed))

    def await_input(self, claimed: Claimed, question: bytes) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.await_input`."""
        return self._put_step(lambda book, moment: steps.await_input(book, moment, claimed, question))

    def begin_cancelling(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.begin_cancelling`."""
        return self._put_step(lambda book, moment: steps.begin_cancelling(book, moment, claimed))

    def mark_delivered(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.mark_delivered`."""
        return self._put_step(lambda book, moment: steps.mark_delivered(book, moment, claimed))

    def close_call(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.close_call`."""
        return self._put_step(lambda book, moment: steps.close_call(book, moment, claimed))

    def note_adopted(self, claimed: Claimed) -> Ticket[None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.note_adopted`."""
        return self._put_step(lambda book, moment: steps.note_adopted(book, moment, claimed))

    def begin_stream(
        self, scope: Scope, place: EventPlace, *, ended: str = "", record: bytes = b""
    ) -> Ticket[StreamMark]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.begin_stream`."""
        return self._put_step(
            lambda book, moment: steps.begin_stream(book, moment, scope, place, ended=ended, record=record)
        )

    def resolve(
        self, entry: Entry, outcome: Literal["completed", "failed", "not_applied"], *, note: str
    ) -> Ticket[Settled]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.resolve`."""
        token = OutcomeToken(outcome)
        return self._put_step(lambda book, moment: steps.resolve(book, moment, entry.key, token, note))

    @abc.abstractmethod
    def abandon(self, claimed: Claimed) -> None:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.abandon`."""

    # --- reading ---

    def kept_calls(self, after: bytes) -> Ticket[list[KeptCall]]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.kept_calls`."""
        return self._put_step(lambda book, _moment: steps.kept_calls(book, after))

    def take_call(self, call: KeptCall, *, run: bytes = b"") -> Ticket[LedgerRow | None]:
        """See :meth:`counterfoil.stores.ledger_interface.Ledger.take_call`."""
        return self._put_step(lambda book, moment: steps.take_call(book, moment, call, run))

    def mark(self, scope: Scope, *, server: str, stream: str) -> Ticket[StreamMark | None]:
        """See :meth:`counterfoil.stores.ledger_interface.LedgerReads.mark`."""
        key = encode_stream(scope, server, stream)
        return self._put_step(lambda book, _moment: book.mark(key))

    def entry(self, scope: Scope, key: LedgerKey) -> Ticket[Entry | None]:
        """See :meth:`counterfoil.stores.ledger_interface.LedgerReads.entry`."""
        stored = encode_key(scope, key)

        def read(book: Book, _moment: Moment) -> Entry | None:
            row = book.row(stored)
            return describe_entry(stored, row) if row is not None else None

        return self._put_step(read)

    async def indeterminate(self) -> AsyncIterator[Entry]:
        """See :meth:`counterfoil.stores.ledger_interface.LedgerReads.indeterminate`."""
        after = b""
        while page := await self.open_page(after):
            for key, entry in page:
                if entry is not None:
                    yield entry
                after = key

    def open_page(self, after: bytes) -> Ticket[list[tuple[bytes, Entry | None]]]:
        """Give the keys that never expire above `after`, with an entry for each that waits for a person."""
        return self._put_step(lambda book, moment: open_entries(book, moment, after))
