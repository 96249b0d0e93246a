"""A ticket for durable work: it is given at once, waiting on it may be cancelled, and it always tells the
truth.

The work belongs to the store's own thread, never to the task that asked for it, so that no cancellation can
cut it in half; the ledgers make tickets and everybody else waits on them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

import anyio.lowlevel

from counterfoil.errors import LedgerFailed, NotApplied, StillPending
from counterfoil.model.tokens import OutcomeToken
from counterfoil.stores.parking import take_place

T = TypeVar("T")
_log = logging.getLogger("counterfoil.ledger")


class Ticket(Generic[T]):
    """What became of one piece of durable work; may be waited for from any task or thread, any number of
    times.

    `outcome` is `"pending"`, or for good: `completed` (durable), `not_applied` (certainly nothing was
    written), `indeterminate` (the disk may have taken it).
    """

    __slots__ = ("_begun", "_error", "_lock", "_outcome", "_value", "_wakers")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcome: OutcomeToken | None = None
        self._value: T | None = None
        self._error: BaseException | None = None
        self._begun = False
        self._wakers: tuple[Waker, ...] = ()

    def __repr__(self) -> str:
        return f"<Ticket {self.outcome}>"

    @property
    def outcome(self) -> OutcomeToken | Literal["pending"]:
        """What is known now; never blocks."""
        return "pending" if self._outcome is None else self._outcome

    def result(self) -> T:
        """Give the value of completed work, or raise what ended it; raises StillPending before that."""
        if self._outcome is None:
            raise StillPending("the work is not done yet: wait for the ticket")
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    async def wait(self) -> T:
        """Wait until the work is durable and give its value, or raise what ended it.

        Cancelling the wait, with `Task.cancel()` too, stops the waiting and nothing else.
        """
        if self._outcome is not None:
            await anyio.lowlevel.checkpoint()
            return self.result()
        place = take_place()
        try:
            if self._add(place):
                await place.wait()
        finally:
            place.leave()
            if self._outcome is None:
                self._remove(place)
        return self.result()

    def __await__(self) -> Generator[Any, Any, T]:
        """Make `await ticket` the same as `await ticket.wait()`."""
        return self.wait().__await__()

    def wait_blocking(self, timeout_s: float | None = None) -> T:
        """Wait in a plain thread; raises StillPending after `timeout_s`, and the work goes on."""
        event = threading.Event()
        waker = _Call(event.set)
        if self._add(waker):
            try:
                event.wait(timeout_s)
            finally:
                self._remove(waker)
        return self.result()

    def when_settled(self, call: Callable[[], object]) -> None:
        """Call once the outcome is known: now if it is, else from the thread that settles it."""
        if not self._add(_Call(call)):
            call()

    def withdraw(self) -> bool:
        """Take the work back if nobody has begun it: True means that it certainly will not happen."""
        with self._lock:
            if self._begun or self._outcome is not None or not self._let_go():
                return False
            self._outcome = OutcomeToken.NOT_APPLIED
            self._value, self._error = self._withdrawn()
            wakers, self._wakers = self._wakers, ()
        wake(wakers)
        return True

    def _let_go(self) -> bool:
        """Say whether work that nobody has begun can still be taken back."""
        return True

    def _withdrawn(self) -> tuple[T | None, BaseException | None]:
        """Give what `result` says of withdrawn work."""
        return None, NotApplied("the work was withdrawn before it began")

    # --- for the store that does the work ---

    def begin(self) -> bool:
        """Note that the work begins; False when it was withdrawn."""
        with self._lock:
            self._begun = True
            return self._outcome is None

    def settle(
        self,
        value: T | None = None,
        error: BaseException | None = None,
        outcome: OutcomeToken = OutcomeToken.COMPLETED,
    ) -> tuple[Waker, ...]:
        """Record the end, once; gives whom to :func:`wake`."""
        if error is not None:
            ambiguous = isinstance(error, LedgerFailed) and error.ambiguous
            outcome = OutcomeToken.INDETERMINATE if ambiguous else OutcomeToken.NOT_APPLIED
        with self._lock:
            if self._outcome is not None:
                return ()
            self._value, self._error = value, error
            self._outcome = outcome
            wakers, self._wakers = self._wakers, ()
        return wakers

    def _add(self, waker: Waker) -> bool:
        with self._lock:
            if self._outcome is not None:
                return False
            self._wakers = (*self._wakers, waker) if self._wakers else (waker,)
            return True

    def _remove(self, waker: Waker) -> None:
        with self._lock:
            self._wakers = tuple(one for one in self._wakers if one is not waker)


class Waker(Protocol):
    """How to reach one waiter: `wake` is called in the loop by way of `soon`, or in any thread if that is
    None.
    """

    @property
    def soon(self) -> Callable[..., object] | None: ...

    @property
    def wake(self) -> Callable[[], object]: ...


class _Call:
    """A call from the thread that settles."""

    __slots__ = ("wake",)

    soon = None

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake


def wake(wakers: Iterable[Waker]) -> None:
    """Wake waiters of any threads and loops, with one hop per loop."""
    hops: dict[Callable[..., object], list[Callable[[], object]]] = {}
    for waker in wakers:
        if waker.soon is None:
            try:
                waker.wake()
            except Exception:
                # What follows from one ticket must not keep the other waiters asleep.
                _log.exception("a call that follows from a ticket failed")
        else:
            hops.setdefault(waker.soon, []).append(waker.wake)
    for soon, calls in hops.items():
        try:
            soon(_call_all, calls)
        except RuntimeError:
            # The loop is gone, and its waiters with it; trio's RunFinishedError is a RuntimeError as well.
            continue


def _call_all(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        call()


def settled_ticket(value: T | None = None, error: BaseException | None = None) -> Ticket[T]:
    """Make a ticket that is settled already."""
    ticket: Ticket[T] = Ticket()
    ticket.settle(value, error)
    return ticket
