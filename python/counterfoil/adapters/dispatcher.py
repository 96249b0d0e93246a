"""Run handlers for events so that each effect happens once: row first, intent, handler, outcome,
acknowledgement.

Events of one stream run in their order, streams beside each other.  The work belongs to the dispatcher and
to the ledger's own thread, never to the task that asked; the client's connection and the gateway use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import msgspec

from counterfoil.errors import (
    CounterfoilError,
    ForkedHandle,
    LedgerBusy,
    LedgerError,
    LedgerFailed,
    NotApplied,
    ReentrantCall,
    UnsafeHandler,
)
from counterfoil.handlers import Delivery, Handler, Handlers
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import PayloadKey, encode_key, encode_stream, idempotency_key_of
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import (
    Asked,
    ClaimAnswer,
    Claimed,
    Conflict,
    Expired,
    Known,
    Running,
    Settled,
)
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol.dispatch_machine import State, Step, advance
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_interface import Ledger, Transaction
from counterfoil.stores.tickets import Ticket, wake

Policy = Literal["end_stream", "park"]
_COMPLETED = Settlement(outcome=OutcomeToken.COMPLETED)
_NOT_APPLIED = Settlement(outcome=OutcomeToken.NOT_APPLIED, why="handler")
_CANCELLED = Settlement(
    outcome=OutcomeToken.INDETERMINATE,
    why="cancelled",
    evidence="the handler was cancelled after it had begun",
    parked=True,
)
#: How often the write of an outcome alone is tried, and how long a copy waits between looks at a run
#: elsewhere.
_SETTLE_TRIES = 3
_LOOK_S = 0.05


class DispatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one event.

    `repeated` says that it was settled before, `ends_stream` that nothing behind it is run until the
    application reopens the stream, `processed` is the stream's mark where the ledger told it.
    """

    delivery: Delivery
    outcome: OutcomeToken
    why: str = ""
    evidence: str = ""
    idempotency_key: str = ""
    repeated: bool = False
    ends_stream: bool = False
    processed: int | None = None
    error: BaseException | None = None


class DispatchTicket(Ticket[DispatchReport]):
    """A ticket for one event; `outcome` is `pending` or what became of it."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__()
        self._delivery = delivery
        self._scope: anyio.CancelScope | None = None

    def cancel(self) -> None:
        """Cancel the run, from the dispatcher's own loop: not begun means not applied, begun may be a
        doubt.
        """
        if not self.withdraw() and self._scope is not None:
            self._scope.cancel()

    def _withdrawn(self) -> tuple[DispatchReport | None, BaseException | None]:
        return _refusal(self._delivery, "cancelled"), None


class _Stream:
    """The events of one stream that wait, and whether it goes on."""

    __slots__ = ("ended", "is_running", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[Delivery, DispatchTicket]] = deque()
        self.is_running = False
        self.ended = ""


class _Run:
    """One event on its way, and where its dispatch stands in the machine's table."""

    __slots__ = ("delivery", "handler", "has_outside_effect", "intent", "key", "state", "ticket")

    def __init__(self, delivery: Delivery, handler: Handler, ticket: DispatchTicket) -> None:
        self.delivery = delivery
        self.handler = handler
        self.ticket = ticket
        self.intent = _intent_of(delivery, handler)
        self.key = _sink_key(self.intent)
        self.state = State.RECEIVED
        #: The handler has begun and can have done something that no rollback takes back.
        self.has_outside_effect = False

    def step(self, *steps: Step) -> None:
        """Walk the table; a step that the state does not know is a bug, and raises."""
        for step in steps:
            self.state = advance(self.handler.kind, self.state, step)


