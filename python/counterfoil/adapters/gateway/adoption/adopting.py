"""Lets an identical re-issue of an undelivered call take it over, instead of running it again.

What is decided is in `decisions.adoption`; this file keeps the facts, waits, and moves work between callers.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.adoption.adoption_log import AdoptionLog
from counterfoil.adapters.gateway.adoption.copying import Copying
from counterfoil.adapters.gateway.adoption.entries import AdoptableCall, CallWork
from counterfoil.adapters.gateway.adoption.journal import Journal
from counterfoil.adapters.gateway.adoption.questions import Questions
from counterfoil.adapters.gateway.adoption.table import AdoptionTable
from counterfoil.adapters.gateway.calls.calls import Call, OnHead
from counterfoil.adapters.gateway.calls.connection import Connection
from counterfoil.adapters.gateway.calls.settlements import note_failure, refused_unrecorded
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.decisions.adoption import choose_adoption, decide_adoption
from counterfoil.errors import CallLeft, LedgerError
from counterfoil.limits import Limits
from counterfoil.model.adoption import (
    Adopt,
    AdoptionEvidence,
    AdoptionVerdict,
    Delivery,
    Eligible,
    Patience,
    Tell,
    Wait,
    Work,
)
from counterfoil.model.tokens import Executed, Why
from counterfoil.protocol.inband_error import InbandError, read_inband_error, write_inband_error
from counterfoil.stores.interface import ReplayLog

#: Identities whose answer was handed over lately, remembered for the log line only.
_REMEMBERED = 10_000
#: How often, and after what time, a call is recorded again whose like was left by a process that died.
_LOOKS = 40
_LOOK_S = 0.02

#: Turns of the loop in which a disconnect is told once the loop has it.
_TURNS = 8

#: Told of cancelled, forgotten and ended work.
OnRelease = Callable[[AdoptableCall, CallWork | None], None]


class Adopting:
    """The adoptions of one gateway.  Calls are entered by `enter`, and run by `run`."""

    def __init__(
        self, log: ReplayLog, settings: GatewaySettings, limits: Limits, journal: Journal | None = None
    ) -> None:
        self.journal = journal
        self._refuses_unrecorded = settings.on_ledger_failure == "refuse"
        self.table = AdoptionTable(settings.adopt_calls)
        self.questions = Questions()
        self.told = AdoptionLog()
        self.on_release: list[OnRelease] = []
        self._log = log
        self._limits = limits
        self._window_s = settings.adopt_s
        self._settle_s = settings.adopt_settle_ms / 1000
        self._return_s = max(settings.adopt_return_s, 3 * settings.retry_ms / 1000)
        #: By the hash of an identity: what a call asks for is not kept for a line of the log.
        self._delivered: OrderedDict[int, float] = OrderedDict()
        self._tasks: TaskGroup | None = None

    def enter(self, entry: AdoptableCall, call: Call, tasks: TaskGroup) -> None:
        """Take a call in; one that nothing identical stands beside has its work from here on."""
        self._tasks = tasks
        if not self.table.add(entry):
            if self._was_delivered(entry):
                self.told.passed_over(entry)
            entry.work = CallWork(call, entry)

    def stop(self) -> None:
        """Begin no window any more: the gateway ends, and connections that outlive it are not waited for."""
        self._tasks = None

    def connect(self, entry: AdoptableCall, connection: Connection) -> None:
        """Note the connection that a call came on."""
        entry.connection = connection
        entry.away_since = None
        entry.stream.is_undelivered = True

    async def run(self, entry: AdoptableCall, call: Call, on_head: OnHead) -> None:
        """Make the call, or take over an identical one; ends with the work or its adoption."""
        if entry.work is None:
            await self._await_turn(entry, call)
            own = own_work(entry, call)
            if own is not None and not await self._record_late(entry) and self._refuses_unrecorded:
                await call.refuse(refused_unrecorded(entry.request_id))
                self._finish(own)
                return
            if entry.is_withdrawn:
                await entry.stream.settle(call.error(Why.UNSENT, Executed.NO))
        work = own_work(entry, call)
        if work is None:
            return
        await call.run(on_head)
        if self.journal is not None:
            if work.state is Work.RUNNING:
                work.state, work.doubt = outcome_of(call)
            await self.journal.end(work, call.doubt())
        self._finish(work)

    async def record(self, entry: AdoptableCall) -> bool:
        """Write the intent of a call that is about to be sent; False if the ledger does not take it.

        Raises CallLeft.
        """
        work = entry.work
        if self.journal is None or work is None:
            return True
        try:
            await self.journal.begin(work)
        except CallLeft:
            raise
        except LedgerError as failure:
            note_failure(failure)
            return False
        return True

    async def _record_late(self, entry: AdoptableCall) -> bool:
        """As `record`, for a call that has waited for an equal one: what was left is taken over elsewhere."""
        for _ in range(_LOOKS):
            try:
                return await self.record(entry)
            except CallLeft:
                await anyio.sleep(_LOOK_S)
        return False

    def abandon(self, entry: AdoptableCall) -> None:
        """Forget a call that is not sent by us after all."""
        work = entry.work
        self.table.remove(entry)
        if work is not None:
            work.state, work.is_running = Work.NOT_APPLIED, False
            self._release(entry, work)

    def take_in(self, entry: AdoptableCall, work: CallWork, tasks: TaskGroup) -> None:
        """Take in a call of a former life, whose client is gone; its window begins now."""
        self._tasks = tasks
        now = time.monotonic()
        entry.work, entry.away_since, work.is_running = work, now, False
        self.table.add(entry)
        if work.state is Work.INDETERMINATE:
            work.settled_at = now
            self.table.offer(entry)  # whoever makes the call again is told
            tasks.start_soon(self._forget_later, entry, None)
            return
        crowded_out = self.table.note_away(entry)
        if crowded_out is not None:
            self.forget(crowded_out)
        tasks.start_soon(self._forget_later, entry, now)

    # --- what connections tell

    def note_attached(self, entry: AdoptableCall, connection: Connection) -> None:
        entry.connection = connection
        if entry.away_since is not None:
            entry.away_since = None
            self.table.note_back(entry)
            self.table.ring(entry.identity)

    def note_gone(self, entry: AdoptableCall, connection: Connection) -> None:
        """A connection is gone; the call is undelivered from now on, if its answer was not handed over."""
        if entry.connection is connection:
            self.leave(entry)

    def note_handed_over(self, entry: AdoptableCall) -> None:
        entry.delivery = Delivery.DONE
        entry.stream.is_undelivered = False
        work = entry.work
        if (
            work is not None
            and work.call is not None
            and work.state is Work.RUNNING
            and work.stream.settled is not None
        ):
            work.state, work.doubt = outcome_of(work.call)  # the answer was an error of ours
        if work is None or work.state is not Work.INDETERMINATE:
            self._remember_delivered(entry)
            self.table.remove(entry)
        if work is not None and self.journal is not None:
            self.journal.close(work)
        if work is not None and not work.is_running:
            self._release(entry, work)

    def leave(self, entry: AdoptableCall) -> None:
        """Nobody is attached: the window in which the call may be adopted begins."""
        if entry.away_since is not None or entry.connection is None:
            return
        if entry.delivery is Delivery.DONE and not entry.is_listed:
            return  # it has its answer, and nobody asks for it any more
        entry.away_since = now = time.monotonic()
        self.table.ring(entry.identity)
        if entry.delivery is Delivery.DONE or entry.is_forgotten or self._tasks is None:
            return
        if entry.work is None and (entry.session_ended or not entry.has_id):
            self.withdraw(entry)
            return
        crowded_out = self.table.note_away(entry)
        if crowded_out is not None:
            self.forget(crowded_out)
        self._tasks.start_soon(self._forget_later, entry, now)

    def withdraw(self, entry: AdoptableCall) -> None:
        """Never send a call that waits: its client is gone, and cannot come back to it."""
        entry.is_withdrawn = True
        self.table.remove(entry)

    def note_cancelled(self, entry: AdoptableCall) -> None:
        """Its client closed the response where that cancels: nobody takes the call over."""
        work = entry.work
        if work is None:
            self.withdraw(entry)
        elif work.state is Work.RUNNING:
            work.state = Work.CANCELLED
            self.forget(work.holder)

    def forget(self, entry: AdoptableCall) -> None:
        """End a call's window: nobody adopts it any more."""
        if entry.is_forgotten:
            return
        entry.is_forgotten = True
        self.table.remove(entry)
        self._release(entry, entry.work)

    # --- waiting for one's turn

    async def _await_turn(self, entry: AdoptableCall, call: Call) -> None:
        settled_at = time.monotonic() + self._settle_s
        while entry.work is None and not entry.is_withdrawn:
            now = time.monotonic()
            bell = self.table.bell(entry.identity)
            if entry.is_forgotten:
                error = call.error(Why.UNSENT, Executed.NO)
                await self._answer_with(entry, call, error)
                return
            verdict, chosen = self._judge(entry, now, now >= settled_at)
            if not entry.is_attached:
                await bell.wait()  # it goes on when its client comes back, or is forgotten
            elif isinstance(verdict, Wait):
                assert chosen is not None
                until = settled_at if verdict.why is Why.WAITING else self._free_at(chosen)
                with anyio.move_on_after(max(0.0, until - now)) as patience:
                    await bell.wait()
                if patience.cancelled_caught:
                    await self._let_notices_come(bell)
            elif isinstance(verdict, Adopt):
                assert chosen is not None
                await self._adopt(entry, chosen, call)
            elif isinstance(verdict, Tell):
                assert chosen is not None
                await self._tell(entry, chosen, call)
                return
            else:
                if verdict.why is Why.ENDED or self._was_delivered(entry):
                    self.told.passed_over(entry)
                entry.work = CallWork(call, entry)

    async def _let_notices_come(self, bell: anyio.Event) -> None:
        """Let a loop that is late hand on what it has: a disconnect is told some turns behind a timer."""
        for _ in range(_TURNS):
            if bell.is_set():
                return
            await anyio.lowlevel.checkpoint()

    def _judge(
        self, entry: AdoptableCall, now: float, has_settled: bool
    ) -> tuple[AdoptionVerdict, AdoptableCall | None]:
        earlier = self.table.equal_to(entry)
        patience = Patience.SETTLED if has_settled else Patience.FRESH
        judged = (self._judge_one(other, now, patience) for other in earlier)
        verdict, place = choose_adoption(judged, eligible=Eligible.YES)
        return verdict, earlier[place] if place >= 0 else None

    def _judge_one(self, other: AdoptableCall, now: float, patience: Patience) -> AdoptionVerdict:
        caller = other.where_caller_is(
            now,
            return_s=self._return_s_of(other),
            window_s=self._window_s,
            has_left=self.table.has_left(other.scope),
        )
        return decide_adoption(
            AdoptionEvidence(
                eligible=Eligible.YES,
                patience=patience,
                work=other.state_of_work(),
                delivery=other.delivery,
                caller=caller,
            )
        )

    def _free_at(self, other: AdoptableCall) -> float:
        return (other.away_since or time.monotonic()) + self._return_s_of(other)

    def _return_s_of(self, other: AdoptableCall) -> float:
        """How long its client may come back; a grace must not end before somebody else may have it."""
        closing = other.closing
        grace_s = closing.grace_s if closing is not None else 0.0
        return min(self._return_s, grace_s / 2) if grace_s else self._return_s

    # --- taking over

    async def _adopt(self, entry: AdoptableCall, earlier: AdoptableCall, call: Call) -> None:
        work = earlier.work
        assert work is not None, "only work is adopted"
        entry.work, work.holder = work, entry
        if entry.closing is not None and work.origin.closing is not None:
            entry.closing.join(work.origin.closing)
        self.table.take_away(earlier)
        self.told.adopted(entry, work)
        if self.journal is not None:
            self.journal.note_adopted(work)
        if work.copying is not None:
            work.copying.cancel()
        work.copying = anyio.CancelScope()
        call.open_adopted()
        with work.copying:
            await Copying(self._log, work, entry, self.questions, self._limits).run()

    async def _tell(self, entry: AdoptableCall, earlier: AdoptableCall, call: Call) -> None:
        doubt = earlier.work.doubt if earlier.work is not None else None
        self.told.told(entry)
        self.table.remove(entry)
        entry.is_forgotten = True  # it is no doubt of its own: the first one's window counts
        why, executed = (doubt.why, doubt.executed) if doubt is not None else (Why.CLOSED, Executed.UNKNOWN)
        error = InbandError(request_id=entry.request_id, why=why, executed=executed)
        await self._answer_with(entry, call, write_inband_error(error))

    async def _answer_with(self, entry: AdoptableCall, call: Call, error: bytes) -> None:
        call.open_adopted()
        await entry.stream.settle(error)

    # --- the end of work

    def _finish(self, work: CallWork) -> None:
        work.is_running = False
        holder = work.holder
        if work.state is Work.RUNNING and work.call is not None:
            work.state, work.doubt = outcome_of(work.call)
        if holder.delivery is Delivery.DONE and work.state is not Work.INDETERMINATE:
            self.table.remove(holder)
            self._release(holder, work)
            return
        work.settled_at = time.monotonic()
        if work.state is Work.INDETERMINATE and self._tasks is not None:
            self._tasks.start_soon(self._forget_later, holder, None)
        self.table.ring(holder.identity)
        if work.state is Work.INDETERMINATE:
            if not holder.is_forgotten:
                self.table.offer(holder)  # whoever makes the call again is told
            self._tell_release(holder, work)
        elif holder.is_forgotten or work.state in (Work.CANCELLED, Work.NOT_APPLIED):
            self.table.remove(holder)
            self._release(holder, work)
        else:
            self._tell_release(holder, work)

    def _release(self, entry: AdoptableCall, work: CallWork | None) -> None:
        if work is not None and not work.is_running:
            self.table.end_work(work)
        self._tell_release(entry, work)
        if work is not None and not work.is_running and _is_settled_by_itself(entry, work):
            entry.work = None  # the two hold each other, and nobody asks for either any more

    def _tell_release(self, entry: AdoptableCall, work: CallWork | None) -> None:
        for listener in self.on_release:
            listener(entry, work)

    async def _forget_later(self, entry: AdoptableCall, since: float | None) -> None:
        """Forget a call when its window ends, unless somebody came; `since` None: whoever comes."""
        await anyio.sleep(self._window_s)
        holds = entry.work is None or entry.work.holder is entry
        if holds and (since is None or entry.away_since == since):
            self.forget(entry)

    def _remember_delivered(self, entry: AdoptableCall) -> None:
        place = hash(entry.identity)
        self._delivered[place] = time.monotonic()
        self._delivered.move_to_end(place)
        if len(self._delivered) > _REMEMBERED:
            self._delivered.popitem(last=False)

    def _was_delivered(self, entry: AdoptableCall) -> bool:
        delivered_at = self._delivered.get(hash(entry.identity))
        return delivered_at is not None and time.monotonic() - delivered_at < self._window_s


