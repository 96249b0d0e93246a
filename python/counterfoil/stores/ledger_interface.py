"""What every idempotency ledger offers, and the promise behind it.

A call that writes gives a :class:`~counterfoil.stores.tickets.Ticket` at once; when its outcome is
`completed` the write is as durable as `durability` says.  Scope is an argument of every call that names a
key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Literal, Protocol

from counterfoil.model.ledger_keys import EventPlace, LedgerKey
from counterfoil.model.ledger_rows import LedgerRow, StreamMark
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Entry, Settled
from counterfoil.model.tokens import HandlerKind
from counterfoil.native import Scope
from counterfoil.protocol.ledger_steps import Intent, KeptCall, Settlement
from counterfoil.stores.tickets import Ticket

Parameters = tuple[Any, ...] | list[Any] | dict[str, Any]


class Rows(Protocol):
    """What a statement gave; valid until the handler returns."""

    @property
    def rowcount(self) -> int: ...

    @property
    def lastrowid(self) -> int | None: ...

    def fetchone(self) -> tuple[Any, ...] | None: ...

    def fetchall(self) -> list[tuple[Any, ...]]: ...


class Transaction(Protocol):
    """The ledger's own transaction, lent to a transactional handler: it can execute and fetch, nothing
    else.
    """

    def execute(self, sql: str, parameters: Parameters = (), /) -> Rows:
        """Run one statement.

        Raises TransactionControlRefused for transaction control, ATTACH, PRAGMA and our tables,
        TransactionLost once the transaction was rolled back from inside or has ended, HandlerTooSlow past
        the time limit, and `sqlite3` errors.
        """
        ...


class LedgerReads(Protocol):
    """What can be asked without writing."""

    def mark(self, scope: Scope, *, server: str, stream: str) -> Ticket[StreamMark | None]:
        """Give how far a stream is processed, skipped events included."""
        ...

    def entry(self, scope: Scope, key: LedgerKey) -> Ticket[Entry | None]:
        """Give the row of one key."""
        ...

    def indeterminate(self) -> AsyncIterator[Entry]:
        """Go through every entry that waits for a person, oldest key first; entries may be resolved
        meanwhile.
        """
        ...


class Ledger(LedgerReads, Protocol):
    """A durable map from key to what became of it, with the mark of every stream beside it."""

    @property
    def durability(self) -> Literal["memory", "disk"]:
        """Say what `completed` means: until this process ends, or through `kill -9` and power loss."""
        ...

    @property
    def kinds(self) -> frozenset[HandlerKind]:
        """Name the handler kinds that are safe on this ledger."""
        ...

    @property
    def fence(self) -> int:
        """Give the number of this incarnation; rows of an earlier one belong to nobody alive."""
        ...

    @property
    def secret(self) -> bytes:
        """Give random bytes that belong to this ledger; keys travel hashed with them (decision L8)."""
        ...

    def claim(self, intent: Intent) -> Ticket[ClaimAnswer]:
        """Read the row, and write the intent if the key is free: one atomic step.  Raises LedgerFull."""
        ...

    def claim_again(self, claimed: Claimed) -> Ticket[Claimed]:
        """Count another try of a run that failed and is safe to repeat."""
        ...

    def settle(self, claimed: Claimed, settlement: Settlement) -> Ticket[Settled]:
        """Write the outcome, and the mark with it.  Raises StaleAttempt where the row has moved on."""
        ...

    def apply(
        self,
        intent: Intent,
        handler: Callable[[Transaction], object],
        *,
        after: Ticket[ClaimAnswer | Settled] | None = None,
    ) -> Ticket[ClaimAnswer | Settled]:
        """Run a transactional handler and write its outcome and the mark in the same commit.

        With `after`, work given before, the handler is run only if that is completed, and may share its
        commit; else the ticket raises OutOfTurn, and nothing was run.
        """
        ...

    def record(self, intent: Intent, settlement: Settlement) -> Ticket[ClaimAnswer | Settled]:
        """Write an outcome for a key that nobody runs now."""
        ...

    def release(self, claimed: Claimed) -> Ticket[None]:
        """Take back an intent whose handler was not called."""
        ...

    def abandon(self, claimed: Claimed) -> None:
        """Note that nobody carries this run on, although its outcome could not be written.

        Nothing is written: from now on its intent is taken for one of an earlier process.  Without it every
        copy of the event would wait for a run that is over.
        """
        ...

    def await_input(self, claimed: Claimed, question: bytes) -> Ticket[None]:
        """Keep the question that a call was answered with."""
        ...

    def begin_cancelling(self, claimed: Claimed) -> Ticket[None]:
        """Note that the call was cancelled; its outcome is settled when its upstream leg is closed."""
        ...

    def mark_delivered(self, claimed: Claimed) -> Ticket[None]:
        """Note that the answer was handed over."""
        ...

    def close_call(self, claimed: Claimed) -> Ticket[None]:
        """Forget an unkeyed call that was handed over, refused or cancelled."""
        ...

    def note_adopted(self, claimed: Claimed) -> Ticket[None]:
        """Count a caller that took an unkeyed call over."""
        ...

    def kept_calls(self, after: bytes) -> Ticket[list[KeptCall]]:
        """Give the next page of unkeyed calls above `after`: those that a former life had not closed."""
        ...

    def take_call(self, call: KeptCall, *, run: bytes = b"") -> Ticket[LedgerRow | None]:
        """Go on with an unkeyed call that a former life left; gives its row as it is then.

        None where somebody else was first, or the call still runs.  One left open is indeterminate then.
        """
        ...

    def skip(self, scope: Scope, place: EventPlace) -> None:
        """Let the mark pass an event that nothing handles; written with the next commit."""
        ...

    def begin_stream(
        self, scope: Scope, place: EventPlace, *, ended: str = "", record: bytes = b""
    ) -> Ticket[StreamMark]:
        """Put the base of a stream, or keep `record` beside its mark; within one epoch the mark never goes
        back.

        `ended` says why nobody will ask for the stream again: its record goes at once, but for one given
        with it, and its mark when a row of now would go (`Limits.ledger_row_age_s`).
        """
        ...

    def resolve(
        self, entry: Entry, outcome: Literal["completed", "failed", "not_applied"], *, note: str
    ) -> Ticket[Settled]:
        """Write what a person found out; `not_applied` frees the key."""
        ...
