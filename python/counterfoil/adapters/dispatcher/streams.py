"""Run handlers for events so that each effect happens once: row first, intent, handler, outcome,
acknowledgement.

Events of one stream run in their order, streams beside each other.  The work belongs to the dispatcher and
to the ledger's own thread, never to the task that asked; the client's connection and the gateway use it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from counterfoil.adapters.dispatcher.atomic import AtomicRuns, Work, is_chainable
from counterfoil.adapters.dispatcher.chain import Chain, Waiting
from counterfoil.adapters.dispatcher.outside import OutsideRuns
from counterfoil.adapters.dispatcher.reports import (
    DispatchReport,
    DispatchTicket,
    Policy,
    Reporter,
    refusal_of,
)
from counterfoil.adapters.dispatcher.run import Run, RunTools
from counterfoil.errors import (
    ForkedHandle,
    LedgerBusy,
    LedgerError,
    LedgerFailed,
    ReentrantCall,
)
from counterfoil.handlers import Delivery, Handlers
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import encode_stream
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol.dispatch_machine import State, Step
from counterfoil.stores.ledger_interface import Ledger


class _Stream:
    """The events of one stream that wait, and whether it goes on."""

    __slots__ = ("chain", "ended", "is_running", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.chain = Chain()
        self.is_running = False
        self.ended = ""


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
        self._reporter = Reporter(on_failed=on_failed, on_indeterminate=on_indeterminate, on_report=on_report)
        self._tools = RunTools(ledger, self._limits, self._reporter, jitter=jitter, reach=_reach)
        self._atomic = AtomicRuns(self._tools)
        self._outside = OutsideRuns(self._tools)
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
            self._reporter.finish(ticket, refusal_of(delivery, "stream-ended", stream.ended))
            return ticket
        if len(stream.waiting) >= self._limits.dispatch_queue:
            raise LedgerBusy(
                f"{self._limits.dispatch_queue} events of this stream wait already (Limits.dispatch_queue)"
            )
        stream.waiting.append(Waiting(delivery, ticket))
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
                # One for many events, of which only the one whose turn it is can cancel it.
                with anyio.CancelScope() as scope:
                    while stream.waiting and not scope.cancel_called:
                        await self._run_next(stream, scope)
                if scope.cancelled_caught:
                    stream.ended = "cancelled"
        finally:
            stream.is_running = False
            if stream.waiting:
                self._refuse_waiting(stream, stream.ended or "cancelled")
            if not stream.ended:
                self._streams.pop(key, None)

    async def _run_next(self, stream: _Stream, scope: anyio.CancelScope) -> None:
        one = stream.waiting.popleft()
        ticket = one.ticket
        stream.chain.take_one()
        if stream.ended:
            self._refuse(one, stream.ended)
            return
        if not ticket.begin():
            # Withdrawn: a hole must not be passed, so nothing behind it runs either.
            stream.ended = "cancelled"
            return
        ticket._scope = scope
        try:
            report = await self._run_one(stream, one)
        finally:
            ticket._scope = None
        if report is not None:
            self._reporter.finish(ticket, report)
            if report.ends_stream:
                stream.ended = report.why or str(report.outcome)

    def _refuse_waiting(self, stream: _Stream, why: str) -> None:
        while stream.waiting:
            self._refuse(stream.waiting.popleft(), why)
        stream.chain = Chain()

    def _refuse(self, one: Waiting, why: str) -> None:
        if one.run is not None:
            self._atomic.leave_early(one.run, "stream-ended", why)
        else:
            self._reporter.finish(one.ticket, refusal_of(one.delivery, "stream-ended", why))

    def _give_early(self, one: Waiting, after: Work) -> bool:
        """Give the ledger a waiting event together with the one before it."""
        handler = self._handlers.find(one.delivery.name)
        if handler is None or not is_chainable(handler):
            return False
        one.run = Run(one.delivery, handler, one.ticket)
        return self._atomic.give_early(one.run, after)

    # --- one event ---

    async def _run_one(self, stream: _Stream, one: Waiting) -> DispatchReport | None:
        delivery = one.delivery
        handler = self._handlers.find(delivery.name)
        report: DispatchReport | None
        if handler is None:
            self._ledger.skip(delivery.scope, delivery.place)
            report = DispatchReport(delivery=delivery, outcome=OutcomeToken.COMPLETED, why="no-handler")
            self._reporter.finish(one.ticket, report)
            await anyio.lowlevel.checkpoint()
            return report
        try:
            run = one.run or Run(delivery, handler, one.ticket)
        except Exception as error:
            # Without its name the work cannot be told from other work; resumed, the stream asks again.
            evidence = f"payload_key of {handler.name} raised {type(error).__name__}"
            refusal = refusal_of(delivery, "payload-key", evidence)
            await anyio.lowlevel.checkpoint()
            return msgspec.structs.replace(refusal, ends_stream=True, error=error)
        self._tools.reach("B1")

        def chain_others(work: Work, is_early: bool) -> None:
            if not is_early:
                stream.chain.begin_anew(work)
            stream.chain.extend(stream.waiting, self._give_early)

        try:
            if handler.kind is HandlerKind.TRANSACTIONAL:
                report = await self._atomic.run(run, on_given=chain_others)
            else:
                report = await self._outside.run(run)
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
