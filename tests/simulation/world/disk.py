"""A ledger whose disk is simulated: the steps are the real ones, what the disk does with them is drawn.

A commit is written, then synced, then acknowledged, and a fault may come between any two of these.  What is
durable, the effects of transactional handlers included, outlives the ledger that wrote it.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Literal, TypeVar

from counterfoil.errors import CounterfoilError, LedgerBusy, LedgerClosed, LedgerFailed, OutOfTurn
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Known, Settled, is_completed
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol import ledger_steps as steps
from counterfoil.protocol.ledger_steps import Begun, Book, Horizon, Intent, Moment, Settlement
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_memory import MemoryBook
from counterfoil.stores.ledger_stepped import Serials, SteppedLedger
from counterfoil.stores.tickets import Ticket, wake

T = TypeVar("T")
LIMITS = Limits(attempts=3, attempt_backoff_ms=10)
HORIZON = Horizon(row_age_s=1e6, tombstone_age_s=1e7, open_rows=1_000, attempts=LIMITS.attempts)
_COMPLETED = Settlement(outcome=OutcomeToken.COMPLETED)


class State:
    """One state of the file: the ledger's records, and the rows that handlers wrote beside them."""

    def __init__(self) -> None:
        self.book = MemoryBook()
        self.effects: list[int] = []

    def copy(self) -> State:
        again = State()
        again.book.rows = dict(self.book.rows)
        again.book.marks = dict(self.book.marks)
        again.book._open = set(self.book._open)
        again.effects = list(self.effects)
        return again


class Disk:
    """What outlives a process: `durable` is on the platters, `cached` may be, and is what a process reads."""

    def __init__(self) -> None:
        self.durable = State()
        self.cached = self.durable
        self.written: State | None = None
        self.fence = 0

    def sync(self) -> None:
        self.durable = self.cached

    def survive(self, rng: random.Random, *, power: bool) -> None:
        """The process has ended: a commit that was being written is there, or not; without power all that
        was not synced may be gone as well.
        """
        if self.written is not None and rng.random() < 0.5:
            self.cached = self.written
        if power and rng.random() < 0.8:
            self.cached = self.durable
        self.written = None
        self.durable = self.cached


class SimulatedTransaction:
    """What a transactional handler is lent."""

    def __init__(self, state: State) -> None:
        self._state = state

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        self._state.effects.append(parameters[0])


class Job:
    """One commit on its way."""

    def __init__(self, step: Callable[[State, Moment], Any], serial: int) -> None:
        self.step = step
        self.serial = serial
        self.ticket: Ticket[Any] = Ticket()


