"""Run a transactional handler: row, effect, outcome and cursor share one commit of the ledger's."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import anyio

from counterfoil.adapters.dispatcher.reports import DispatchReport, refusal_of
from counterfoil.adapters.dispatcher.run import Run, RunTools, failure_of
from counterfoil.errors import ForkedHandle, LedgerError, NotApplied, OutOfTurn, ReentrantCall, UnsafeHandler
from counterfoil.handlers import Handler
from counterfoil.model.ledger_verdicts import ClaimAnswer, Running, Settled
from counterfoil.model.tokens import HandlerKind
from counterfoil.protocol.dispatch_machine import Step
from counterfoil.protocol.ledger_steps import Settlement
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.tickets import Ticket

T = TypeVar("T")
Work = Ticket[ClaimAnswer | Settled]


class AtomicRuns:
    """Runs transactional handlers, on the ledger's own thread."""

    def __init__(self, tools: RunTools) -> None:
        self._tools = tools
        self._ledger = tools.ledger
        self._reporter = tools.reporter

    async def run(self, run: Run, *, on_given: Callable[[Work, bool], None]) -> DispatchReport:
        """Run the handler until it commits or its attempts are used up; raises the ledger's errors.

        `on_given` is told of each work that the ledger has for the event, and whether it was given early.
        """
        error: BaseException = NotApplied("no attempt was made")
        for attempt in range(1, self._tools.limits.attempts + 1):
            try:
                arguments: list[Any] = [run.delivery]
                if run.handler.prepare is not None:
                    arguments.append(await self._unless_cancelled(run, run.handler.prepare(run.delivery)))
                answer = await self._apply(run, _plain_call(run.handler, arguments), on_given)
            except (LedgerError, ForkedHandle, ReentrantCall):
                run.step(Step.STORE_FAILED)
                raise
            except Exception as raised:
                error = raised
                if attempt < self._tools.limits.attempts:
                    await self._unless_cancelled(run, self._tools.back_off(attempt))
                continue
            return self._reporter.answered(run.delivery, answer)
        run.step(Step.ATTEMPTS_USED_UP)
        return await self._record(run, failure_of(error), error)

    async def _unless_cancelled(self, run: Run, waiting: Awaitable[T]) -> T:
        """Wait while nothing of the event is in the ledger; cancelled then, it certainly was not applied."""
        try:
            return await waiting
        except anyio.get_cancelled_exc_class():
            run.step(Step.CANCELLED)
            self._reporter.finish(run.ticket, refusal_of(run.delivery, "cancelled"))
            raise

    async def _record(self, run: Run, settlement: Settlement, error: BaseException) -> DispatchReport:
        """Write that every attempt failed."""
        work = self._ledger.record(run.intent, settlement)

        def report(recorded: ClaimAnswer | Settled) -> DispatchReport:
            if isinstance(recorded, Settled):
                return self._reporter.settled(run.delivery, run.key, settlement, error, recorded.processed)
            return self._reporter.answered(run.delivery, recorded)

        try:
            recorded = await work
        except anyio.get_cancelled_exc_class():
            # The handler has done nothing, whether or not the ledger will say so.
            refusal = refusal_of(run.delivery, "cancelled")
            work.when_settled(partial(self._finish_from_work, run, work, refusal, report))
            raise
        run.step(Step.OUTCOME_DURABLE)
        return report(recorded)

    def give_early(self, run: Run, after: Work) -> bool:
        """Give the ledger an event that follows another, before its turn; False where it was withdrawn."""
        call = _plain_call(run.handler, [run.delivery])
        return run.ticket.give_early(lambda: self._ledger.apply(run.intent, call, after=after))

    def leave_early(self, run: Run, why: str, evidence: str) -> None:
        """End an event whose turn does not come, although the ledger may have it already."""
        refusal = refusal_of(run.delivery, why, evidence)
        work = run.ticket.early
        if work is None or work.withdraw():
            self._reporter.finish(run.ticket, refusal)
        else:
            work.when_settled(partial(self._finish_from_work, run, work, refusal))

    async def _apply(
        self, run: Run, call: Callable[[Transaction], object], on_given: Callable[[Work, bool], None]
    ) -> ClaimAnswer | Settled:
        early, run.ticket.early = run.ticket.early, None
        while True:
            work = early if early is not None else self._ledger.apply(run.intent, call)
            on_given(work, early is not None)
            try:
                # What was given early is often done by now, and a turn of the loop costs as much as the work.
                is_done = early is not None and work.outcome != "pending"
                answer = work.result() if is_done else await work
            except anyio.get_cancelled_exc_class():
                refusal = refusal_of(run.delivery, "cancelled")
                if work.withdraw():
                    run.step(Step.CANCELLED)
                    self._reporter.finish(run.ticket, refusal)
                else:
                    # The ledger's thread has it and will finish it; the ticket learns of it from there.
                    work.when_settled(partial(self._finish_from_work, run, work, refusal))
                raise
            except (LedgerError, ForkedHandle, ReentrantCall):
                raise
            except Exception as error:
                if early is not None and isinstance(error, OutOfTurn):
                    # Not run at all: now it is its turn.
                    early = None
                    continue
                run.step(Step.HANDLER_BEGUN, Step.HANDLER_FAILED)
                raise
            early = None
            if isinstance(answer, Settled):
                run.step(Step.HANDLER_BEGUN, Step.HANDLER_RETURNED, Step.OUTCOME_DURABLE)
                return answer
            if not isinstance(answer, Running):
                run.step(Step.FOUND_SETTLED)
                return answer
            await self._tools.wait_for_other_run(run)

    def _finish_from_work(
        self,
        run: Run,
        work: Work,
        refusal: DispatchReport,
        report_of: Callable[[ClaimAnswer | Settled], DispatchReport] | None = None,
    ) -> None:
        try:
            answer = work.result()
            report = report_of(answer) if report_of else self._reporter.answered(run.delivery, answer)
        except OutOfTurn:
            report = refusal
        except Exception as error:
            outcome = work.outcome
            assert outcome != "pending"
            report = DispatchReport(delivery=run.delivery, outcome=outcome, why=refusal.why, error=error)
        self._reporter.finish(run.ticket, report)


def is_chainable(handler: Handler) -> bool:
    """Say whether a handler's events can be given to the ledger before their turn."""
    return handler.kind is HandlerKind.TRANSACTIONAL and handler.prepare is None


def _plain_call(handler: Handler, arguments: list[Any]) -> Callable[[Transaction], object]:
    def call(transaction: Transaction) -> None:
        answer = handler.call(transaction, *arguments)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise UnsafeHandler(f"{handler.name} gave an awaitable: a transactional handler is plain")

    return call
