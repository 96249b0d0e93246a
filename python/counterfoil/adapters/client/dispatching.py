"""Gives notifications to the application's handlers, and moves each stream behind what they have done.

The dispatcher runs them and the ledger remembers; this waits for the outcomes in their order and tells the
stream's driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from counterfoil.adapters.client.driver import StreamDriver
from counterfoil.adapters.client.inbox import Arrival
from counterfoil.adapters.client.keeping import Keeping
from counterfoil.adapters.dispatcher import Dispatcher, DispatchReport, DispatchTicket
from counterfoil.errors import LedgerBusy
from counterfoil.handlers import Delivery, Handlers
from counterfoil.model.stream import Place
from counterfoil.model.tokens import HandlerKind, OutcomeToken, StreamKind
from counterfoil.native import Scope

#: Confirms out of band that an event of an unproven stream is to be applied.
Confirm = Callable[[Arrival], Awaitable[bool]]

#: How long a full queue is waited for.
BUSY_S = 0.01


class _Stream:
    """The events of one stream that wait for their outcome."""

    __slots__ = ("is_running", "stopped_at", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[StreamDriver, Arrival]] = deque()
        self.is_running = False
        #: The server's name of the stream that was stopped; None while it goes on.
        self.stopped_at: str | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more is run until the application reopens the stream."""
        return self.stopped_at is not None


class Dispatching:
    """The handlers of one connection.

    `keeps` says which streams are kept beyond this process.  `on_stop` is told of the event at which a
    stream's delivery ended; nothing behind it is run.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        handlers: Handlers,
        keeping: Keeping,
        tasks: anyio.abc.TaskGroup,
        *,
        scope: Scope,
        server: str,
        confirm: Confirm | None,
        keeps: Callable[[StreamDriver], bool],
        on_stop: Callable[[StreamDriver, DispatchReport], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._handlers = handlers
        self._keeping = keeping
        self._tasks = tasks
        self._scope = scope
        self._server = server
        self._confirm = confirm
        self._keeps = keeps
        self._on_stop = on_stop
        self._streams: dict[str, _Stream] = {}
        #: The last event that was dispatched of each call's stream whose mark nobody else ends.
        self._last: dict[str, Place] = {}

    def take(self, driver: StreamDriver, arrival: Arrival) -> None:
        """Dispatch an event behind the others of its stream."""
        stream = self._streams.setdefault(driver.name, _Stream())
        stream.waiting.append((driver, arrival))
        if not stream.is_running:
            stream.is_running = True
            self._tasks.start_soon(self._run_stream, driver.name, stream)

    def end(self, driver: StreamDriver) -> None:
        """Let the ledger forget a call's stream in its time, once all of it is done."""
        stream = self._streams.get(driver.name)
        if stream is not None and stream.is_running:
            return
        self.reopen(driver.name)
        last = self._last.pop(driver.name, None)
        if last is not None:
            self._keeping.end_history(last)

    def reopen(self, name: str) -> None:
        """Let a stream that was stopped go on behind the event that stopped it."""
        stream = self._streams.pop(name, None)
        if stream is not None and stream.stopped_at is not None:
            self._dispatcher.reopen(self._scope, server=self._server, stream=stream.stopped_at)
            stream.waiting.clear()

    async def _run_stream(self, name: str, stream: _Stream) -> None:
        tickets: deque[tuple[StreamDriver, Arrival, DispatchTicket]] = deque()
        driver: StreamDriver | None = None
        try:
            while stream.waiting or tickets:
                while stream.waiting and not stream.is_stopped:
                    driver, arrival = stream.waiting[0]
                    if arrival.at_most_once and not await self._is_confirmed(arrival):
                        stream.waiting.popleft()
                        self._pass_over(driver, arrival)
                        continue
                    try:
                        ticket = self._dispatch(driver, arrival)
                    except LedgerBusy:
                        break
                    stream.waiting.popleft()
                    tickets.append((driver, arrival, ticket))
                if tickets:
                    driver, arrival, ticket = tickets.popleft()
                    report = await ticket.wait()
                    self._finish(stream, driver, arrival, report)
                    if arrival.place.foreign and not tickets and self._keeps(driver):
                        self._keeping.keep(driver.name, driver.stream.record)
                elif stream.is_stopped:
                    driver, arrival = stream.waiting.popleft()
                    self._skip_stopped(driver, arrival)
                else:
                    await anyio.sleep(BUSY_S)
        finally:
            stream.is_running = False
            if not stream.is_stopped:
                self._streams.pop(name, None)
            if driver is not None and driver.ended is not None and driver.kind is StreamKind.CALL:
                self.end(driver)

    def _dispatch(self, driver: StreamDriver, arrival: Arrival) -> DispatchTicket:
        place = self._keeping.event_place(arrival.place)
        if self._keeps(driver):
            self._keeping.begin(driver.name, arrival.place)
        elif driver.kind is StreamKind.CALL:
            self._last[driver.name] = arrival.place
        handler = self._handlers.find(arrival.method)
        delivery = Delivery(
            scope=self._scope,
            place=place,
            name=arrival.method,
            params=arrival.params if handler is not None else None,
            data=arrival.data,
        )
        return self._dispatcher.dispatch(delivery)

    def _finish(
        self, stream: _Stream, driver: StreamDriver, arrival: Arrival, report: DispatchReport
    ) -> None:
        is_behind = report.outcome is not OutcomeToken.NOT_APPLIED
        if is_behind and arrival.finish is not None:
            arrival.finish()
        if (report.ends_stream or not is_behind) and not stream.is_stopped:
            stream.stopped_at = arrival.place.stream
            self._on_stop(driver, report)
        elif not is_behind:
            self._skip_stopped(driver, arrival)

    def _skip_stopped(self, driver: StreamDriver, arrival: Arrival) -> None:
        # A call's own answer is still wanted, so that its stream must not fill up behind a stopped delivery;
        # the ledger's mark stays where the delivery stopped.
        if driver.kind is StreamKind.CALL and arrival.finish is not None:
            arrival.finish()

    def _pass_over(self, driver: StreamDriver, arrival: Arrival) -> None:
        if self._keeps(driver):
            self._keeping.pass_over(driver.name, arrival.place)
        if arrival.finish is not None:
            arrival.finish()

    async def _is_confirmed(self, arrival: Arrival) -> bool:
        handler = self._handlers.find(arrival.method)
        if handler is None or handler.kind is HandlerKind.IDEMPOTENT:
            return True
        return self._confirm is not None and await self._confirm(arrival)