def own_work(entry: AdoptableCall, call: Call) -> CallWork | None:
    """Return the work of a caller that makes its own call; None if it adopted one, or makes none."""
    return entry.work if entry.work is not None and entry.work.call is call else None


def outcome_of(call: Call) -> tuple[Work, InbandError | None]:
    """Say what became of a call that is over, and what its caller was told if there was no answer."""
    doubt = call.doubt()
    error = read_inband_error(doubt) if doubt is not None else None
    if error is None:
        return Work.ANSWERED, None
    return (Work.NOT_APPLIED if error.executed is Executed.NO else Work.INDETERMINATE), error


def _is_settled_by_itself(entry: AdoptableCall, work: CallWork) -> bool:
    """Whether a call was made for one caller only, who has its answer."""
    is_own = work.origin is entry and work.holder is entry
    return is_own and entry.delivery is Delivery.DONE and work.state is not Work.INDETERMINATE


class WatchedCall(msgspec.Struct):
    """One call as its connections see it."""

    adopting: Adopting
    entry: AdoptableCall

    def note_id(self) -> None:
        self.entry.has_id = True

    def note_attached(self, connection: Connection) -> None:
        self.adopting.note_attached(self.entry, connection)

    def note_handed_over(self, connection: Connection) -> None:
        self.adopting.note_handed_over(self.entry)

    def note_gone(self, connection: Connection) -> None:
        self.adopting.note_gone(self.entry, connection)
