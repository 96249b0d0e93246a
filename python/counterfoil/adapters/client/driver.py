"""Drives one `ClientStream` over HTTP: carries out its commands and tells it what happened, in one task.

It decides nothing: the stream does, and what the stream hands over goes to a sink.  A carrier runs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

import anyio

import counterfoil.protocol.client_stream.commands as do
import counterfoil.protocol.client_stream.inputs as inputs
from counterfoil.adapters.client.http_port import Exchange, HttpPort
from counterfoil.adapters.client.marks import Held, Marks
from counterfoil.adapters.client.wakeups import Wakeup, Wakeups, loop_clock
from counterfoil.errors import HttpFault
from counterfoil.model.stream import StreamRecord
from counterfoil.model.tokens import StreamKind, Why
from counterfoil.model.verdicts import Resumed, ResumeVerdict, Skipped
from counterfoil.protocol.client_stream import ClientStream
from counterfoil.protocol.client_stream.states import State

#: How long, and how much, is read behind an answer before the connection is closed instead of kept.
REST_S = 0.1
REST_BYTES = 4096
#: Likewise for the body of a refusal.
REFUSAL_S = 1.0
REFUSAL_BYTES = 65_536


class Sink(Protocol):
    """What a stream hands over; each call returns at once, and none may raise."""

    def deliver(self, driver: StreamDriver, event: do.Deliver, held: Held | None) -> None:
        """Take an event to dispatch; `held` is to be told when it is done."""
        ...

    def repeat(self, driver: StreamDriver, event: do.PassOver) -> None:
        """Take note of an event that came again."""
        ...

    def pass_over(self, driver: StreamDriver, event: do.PassOver) -> None:
        """Take note of an event that has a place in its stream and no effect."""
        ...

    def answer(self, driver: StreamDriver, answer: do.Answer) -> None: ...

    def settle(self, driver: StreamDriver, settled: do.Settle) -> None: ...

    def report(self, driver: StreamDriver, verdict: ResumeVerdict) -> None: ...

    def fault(self, driver: StreamDriver, told: do.TellFault | do.TellPending) -> None: ...

    def keep(self, driver: StreamDriver, record: StreamRecord) -> None: ...

    def end(self, driver: StreamDriver, end: do.End) -> None: ...

    async def wait_for_room(self) -> None:
        """Return when more may be read."""
        ...

    @property
    def has_room(self) -> bool: ...


class StreamDriver:
    """One stream and its connections, one at a time."""

    def __init__(
        self,
        stream: ClientStream,
        *,
        port: HttpPort,
        wakeups: Wakeups,
        sink: Sink,
        name: str,
        kind: StreamKind,
        body: bytes | None = None,
        extra_headers: Mapping[str, str] | None = None,
        dropped_headers: frozenset[str] = frozenset(),
    ) -> None:
        self.stream = stream
        #: The reader's own handle of the stream.
        self.name = name
        self.kind = kind
        #: The status of the last answer; None while there was none.
        self.status: int | None = None
        #: Headers of the last answer.
        self.headers: Mapping[str, str] = {}
        #: Headers of the answer to the request itself; None before it came.
        self.post_headers: Mapping[str, str] | None = None
        #: The body of a refused request, as far as it came.
        self.refusal = b""
        #: What ended the stream, once it has.
        self.ended: do.End | None = None
        #: How many connections were asked for.
        self.connections = 0
        self._port = port
        self._wakeups = wakeups
        self._wakeup = Wakeup(self._wake)
        self._sink = sink
        self._body = body
        self._extra_headers = dict(extra_headers or {})
        self._dropped_headers = dropped_headers
        self._marks = Marks(self._tell_processed)
        self._opening: do.Open | None = None
        self._scope: anyio.CancelScope | None = None
        self._woken = anyio.Event()
        self._end_event = anyio.Event()
        self._clock = loop_clock()
        self._through: int | None = None
        self._is_paused = False
        self._is_closed = False
        self._is_feeding = False
        self._has_cursor = stream.has_cursor
        self._waiting: deque[do.Command] = deque()

    # --- what others tell it

    def abandon(self) -> None:
        """Give the stream up: what waits on it ends."""
        self._tell(inputs.Abandoned())

    def accept_loss(self) -> None:
        """Begin the stream anew; raises StreamStateError where nothing was lost."""
        self._tell(inputs.LossAccepted())

    @property
    def is_lost(self) -> bool:
        """Whether the application has to decide what becomes of the stream."""
        return self.stream.state is State.LOST

    @property
    def was_asked(self) -> bool:
        """Whether any connection was asked for, so that the server may know of the request."""
        return self.connections > 0

    async def wait_until_ended(self) -> None:
        """Return once the stream has ended."""
        await self._end_event.wait()

    # --- the task

    async def run(self) -> None:
        """Run the stream to its end; cancelled, its connection is closed and it ends without a verdict."""
        if self.ended is not None:
            return
        self._tell(inputs.OpenRequested())
        try:
            while self.ended is None:
                opening, self._opening = self._opening, None
                if opening is not None:
                    await self._connect(opening)
                else:
                    await self._wait()
        finally:
            self._wakeups.forget(self._wakeup)

    async def _wait(self) -> None:
        await self._woken.wait()
        self._woken = anyio.Event()

    async def _connect(self, opening: do.Open) -> None:
        self._is_closed = False
        with anyio.CancelScope() as self._scope:
            try:
                await self._exchange(opening)
            except HttpFault as fault:
                self._tell_unless_closed(inputs.ConnectionFailed(sent=fault.sent))
        self._scope = None

    async def _exchange(self, opening: do.Open) -> None:
        self.connections += 1
        method = "GET" if opening.resumes else "POST"
        headers = {
            name: value for name, value in opening.headers.items() if name not in self._dropped_headers
        }
        headers.update(self._extra_headers)
        body = None
        if not opening.resumes:
            body = self._body
            headers["content-type"] = "application/json"
        async with self._port.exchange(method, headers, body) as exchange:
            self.status, self.headers = exchange.status, exchange.headers
            if body is not None:
                self.post_headers = exchange.headers
            if exchange.status >= 400 and body is not None:
                # What the server says of a refused request goes with the refusal, if it comes at once.
                with suppress(*exchange.faults):
                    self.refusal = await self._read_rest(exchange, REFUSAL_S, REFUSAL_BYTES)
            self._tell(inputs.HeadReceived(status=exchange.status, headers=_readable_headers(exchange)))
            is_clean = True
            try:
                await self._read_body(exchange)
            except exchange.faults:
                is_clean = False
            self._tell_unless_closed(inputs.BodyEnded(clean=is_clean))

    async def _read_body(self, exchange: Exchange) -> None:
        pieces = exchange.pieces
        while not self._is_closed and (chunk := await anext(pieces, None)):
            self._is_feeding = True
            self._tell(inputs.BytesReceived(chunk))
            self._is_feeding = False
            if self._is_paused or not self._sink.has_room:
                await self._wait_to_read()
        if self.ended is not None and self.ended.why is Why.ENDED:
            # What follows the answer, so that the connection serves the next request.
            await self._read_rest(exchange, REST_S, REST_BYTES)

    async def _read_rest(self, exchange: Exchange, seconds: float, size: int) -> bytes:
        rest = bytearray()
        with anyio.move_on_after(seconds):
            async for chunk in exchange.pieces:
                rest += chunk
                if len(rest) >= size:
                    break
        return bytes(rest[:size])

    async def _wait_to_read(self) -> None:
        while self._is_paused and not self._is_closed:
            await self._wait()
        if not self._sink.has_room:
            await self._sink.wait_for_room()

    # --- telling and carrying out

    def _tell(self, happened: inputs.Happened) -> None:
        # What carrying a command out tells the stream waits its turn, so that commands keep their order.
        waiting, now = self._waiting, self._clock()
        is_idle = not waiting
        if self._through is not None:
            through, self._through = self._through, None
            waiting.extend(self.stream.receive(inputs.EventsProcessed(through=through), now=now))
        waiting.extend(self.stream.receive(happened, now=now))
        if is_idle:
            while waiting:
                self._carry_out(waiting[0])
                waiting.popleft()
            if not self._has_cursor and self.stream.has_cursor and self.ended is None:
                # A restart can ask from here, which the record kept at the beginning could not.
                self._has_cursor = True
                self._sink.keep(self, self.stream.record)

    def _tell_unless_closed(self, happened: inputs.Happened) -> None:
        if not self._is_closed:
            self._tell(happened)

    def _tell_processed(self, through: int) -> None:
        # Told with whatever is told next: only a question needs it, or a reader that waits for room.
        if self.ended is not None:
            return
        if self._is_paused or not self._has_cursor:
            self._through = None
            self._tell(inputs.EventsProcessed(through=through))
        else:
            self._through = through

    def _wake(self) -> None:
        self._tell(inputs.TimePassed())

    def _carry_out(self, command: do.Command) -> None:
        match command:
            case do.Deliver():
                held = self._marks.add(command.place.position) if command.in_sequence else None
                self._sink.deliver(self, command, held)
            case do.PassOver():
                self._pass_over(command)
            case do.Answer():
                if command.place is not None:
                    self._marks.add(command.place.position).done()
                self._sink.answer(self, command)
            case do.Settle():
                self._sink.settle(self, command)
            case do.Report():
                if not isinstance(command.verdict, Resumed):
                    self._marks.clear()
                self._sink.report(self, command.verdict)
            case do.TellPending() | do.TellFault():
                self._sink.fault(self, command)
            case do.WakeAt():
                self._wakeups.plan(self._wakeup, command.at)
            case do.Keep():
                self._sink.keep(self, command.record)
            case do.PauseReading():
                self._is_paused = True
            case do.ResumeReading():
                self._is_paused = False
                self._woken.set()
            case do.Open():
                self._opening = command
                self._is_paused = False
                self._woken.set()
            case do.Close():
                self._is_closed = True
                self._woken.set()
                if self._scope is not None and not self._is_feeding:
                    self._scope.cancel()
            case do.End():
                self.ended = command
                self._end_event.set()
                self._woken.set()
                self._sink.end(self, command)

    def _pass_over(self, command: do.PassOver) -> None:
        if isinstance(command.judgement, Skipped):
            self._sink.pass_over(self, command)
            self._marks.add(command.place.position).done()
        else:
            # Its first copy is held, and says when it is done.
            self._sink.repeat(self, command)


def _readable_headers(exchange: Exchange) -> Mapping[str, str]:
    # A compressed body is one that this client did not ask for and does not read: a bound on compressed
    # bytes is none.  Without its type, the answer is a refusal like any other of the wrong type.
    if exchange.headers.get("content-encoding", "identity").strip().lower() in ("", "identity"):
        return exchange.headers
    return {name: value for name, value in exchange.headers.items() if name != "content-type"}