class SimulatedLedger(SteppedLedger):
    """One incarnation over a disk; `happens` draws a fault by its name, `check` looks at every new state."""

    durability: Literal["disk"] = "disk"
    kinds = frozenset(HandlerKind)
    secret = b"simulated"
    #: Whether a commit is acknowledged only when it is on the platters.
    syncs_first = True

    def __init__(
        self,
        disk: Disk,
        rng: random.Random,
        loop: asyncio.AbstractEventLoop,
        *,
        happens: Callable[[str, float], bool],
        check: Callable[[State, State], None],
    ) -> None:
        disk.fence += 1
        self.fence = disk.fence
        self.is_dead = False
        self.commits = 0
        self._disk = disk
        self._rng = rng
        self._loop = loop
        self._happens = happens
        self._check = check
        self._serials = count(1)
        self._jobs: deque[Job] = deque()
        self._is_busy = False
        self._untold = Serials()
        self._given_up = Serials()

    # --- what the dispatcher calls

    def _put_step(self, step: Callable[[Book, Moment], T]) -> Ticket[T]:
        return self._put(lambda state, moment: step(state.book, moment))

    def apply(
        self,
        intent: Intent,
        handler: Callable[[Transaction], object],
        *,
        after: Ticket[ClaimAnswer | Settled] | None = None,
    ) -> Ticket[ClaimAnswer | Settled]:
        def step(state: State, moment: Moment) -> ClaimAnswer | Settled:
            begun = steps.begin(state.book, moment, intent)
            if not isinstance(begun, Begun):
                row = begun.row if isinstance(begun, Known) else None
                is_own = row is not None and (row.serial, row.fence) == (moment.serial, moment.fence)
                return Settled(key=begun.key, row=row) if is_own and row is not None else begun
            if after is not None and not self._is_completed(after):
                raise OutOfTurn("the work before it is not completed")
            handler(SimulatedTransaction(state))
            return steps.settle_begun(state.book, moment, begun, _COMPLETED)

        return self._put(step)

    @staticmethod
    def _is_completed(work: Ticket[ClaimAnswer | Settled]) -> bool:
        return work.outcome is OutcomeToken.COMPLETED and is_completed(work.result())

    def skip(self, scope: Scope, place: EventPlace) -> None:
        self._put_step(lambda book, moment: steps.skip(book, moment, scope, place))

    def abandon(self, claimed: Claimed) -> None:
        self._given_up.add(claimed.serial)

    def die(self) -> None:
        """The process is killed: nothing of it reaches the disk any more."""
        self.is_dead = True

    # --- the disk

    def _put(self, step: Callable[[State, Moment], T]) -> Ticket[T]:
        if self.is_dead:
            raise LedgerClosed("the process has ended")
        job = Job(step, next(self._serials))
        self._jobs.append(job)
        if not self._is_busy:
            self._begin_next()
        return job.ticket

    def _begin_next(self) -> None:
        self._is_busy = bool(self._jobs)
        if self._jobs:
            self._later(self._write, self._jobs.popleft())

    def _later(self, call: Callable[..., None], *arguments: Any) -> None:
        delay = self._rng.choice((0.0005, 0.002, 0.01))
        if self._happens("slow_disk", 0.3):
            delay = 0.5
        self._loop.call_later(delay, self._unless_dead, call, *arguments)

    def _unless_dead(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self.is_dead:
            call(*arguments)

    def _write(self, job: Job) -> None:
        if not job.ticket.begin():
            return self._begin_next()
        if self._happens("busy", 0.3):
            return self._fail(job, LedgerBusy("somebody writes"))
        if self._happens("disk_full", 0.3):
            return self._fail(job, LedgerFailed("the disk is full"))
        made = self._make(job)
        if made is None:
            return self._begin_next()
        state, value = made
        self._disk.written = state
        if not self.syncs_first:
            self._accept(state)
            wake(job.ticket.settle(value))
        return self._later(self._sync, job, state, value)

    def _make(self, job: Job) -> tuple[State, Any] | None:
        """Do a step on a copy of what can be read; an error of its own leaves nothing behind."""
        state = self._disk.cached.copy()
        self.commits += 1
        moment = Moment(
            now=0.0,
            fence=self.fence,
            commit=self.fence * 10_000 + self.commits,
            serial=job.serial,
            horizon=HORIZON,
            untold=self._untold,
            given_up=self._given_up,
        )
        try:
            return state, job.step(state, moment)
        except (CounterfoilError, ValueError, RuntimeError) as error:
            wake(job.ticket.settle(error=error))
            return None

    def _sync(self, job: Job, state: State, value: Any) -> None:
        if self._happens("ack_lost", 0.3):
            return self._doubt(job, state, reached_disk=True)
        if self._happens("fsync_error", 0.3):
            return self._doubt(job, state, reached_disk=self._rng.random() < 0.5)
        self._accept(state)
        self._disk.sync()
        wake(job.ticket.settle(value))
        return self._begin_next()

    def _doubt(self, job: Job, state: State, *, reached_disk: bool) -> None:
        """The commit failed, and the disk may have taken it: what is there is read afresh, and the step is
        done again, once (decision L30).
        """
        if reached_disk:
            self._accept(state)
        self._disk.written = None
        self._disk.sync()
        made = self._make(job) if self._rng.random() < 0.5 else None
        if made is not None:
            self._accept(made[0])
            self._disk.sync()
            wake(job.ticket.settle(made[1]))
            return self._begin_next()
        return self._fail(job, LedgerFailed("the commit failed", ambiguous=True))

    def _accept(self, state: State) -> None:
        self._check(self._disk.cached, state)
        self._disk.cached, self._disk.written = state, None

    def _fail(self, job: Job, error: Exception) -> None:
        self._untold.add(job.serial)
        wake(job.ticket.settle(error=error))
        self._begin_next()