class _Failure(Exception):
    """A run ended in an exception that its kind allows to repeat."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Dispatcher:
    """Dispatches deliveries to handlers, with `async with` around its use.

    Raises UnsafeHandler on entering where a handler's kind is not safe on the ledger.
    """

    def __init__(
        self,
        ledger: Ledger,
        handlers: Handlers,
        *,
        limits: Limits | None = None,
        on_failed: Policy = "end_stream",
        on_indeterminate: Policy = "end_stream",
        on_report: Callable[[DispatchReport], None] | None = None,
        jitter: Callable[[], float] = random.random,
        _reach: Callable[[str], None] | None = None,
    ) -> None:
        self._ledger = ledger
        self._handlers = handlers
        self._limits = limits if limits is not None else Limits()
        self._on_failed = on_failed
        self._on_indeterminate = on_indeterminate
        self._on_report = on_report
        self._jitter = jitter
        self._reach_hook = _reach
        self._streams: dict[bytes, _Stream] = {}
        self._group: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._handlers.check(self._ledger)
        group = anyio.create_task_group()
        await group.__aenter__()
        self._group = group
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        group, self._group = self._group, None
        assert group is not None
        try:
            # Leaving waits for every event that was accepted; leaving with an error cancels what runs.
            return await group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as raised:
            if error is None or raised.exceptions != (error,):
                raise
            return False  # the caller's own error goes on as it came, not as a group
        finally:
            for stream in self._streams.values():
                self._refuse_waiting(stream, "closed")

    def dispatch(self, delivery: Delivery) -> DispatchTicket:
        """Queue an event behind the others of its stream and give its ticket at once.

        Raises LedgerBusy when the stream has `Limits.dispatch_queue` events waiting: stop reading.
        """
        if self._group is None:
            raise LedgerError("the dispatcher is not open: use `async with Dispatcher(...)`")
        key = encode_stream(delivery.scope, delivery.place.server, delivery.place.stream)
        stream = self._streams.setdefault(key, _Stream())
        ticket = DispatchTicket(delivery)
        if stream.ended:
            self._finish(ticket, _refusal(delivery, "stream-ended", stream.ended))
            return ticket
        if len(stream.waiting) >= self._limits.dispatch_queue:
            raise LedgerBusy(
                f"{self._limits.dispatch_queue} events of this stream wait already (Limits.dispatch_queue)"
            )
        stream.waiting.append((delivery, ticket))
        if not stream.is_running:
            stream.is_running = True
            self._group.start_soon(self._run_stream, key, stream)
        return ticket

    def reopen(self, scope: Scope, *, server: str, stream: str) -> None:
        """Let a stream that ended go on behind the event that ended it."""
        found = self._streams.get(encode_stream(scope, server, stream))
        if found is not None:
            found.ended = ""

    # --- one stream ---

    async def _run_stream(self, key: bytes, stream: _Stream) -> None:
        try:
            while stream.waiting:
                delivery, ticket = stream.waiting.popleft()
                if stream.ended:
                    self._finish(ticket, _refusal(delivery, "stream-ended", stream.ended))
                    continue
                if not ticket.begin():
                    # Withdrawn: a hole must not be passed, so nothing behind it runs either.
                    stream.ended = "cancelled"
                    continue
                with anyio.CancelScope() as ticket._scope:
                    report = await self._run_one(delivery, ticket)
                    if report is not None:
                        self._finish(ticket, report)
                        if report.ends_stream:
                            stream.ended = report.why or str(report.outcome)
                if ticket._scope.cancelled_caught:
                    stream.ended = "cancelled"
        finally:
            stream.is_running = False
            if stream.waiting:
                self._refuse_waiting(stream, stream.ended or "cancelled")
            if not stream.ended:
                self._streams.pop(key, None)

    def _refuse_waiting(self, stream: _Stream, why: str) -> None:
        while stream.waiting:
            delivery, ticket = stream.waiting.popleft()
            self._finish(ticket, _refusal(delivery, "stream-ended", why))

    # --- one event ---

    async def _run_one(self, delivery: Delivery, ticket: DispatchTicket) -> DispatchReport | None:
        handler = self._handlers.find(delivery.name)
        if handler is None:
            self._ledger.skip(delivery.scope, delivery.place)
            await anyio.lowlevel.checkpoint()
            return DispatchReport(delivery=delivery, outcome=OutcomeToken.COMPLETED, why="no-handler")
        run = _Run(delivery, handler, ticket)
        self._reach("B1")
        try:
            is_atomic = handler.kind is HandlerKind.TRANSACTIONAL
            report = await (self._run_transactional(run) if is_atomic else self._run_outside(run))
        except (LedgerError, ForkedHandle, ReentrantCall) as error:
            # The store failed: fail closed.  What the row says decides when the stream is resumed.
            ambiguous = run.has_outside_effect or (isinstance(error, LedgerFailed) and error.ambiguous)
            return DispatchReport(
                delivery=delivery,
                outcome=OutcomeToken.INDETERMINATE if ambiguous else OutcomeToken.NOT_APPLIED,
                why="store",
                evidence=str(error),
                ends_stream=True,
                error=error,
            )
        if run.state is State.SETTLED:
            run.step(Step.ACKNOWLEDGEMENT_SENT)
        return report

    # --- effect, outcome and cursor in one commit ---

    async def _run_transactional(self, run: _Run) -> DispatchReport:
        error: BaseException = NotApplied("no attempt was made")
        for attempt in range(1, self._limits.attempts + 1):
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
                if attempt < self._limits.attempts:
                    await self._back_off(attempt)
                continue
            return self._report_answer(run.delivery, answer)
        run.step(Step.ATTEMPTS_USED_UP)
        settlement = _failure_of(error)
        recorded = await self._ledger.record(run.intent, settlement)
        run.step(Step.OUTCOME_DURABLE)
        if isinstance(recorded, Settled):
            return self._report(run, settlement, error, recorded.processed)
        return self._report_answer(run.delivery, recorded)

    async def _apply(self, run: _Run, call: Callable[[Transaction], object]) -> ClaimAnswer | Settled:
        while True:
            work = self._ledger.apply(run.intent, call)
            try:
                answer = await work
            except anyio.get_cancelled_exc_class():
                if work.withdraw():
                    run.step(Step.CANCELLED)
                    self._finish(run.ticket, _refusal(run.delivery, "cancelled"))
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
            await self._wait_for_other_run(run)

    async def _wait_for_other_run(self, run: _Run) -> None:
        """Suppress a copy until the run elsewhere in this process has settled the event."""
        run.step(Step.FOUND_RUNNING)
        try:
            await anyio.sleep(_LOOK_S)
        except anyio.get_cancelled_exc_class():
            run.step(Step.CANCELLED)
            raise
        run.step(Step.OTHER_RUN_ENDED)

    def _finish_from_work(self, run: _Run, work: Ticket[ClaimAnswer | Settled]) -> None:
        try:
            report = self._report_answer(run.delivery, work.result())
        except Exception as error:
            outcome = work.outcome
            assert outcome != "pending"
            report = DispatchReport(delivery=run.delivery, outcome=outcome, why="cancelled", error=error)
        self._finish(run.ticket, report)

    # --- an intent before the handler, an outcome after it ---

    async def _run_outside(self, run: _Run) -> DispatchReport | None:
        claimed = await self._claim(run)
        if not isinstance(claimed, Claimed):
            return self._report_answer(run.delivery, claimed)
        for attempt in range(claimed.tries, self._limits.attempts + 1):
            self._reach("B3")
            try:
                await self._call(run, claimed)
            except _Failure as failure:
                error = failure.cause
            else:
                self._reach("B5")
                return await self._settle(run, claimed, _COMPLETED)
            is_last = attempt == self._limits.attempts
            if run.handler.kind is HandlerKind.IDEMPOTENT:
                if is_last:
                    run.step(Step.ATTEMPTS_USED_UP)
                    return await self._settle(run, claimed, _failure_of(error), error)
                claimed = await self._claim_again(attempt, run, claimed)
            elif not isinstance(error, NotApplied):
                return await self._settle(run, claimed, _doubt_of(error), error)
            elif is_last:
                return await self._settle(run, claimed, _failure_of(error), error)
            else:
                # The key is free again, and the next run is one like the first.
                await self._settle(run, claimed, _NOT_APPLIED, error)
                await self._back_off(attempt)
                run.step(Step.KEY_FREED)
                run.has_outside_effect = False
                answer = await self._claim(run)
                if not isinstance(answer, Claimed):
                    return self._report_answer(run.delivery, answer)
                claimed = answer
        return None

    async def _claim(self, run: _Run) -> ClaimAnswer:
        while True:
            work = self._ledger.claim(run.intent)
            run.step(Step.CLAIM_SENT)
            self._reach("B2")
            try:
                answer = await work
            except anyio.get_cancelled_exc_class():
                run.step(Step.CANCELLED)
                if not work.withdraw():
                    work.when_settled(partial(self._release_late, work))
                self._finish(run.ticket, _refusal(run.delivery, "cancelled"))
                raise
            except CounterfoilError:
                run.step(Step.STORE_FAILED)
                raise
            if isinstance(answer, Running):
                await self._wait_for_other_run(run)
                continue
            run.step(Step.INTENT_DURABLE if isinstance(answer, Claimed) else Step.FOUND_SETTLED)
            return answer

    async def _claim_again(self, attempt: int, run: _Run, claimed: Claimed) -> Claimed:
        """Wait, and count the next run; cancelled here, no run goes on."""
        work: Ticket[Claimed] | None = None
        try:
            await self._back_off(attempt)
            work = self._ledger.claim_again(claimed)
            return await work
        except anyio.get_cancelled_exc_class():
            run.step(Step.CANCELLED)
            if work is None or work.withdraw():
                self._release(claimed)
            else:
                work.when_settled(partial(self._release_late, work))
            self._finish(run.ticket, _refusal(run.delivery, "cancelled"))
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

    async def _call(self, run: _Run, claimed: Claimed) -> None:
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
            self._reach("B4")
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

    def _note_cancelled(self, run: _Run, claimed: Claimed) -> None:
        """Write what a cancelled run leaves behind; it waits for nothing, so no cancellation can cut it."""
        begun = run.state is State.RUNNING
        run.step(Step.CANCELLED)
        if not begun or run.handler.kind is HandlerKind.IDEMPOTENT:
            self._release(claimed)
            outcome = OutcomeToken.INDETERMINATE if begun else OutcomeToken.NOT_APPLIED
            self._finish(run.ticket, DispatchReport(delivery=run.delivery, outcome=outcome, why="cancelled"))
            return
        with contextlib.suppress(CounterfoilError):  # closed: the next incarnation finds the intent
            self._let_go(claimed, self._ledger.settle(claimed, _CANCELLED))
        self._finish(run.ticket, self._report(run, _CANCELLED))

    async def _settle(
        self, run: _Run, claimed: Claimed, settlement: Settlement, error: BaseException | None = None
    ) -> DispatchReport | None:
        """Write the outcome; the write alone is tried again, never the handler."""
        for attempt in range(1, _SETTLE_TRIES + 1):
            try:
                work = self._ledger.settle(claimed, settlement)
                self._reach("B6")
                settled = await work
            except (LedgerBusy, LedgerFailed):
                if attempt == _SETTLE_TRIES:
                    run.step(Step.STORE_FAILED)
                    # The run is over; when the store is back, a copy of the event must not wait for it.
                    self._ledger.abandon(claimed)
                    raise
                run.step(Step.COMMIT_REPEATED)
                await self._back_off(attempt)
                continue
            except anyio.get_cancelled_exc_class():
                # Too late to cancel: the handler has returned, and its outcome is on its way.
                report = self._report(run, settlement, error)
                work.when_settled(partial(self._finish_from_outcome, run.ticket, report, work))
                raise
            run.step(Step.OUTCOME_DURABLE)
            self._reach("B7")
            return self._report(run, settlement, error, settled.processed)
        return None

    def _finish_from_outcome(
        self, ticket: DispatchTicket, report: DispatchReport, work: Ticket[Settled]
    ) -> None:
        if work.outcome is not OutcomeToken.COMPLETED:
            report = msgspec.structs.replace(report, outcome=OutcomeToken.INDETERMINATE, why="store")
        self._finish(ticket, report)

    # --- reports ---

    def _report_answer(self, delivery: Delivery, answer: ClaimAnswer | Settled) -> DispatchReport:
        """Put what the ledger found into a report; an event settled before is acknowledged again."""
        key = idempotency_key_of(answer.key)
        match answer:
            case Settled():
                return DispatchReport(
                    delivery=delivery,
                    outcome=OutcomeToken.COMPLETED,
                    idempotency_key=key,
                    processed=answer.processed,
                )
            case Known():
                row = answer.row
                if row is None:
                    return DispatchReport(
                        delivery=delivery,
                        outcome=OutcomeToken.COMPLETED,
                        repeated=True,
                        idempotency_key=key,
                    )
                outcome = row.outcome if row.outcome is not None else OutcomeToken.COMPLETED
                if answer.fresh:
                    settlement = Settlement(outcome=outcome, why=row.why, evidence=row.evidence)
                    return self._report_outcome(delivery, settlement, key)
                return DispatchReport(
                    delivery=delivery,
                    outcome=outcome,
                    why=row.why,
                    evidence=row.evidence,
                    repeated=True,
                    idempotency_key=key,
                )
            case Conflict():
                evidence = "the same event came with other bytes than before"
                settlement = Settlement(
                    outcome=OutcomeToken.NOT_APPLIED, why="fingerprint", evidence=evidence
                )
                return self._report_outcome(delivery, settlement, key)
            case Expired() | Asked() | Running() | Claimed():
                settlement = Settlement(
                    outcome=OutcomeToken.INDETERMINATE,
                    why="expired",
                    evidence="the key was seen before, and what became of it is forgotten",
                )
                return self._report_outcome(delivery, settlement, key)

    def _report(
        self,
        run: _Run,
        settlement: Settlement,
        error: BaseException | None = None,
        processed: int | None = None,
    ) -> DispatchReport:
        report = self._report_outcome(run.delivery, settlement, run.key)
        return msgspec.structs.replace(report, error=error, processed=processed)

    def _report_outcome(self, delivery: Delivery, settlement: Settlement, key: str) -> DispatchReport:
        match settlement.outcome:
            case OutcomeToken.COMPLETED:
                ends = False
            case OutcomeToken.FAILED:
                ends = self._on_failed == "end_stream"
            case OutcomeToken.INDETERMINATE:
                ends = self._on_indeterminate == "end_stream"
            case OutcomeToken.NOT_APPLIED:
                ends = True
        return DispatchReport(
            delivery=delivery,
            outcome=settlement.outcome,
            why=settlement.why,
            evidence=settlement.evidence,
            idempotency_key=key,
            ends_stream=ends,
        )

    def _finish(self, ticket: DispatchTicket, report: DispatchReport) -> None:
        if ticket.outcome != "pending":
            return
        if (
            self._on_report is not None
            and report.outcome is not OutcomeToken.COMPLETED
            and not report.repeated
        ):
            self._on_report(report)
        wake(ticket.settle(report, outcome=report.outcome))

    # --- waiting ---

    async def _back_off(self, attempt: int) -> None:
        base_s = self._limits.attempt_backoff_ms / 1000
        await anyio.sleep(base_s * 2 ** (attempt - 1) * (0.5 + self._jitter() / 2))

    def _reach(self, boundary: str) -> None:
        """A place where tests let a fault happen."""
        if self._reach_hook is not None:
            self._reach_hook(boundary)


def _intent_of(delivery: Delivery, handler: Handler) -> Intent:
    named = handler.payload_key(delivery) if handler.payload_key is not None else None
    return Intent(
        scope=delivery.scope,
        key=delivery.place,
        kind=RowKind(handler.kind.value),
        label=delivery.name,
        fingerprint=hashlib.blake2b(delivery.data, digest_size=16).digest() if delivery.data else b"",
        payload_key=PayloadKey(server=delivery.place.server, key=named) if named is not None else None,
    )


def _sink_key(intent: Intent) -> str:
    """Give the key that a sink sees: of the payload where it names the work, else of the event."""
    return idempotency_key_of(encode_key(intent.scope, intent.payload_key or intent.key))


def _plain_call(handler: Handler, arguments: list[Any]) -> Callable[[Transaction], object]:
    def call(transaction: Transaction) -> None:
        answer = handler.call(transaction, *arguments)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise UnsafeHandler(f"{handler.name} gave an awaitable: a transactional handler is plain")

    return call


def _doubt_of(error: BaseException) -> Settlement:
    return Settlement(
        outcome=OutcomeToken.INDETERMINATE,
        why="exception",
        evidence=f"the handler raised {type(error).__name__} after it had begun",
        parked=True,
    )


def _failure_of(error: BaseException) -> Settlement:
    return Settlement(
        outcome=OutcomeToken.FAILED,
        why="attempts",
        evidence=f"every attempt ended in {type(error).__name__}",
        parked=True,
    )


def _refusal(delivery: Delivery, why: str, evidence: str = "") -> DispatchReport:
    return DispatchReport(delivery=delivery, outcome=OutcomeToken.NOT_APPLIED, why=why, evidence=evidence)
