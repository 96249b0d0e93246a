"""The same ledger for plain threads: every call waits until its write is durable.

Any number of threads may share one; it adds no meaning of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self

from counterfoil.model.ledger_keys import EventPlace, LedgerKey
from counterfoil.model.ledger_rows import StreamMark
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Entry, Settled
from counterfoil.native import Scope
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.tickets import Ticket

if TYPE_CHECKING:
    from counterfoil.stores.ledger_interface import Ledger, Transaction

    class OpenableLedger(Ledger, Protocol):
        """A ledger that can be opened and closed from any thread."""

        @property
        def is_open(self) -> bool: ...

        def open_nowait(self) -> Ticket[None]: ...

        def close_nowait(self) -> Ticket[None]: ...

        def open_page(self, after: bytes) -> Ticket[list[tuple[bytes, Entry | None]]]: ...


class BlockingLedger:
    """A view of a ledger; `with` opens it and closes it again, unless it was open before."""

    def __init__(self, ledger: OpenableLedger) -> None:
        self._ledger = ledger
        self._opened = False

    def __enter__(self) -> Self:
        if not self._ledger.is_open:
            opened = self._ledger.open_nowait()
            try:
                opened.wait_blocking()
            except BaseException:
                self._ledger.close_nowait().wait_blocking()
                raise
            self._opened = True
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._opened:
            self._opened = False
            self._ledger.close_nowait().wait_blocking()

    def claim(self, intent: Intent) -> ClaimAnswer:
        """Read the row, and write the intent if the key is free."""
        return self._ledger.claim(intent).wait_blocking()

    def claim_again(self, claimed: Claimed) -> Claimed:
        """Count another try of a run that failed and is safe to repeat."""
        return self._ledger.claim_again(claimed).wait_blocking()

    def settle(self, claimed: Claimed, settlement: Settlement) -> Settled:
        """Write the outcome, and the mark with it."""
        return self._ledger.settle(claimed, settlement).wait_blocking()

    def apply(self, intent: Intent, handler: Callable[[Transaction], object]) -> ClaimAnswer | Settled:
        """Run a transactional handler and write its outcome in the same commit."""
        return self._ledger.apply(intent, handler).wait_blocking()

    def release(self, claimed: Claimed) -> None:
        """Take back an intent whose handler was not called."""
        self._ledger.release(claimed).wait_blocking()

    def record(self, intent: Intent, settlement: Settlement) -> ClaimAnswer | Settled:
        """Write an outcome for a key that nobody runs now."""
        return self._ledger.record(intent, settlement).wait_blocking()

    def abandon(self, claimed: Claimed) -> None:
        """Note that nobody carries this run on, although its outcome could not be written."""
        self._ledger.abandon(claimed)

    def await_input(self, claimed: Claimed, question: bytes) -> None:
        """Keep the question that a call was answered with."""
        self._ledger.await_input(claimed, question).wait_blocking()

    def begin_cancelling(self, claimed: Claimed) -> None:
        """Note that the call was cancelled."""
        self._ledger.begin_cancelling(claimed).wait_blocking()

    def mark_delivered(self, claimed: Claimed) -> None:
        """Note that the answer was handed over."""
        self._ledger.mark_delivered(claimed).wait_blocking()

    def skip(self, scope: Scope, place: EventPlace) -> None:
        """Let the mark pass an event that nothing handles; written with the next commit."""
        self._ledger.skip(scope, place)

    def begin_stream(
        self, scope: Scope, place: EventPlace, *, ended: str = "", record: bytes = b""
    ) -> StreamMark:
        """Put the base of a stream, or keep `record` beside its mark."""
        return self._ledger.begin_stream(scope, place, ended=ended, record=record).wait_blocking()

    def mark(self, scope: Scope, *, server: str, stream: str) -> StreamMark | None:
        """Give how far a stream is processed."""
        return self._ledger.mark(scope, server=server, stream=stream).wait_blocking()

    def entry(self, scope: Scope, key: LedgerKey) -> Entry | None:
        """Give the row of one key."""
        return self._ledger.entry(scope, key).wait_blocking()

    def indeterminate(self) -> Iterator[Entry]:
        """Go through every entry that waits for a person."""
        after = b""
        while page := self._ledger.open_page(after).wait_blocking():
            for key, entry in page:
                if entry is not None:
                    yield entry
                after = key

    def resolve(
        self, entry: Entry, outcome: Literal["completed", "failed", "not_applied"], *, note: str
    ) -> Settled:
        """Write what a person found out."""
        return self._ledger.resolve(entry, outcome, note=note).wait_blocking()
