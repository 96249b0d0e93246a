"""Run a handler whose effect lies outside: an intent before it, an outcome after it, and no second chance for
what cannot be repeated.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from counterfoil.adapters.dispatcher.reports import DispatchReport, DispatchTicket, refusal_of
from counterfoil.adapters.dispatcher.run import Run, RunTools, failure_of
from counterfoil.errors import CounterfoilError, LedgerBusy, LedgerFailed, NotApplied
from counterfoil.handlers import Delivery
from counterfoil.model.ledger_verdicts import ClaimAnswer, Claimed, Running, Settled
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.protocol.dispatch_machine import State, Step
from counterfoil.protocol.ledger_steps import Settlement
from counterfoil.stores.tickets import Ticket

_COMPLETED = Settlement(outcome=OutcomeToken.COMPLETED)
_NOT_APPLIED = Settlement(outcome=OutcomeToken.NOT_APPLIED, why="handler")
_CANCELLED = Settlement(
    outcome=OutcomeToken.INDETERMINATE,
    why="cancelled",
    evidence="the handler was cancelled after it had begun",
    parked=True,
)
#: How often the write of an outcome alone is tried.
_SETTLE_TRIES = 3


class _Failure(Exception):
    """A run ended in an exception that its kind allows to repeat."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class OutsideRuns:
    """Runs idempotent and at-most-once handlers."""

    def __init__(self, tools: RunTools) -> None:
        self._tools = tools
        self._ledger = tools.ledger
        self._reporter = tools.reporter

    async def run(self, run: Run) -> DispatchReport | None:
        """Claim, run and settle; raises the ledger's errors."""
        claimed = await self._claim(run)
        if not isinstance(claimed, Claimed):
            return self._reporter.answered(run.delivery, claimed)
        for attempt in range(claimed.tries, self._tools.limits.attempts + 1):
            self._tools.reach("B3")
            try:
                await self._call(run, claimed)
            except _Failure as failure:
                error = failure.cause
            else:
                self._tools.reach("B5")
                return await self._settle(run, claimed, _COMPLETED)
            is_last = attempt == self._tools.limits.attempts
            if run.handler.kind is HandlerKind.IDEMPOTENT:
                if is_last:
                    run.step(Step.ATTEMPTS_USED_UP)
                    return await self._settle(run, claimed, failure_of(error), error)
                claimed = await self._claim_again(attempt, run, claimed)
            elif not isinstance(error, NotApplied):
                return await self._settle(run, claimed, _doubt_of(error), error)
            elif is_last:
                return await self._settle(run, claimed, failure_of(error), error)
            else:
                # The key is free again, and the next run is one like the first.
                await self._settle(run, claimed, _NOT_APPLIED, error)
                try:
                    await self._tools.back_off(attempt)
                except anyio.get_cancelled_exc_class():
                    self._reporter.finish(run.ticket, refusal_of(run.delivery, "cancelled"))
                    raise
                run.step(Step.KEY_FREED)
                run.has_outside_effect = False
                answer = await self._claim(run)
                if not isinstance(answer, Claimed):
                    return self._reporter.answered(run.delivery, answer)
                claimed = answer
        return None

    async def _claim(self, run: Run) -> ClaimAnswer:
        while True:
            work = self._ledger.claim(run.intent)
            run.step(Step.CLAIM_SENT)
            self._tools.reach("B2")
            try:
                answer = await work
            except anyio.get_cancelled_exc_class():
                run.step(Step.CANCELLED)
                if not work.withdraw():
                    work.when_settled(partial(self._release_late, work))
                self._reporter.finish(run.ticket, refusal_of(run.delivery, "cancelled"))
                raise
            except CounterfoilError:
                run.step(Step.STORE_FAILED)
                raise
            if isinstance(answer, Running):
                await self._tools.wait_for_other_run(run)
                continue
            run.step(Step.INTENT_DURABLE if isinstance(answer, Claimed) else Step.FOUND_SETTLED)
            return answer

    async def _claim_again(self, attempt: int, run: Run, claimed: Claimed) -> Claimed:
        """Wait, and count the next run; cancelled here, no run goes on."""
        work: Ticket[Claimed] | None = None
        try:
            await self._tools.back_off(attempt)
            work = self._ledger.claim_again(claimed)
            return await work
        except anyio.get_cancelled_exc_class():
            run.step(Step.CANCELLED)
            if work is None or work.withdraw():
                self._release(claimed)
            else:
                work.when_settled(partial(self._release_late, work))
            self._reporter.finish(run.ticket, refusal_of(run.delivery, "cancelled"))
            raise
        except CounterfoilError:
            # The run that failed is over, and no other could be counted: a copy must not wait for it.
            run.step(Step.STORE_FAILED)
            self._ledger.abandon(claimed)
            raise

    def _release_late(self, work: Ticket[ClaimAnswer] | Ticket[Claimed]) -> None:
        """A claim that became durable after its waiter was cancelled: nothing was run under it."""
        try:
            answer = work.result()
        except Exception:
            return
        if isinstance(answer, Claimed):
            self._release(answer)

    def _release(self, claimed: Claimed) -> None:
        with contextlib.suppress(CounterfoilError):  # closed: the next incarnation decides by the kind
            self._let_go(claimed, self._ledger.release(claimed))

    def _let_go(self, claimed: Claimed, work: Ticket[Any]) -> None:
        """Write what nobody waits for; where that fails, the run is over all the same."""

        def look() -> None:
            if work.outcome is not OutcomeToken.COMPLETED:
                self._ledger.abandon(claimed)

        work.when_settled(look)

    async def _call(self, run: Run, claimed: Claimed) -> None:
        """Run the handler; raises _Failure for an exception of its own."""
        handler = run.handler
        keyed = {"idempotency_key": run.key} if handler.kind is HandlerKind.IDEMPOTENT else {}
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            run.step(Step.HANDLER_BEGUN)
            run.has_outside_effect = True
            if handler.is_async:
                await handler.call(run.delivery, **keyed)
            else:
                await anyio.to_thread.run_sync(lambda: handler.call(run.delivery, **keyed))
            self._tools.reach("B4")
        except anyio.get_cancelled_exc_class():
            self._note_cancelled(run, claimed)
            raise
        except Exception as error:
            run.step(Step.HANDLER_FAILED)
            raise _Failure(error) from error
        except BaseException:
            self._note_cancelled(run, claimed)
            raise
        run.step(Step.HANDLER_RETURNED)

    def _note_cancelled(self, run: Run, claimed: Claimed) -> None:
        """Write what a cancelled run leaves behind; it waits for nothing, so no cancellation can cut it."""
        begun = run.state is State.RUNNING
        run.step(Step.CANCELLED)
        if not begun or run.handler.kind is HandlerKind.IDEMPOTENT:
            self._release(claimed)
            outcome = OutcomeToken.INDETERMINATE if begun else OutcomeToken.NOT_APPLIED
            self._reporter.finish(
                run.ticket, DispatchReport(delivery=run.delivery, outcome=outcome, why="cancelled")
            )
            return
        with contextlib.suppress(CounterfoilError):  # closed: the next incarnation finds the intent
            self._let_go(claimed, self._ledger.settle(claimed, _CANCELLED))
        self._reporter.finish(run.ticket, self._reporter.settled(run.delivery, run.key, _CANCELLED))

    async def _settle(
        self, run: Run, claimed: Claimed, settlement: Settlement, error: BaseException | None = None
    ) -> DispatchReport | None:
        """Write the outcome; the write alone is tried again, never the handler."""
        for attempt in range(1, _SETTLE_TRIES + 1):
            try:
                work = self._ledger.settle(claimed, settlement)
                self._tools.reach("B6")
                settled = await work
            except (LedgerBusy, LedgerFailed):
                if attempt == _SETTLE_TRIES:
                    run.step(Step.STORE_FAILED)
                    # The run is over; when the store is back, a copy of the event must not wait for it.
                    self._ledger.abandon(claimed)
                    raise
                run.step(Step.COMMIT_REPEATED)
                try:
                    await self._tools.back_off(attempt)
                except anyio.get_cancelled_exc_class():
                    run.step(Step.STORE_FAILED)
                    self._ledger.abandon(claimed)
                    self._reporter.finish(run.ticket, _unwritten(run.delivery, error))
                    raise
                continue
            except anyio.get_cancelled_exc_class():
                # Too late to cancel: the handler has returned, and its outcome is on its way.
                report = self._reporter.settled(run.delivery, run.key, settlement, error)
                work.when_settled(partial(self._finish_from_outcome, run.ticket, report, work))
                raise
            run.step(Step.OUTCOME_DURABLE)
            self._tools.reach("B7")
            return self._reporter.settled(run.delivery, run.key, settlement, error, settled.processed)
        return None

    def _finish_from_outcome(
        self, ticket: DispatchTicket, report: DispatchReport, work: Ticket[Settled]
    ) -> None:
        if work.outcome is not OutcomeToken.COMPLETED:
            report = msgspec.structs.replace(report, outcome=OutcomeToken.INDETERMINATE, why="store")
        self._reporter.finish(ticket, report)


def _unwritten(delivery: Delivery, error: BaseException | None) -> DispatchReport:
    """Report a run whose outcome could not be written before it was cancelled."""
    return DispatchReport(
        delivery=delivery,
        outcome=OutcomeToken.INDETERMINATE,
        why="store",
        evidence="the handler has returned, and what became of it was not written",
        ends_stream=True,
        error=error,
    )


def _doubt_of(error: BaseException) -> Settlement:
    return Settlement(
        outcome=OutcomeToken.INDETERMINATE,
        why="exception",
        evidence=f"the handler raised {type(error).__name__} after it had begun",
        parked=True,
    )
