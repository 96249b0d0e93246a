"""What a process has asked of its ledger and has no answer to: sent or not yet, in the order of asking.

It does no I/O.  It decides what of it may be sent again, and what must be told as failed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import msgspec

from counterfoil.adapters.host_ledger.wire import (
    ONCE,
    Abandon,
    AwaitInput,
    Claim,
    Numbered,
    Release,
    Request,
    Settle,
)
from counterfoil.errors import LedgerBusy, LedgerFailed
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.protocol.ledger_steps import Intent
from counterfoil.stores.tickets import Ticket, wake


class Waiting(msgspec.Struct, eq=False, weakref=True):
    """One request without an answer; `since` is when it was asked, in the loop's seconds."""

    number: int
    request: Request
    ticket: Ticket[Any]
    since: float
    is_sent: bool = False
    is_expired: bool = False
    """Its caller was told that nobody answered; it is still carried out if that does no harm."""
    is_renewal: bool = False
    """Asked by us, for a run that goes on under another owner."""


class WaitingLine:
    """The requests of one process; `limit` bounds them."""

    def __init__(self, limit: int) -> None:
        self.counts: Counter[str] = Counter()
        self._limit = limit
        self._number = 0
        self._all: dict[int, Waiting] = {}
        self._unsent: deque[Waiting] = deque()
        #: What this process carries on under the present owner, by stored key.
        self._runs: dict[bytes, Intent] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, request: Request, now: float) -> Ticket[Any]:
        """Take a request in; raises LedgerBusy at the bound."""
        if len(self._all) >= self._limit:
            raise LedgerBusy(
                f"{self._limit} writes wait for the ledger's owner (Limits.ledger_queue): try again later"
            )
        if isinstance(request, Abandon):
            self._runs.pop(request.claimed.key, None)
        waiting = self._new(request, now)
        self._unsent.append(waiting)
        return waiting.ticket

    def _new(self, request: Request, now: float) -> Waiting:
        self._number += 1
        waiting = Waiting(self._number, request, Ticket(), now)
        self._all[waiting.number] = waiting
        return waiting

    # --- sending

    def next_unsent(self) -> Numbered | None:
        """Give the next request to be sent, and note that it is; None if there is none."""
        while self._unsent:
            waiting = self._unsent.popleft()
            if not (waiting.ticket.begin() or waiting.is_sent or waiting.is_expired):
                del self._all[waiting.number]  # withdrawn
                continue
            waiting.is_sent = True
            return Numbered(waiting.number, waiting.request)
        return None

    def fail(self, number: int, error: Exception) -> None:
        """Settle a request that cannot be sent, or was answered with an error."""
        waiting = self._all.pop(number, None)
        if waiting is not None:
            wake(waiting.ticket.settle(error=error))

    def request_of(self, number: int) -> Request | None:
        """Give the request that an answer is to; None for one that nobody asked."""
        waiting = self._all.get(number)
        return waiting.request if waiting is not None else None

    def finish(self, number: int, value: object, now: float) -> None:
        """Settle a request with what it was answered."""
        waiting = self._all.pop(number, None)
        if waiting is None:
            return
        self._note_run(waiting, value, now)
        wake(waiting.ticket.settle(value))

    def _note_run(self, waiting: Waiting, value: object, now: float) -> None:
        request = waiting.request
        if isinstance(value, Claimed) and isinstance(request, Claim):
            if waiting.is_expired:
                # Its caller was told that nothing was written, and runs nothing.
                self._unsent.append(self._new(Release(value), now))
            else:
                self._runs[value.key] = request.intent
        elif isinstance(request, Settle | Release | AwaitInput):
            self._runs.pop(request.claimed.key, None)

    # --- another owner

    def take_leave(self, last: int) -> None:
        """The owner began nothing behind that number: it was as good as not sent."""
        for waiting in self._all.values():
            if waiting.number > last:
                waiting.is_sent = False

    def begin_anew(self, now: float) -> None:
        """Put in line again what may be sent again, behind the runs that go on; fail the rest."""
        doubtful = [each for each in self._all.values() if each.is_sent and isinstance(each.request, ONCE)]
        for waiting in doubtful:
            self.counts["in-doubt"] += 1
            self.fail(waiting.number, _LOST)
        for waiting in [each for each in self._all.values() if each.is_renewal]:
            del self._all[waiting.number]
        rest = list(self._all.values())
        self.counts["sent-again"] += sum(waiting.is_sent for waiting in rest)
        renewals = [self._new(Claim(intent), now) for intent in self._runs.values()]
        for waiting in renewals:
            waiting.is_renewal = True
        self._unsent = deque([*renewals, *rest])

    def expire(self, before: float) -> None:
        """Tell the callers of what was asked earlier than `before` that nobody answers."""
        late = [each for each in self._all.values() if each.since < before and not each.is_expired]
        for waiting in late:
            self.counts["expired"] += 1
            waiting.is_expired = True
            if waiting.is_sent:
                wake(waiting.ticket.settle(error=_LOST))
            elif not isinstance(waiting.request, Settle | Release | AwaitInput):
                self.fail(waiting.number, _UNSENT)
            else:
                # Late is better than never: until then the row stays as it is.
                wake(waiting.ticket.settle(error=_UNSENT))
        if late:
            self._unsent = deque(each for each in self._unsent if each.number in self._all)

    def end(self, error: Exception) -> None:
        """Fail everything: no owner will be asked any more."""
        self._unsent.clear()
        for number in list(self._all):
            waiting = self._all[number]
            self.fail(number, _LOST if waiting.is_sent else error)

    def drain(self) -> Iterable[Waiting]:
        """Give everything in its order, and keep nothing: this process is the owner now."""
        everything = [each for each in self._unsent if each.number in self._all]
        self._all.clear()
        self._unsent.clear()
        self._runs.clear()
        return everything


_LOST = LedgerFailed(
    "the process that owns the ledger went away before it answered: the write may be in it", ambiguous=True
)
_UNSENT = LedgerBusy("no process answers for the ledger: nothing was written, try again")
