"""Run a transactional handler: row, effect, outcome and cursor share one commit of the ledger's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from counterfoil.adapters.dispatcher.reports import DispatchReport, refusal_of
from counterfoil.adapters.dispatcher.run import Run, RunTools, failure_of
from counterfoil.errors import ForkedHandle, LedgerError, NotApplied, ReentrantCall, UnsafeHandler
from counterfoil.handlers import Handler
from counterfoil.model.ledger_verdicts import ClaimAnswer, Running, Settled
from counterfoil.protocol.dispatch_machine import Step
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.tickets import Ticket


class AtomicRuns:
    """Runs transactional handlers, on the ledger's own thread."""

    def __init__(self, tools: RunTools) -> None:
        self._tools = tools
        self._ledger = tools.ledger
        self._reporter = tools.reporter

    async def run(self, run: Run) -> DispatchReport:
        """Run the handler until it commits or its attempts are used up; raises the ledger's errors."""
        error: BaseException = NotApplied("no attempt was made")
        for attempt in range(1, self._tools.limits.attempts + 1):
            try:
                arguments: list[Any] = [run.delivery]
                if run.handler.prepare is not None:
                    arguments.append(await run.handler.prepare(run.delivery))
                answer = await self._apply(run, _plain_call(run.handler, arguments))
            except (LedgerError, ForkedHandle, ReentrantCall):
                run.step(Step.STORE_FAILED)
                raise
            except Exception as raised:
                error = raised
                if attempt < self._tools.limits.attempts:
                    await self._tools.back_off(attempt)
                continue
            return self._reporter.answered(run.delivery, answer)
        run.step(Step.ATTEMPTS_USED_UP)
        settlement = failure_of(error)
        recorded = await self._ledger.record(run.intent, settlement)
        run.step(Step.OUTCOME_DURABLE)
        if isinstance(recorded, Settled):
            return self._reporter.settled(run.delivery, run.key, settlement, error, recorded.processed)
        return self._reporter.answered(run.delivery, recorded)

    async def _apply(self, run: Run, call: Callable[[Transaction], object]) -> ClaimAnswer | Settled:
        while True:
            work = self._ledger.apply(run.intent, call)
            try:
                answer = await work
            except anyio.get_cancelled_exc_class():
                if work.withdraw():
                    run.step(Step.CANCELLED)
                    self._reporter.finish(run.ticket, refusal_of(run.delivery, "cancelled"))
                else:
                    # The ledger's thread has it and will finish it; the ticket learns of it from there.
                    work.when_settled(partial(self._finish_from_work, run, work))
                raise
            except (LedgerError, ForkedHandle, ReentrantCall):
                raise
            except Exception:
                run.step(Step.HANDLER_BEGUN, Step.HANDLER_FAILED)
                raise
            if isinstance(answer, Settled):
                run.step(Step.HANDLER_BEGUN, Step.HANDLER_RETURNED, Step.OUTCOME_DURABLE)
                return answer
            if not isinstance(answer, Running):
                run.step(Step.FOUND_SETTLED)
                return answer
            await self._tools.wait_for_other_run(run)

    def _finish_from_work(self, run: Run, work: Ticket[ClaimAnswer | Settled]) -> None:
        try:
            report = self._reporter.answered(run.delivery, work.result())
        except Exception as error:
            outcome = work.outcome
            assert outcome != "pending"
            report = DispatchReport(delivery=run.delivery, outcome=outcome, why="cancelled", error=error)
        self._reporter.finish(run.ticket, report)


def _plain_call(handler: Handler, arguments: list[Any]) -> Callable[[Transaction], object]:
    def call(transaction: Transaction) -> None:
        answer = handler.call(transaction, *arguments)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise UnsafeHandler(f"{handler.name} gave an awaitable: a transactional handler is plain")

    return call
