"""A client's connection to one MCP server: requests that end, events only after a verdict, replies once.

It puts the parts together and gives what streams hand over to the part that it belongs to; users open it
with `connect`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.abc
import anyio.lowlevel

import counterfoil.protocol.client_stream.commands as do
from counterfoil.adapters.client.carrier import STANDALONE
from counterfoil.adapters.client.driver import StreamDriver
from counterfoil.adapters.client.handshake import ServerFacts
from counterfoil.adapters.client.http_port import HttpPort, open_port
from counterfoil.adapters.client.inbox import Arrival, Arrivals, Inbox
from counterfoil.adapters.client.keeping import SessionRecord
from counterfoil.adapters.client.marks import Held
from counterfoil.adapters.client.messages import Peer, read_params, split_batch, write_notification
from counterfoil.adapters.client.parts import Parts, make_parts, note_session, open_dispatcher, open_or_join
from counterfoil.adapters.client.settings import ConnectSettings
from counterfoil.adapters.client.strangers import Strangers
from counterfoil.adapters.client.tickets import CallTicket
from counterfoil.adapters.dispatcher import Dispatcher, DispatchReport
from counterfoil.errors import (
    ConnectionNotOpen,
    DeliveryStopped,
    NotApplied,
    SessionOver,
    StreamLost,
    TakenOver,
)
from counterfoil.handlers import Handlers
from counterfoil.model.stream import Place, StreamRecord
from counterfoil.model.tokens import StreamKind, Why
from counterfoil.model.verdicts import ResumeVerdict
from counterfoil.protocol.client_stream.envelope import read_envelope
from counterfoil.stores.ledger_interface import Ledger

if TYPE_CHECKING:
    import httpx2

#: How long a session's end may take when the connection is closed.
FAREWELL_S = 2.0


class Connection:
    """One session with one server, open while its `async with` block is.

    Every method belongs to the event loop that entered the block.
    """

    def __init__(
        self,
        url: str,
        settings: ConnectSettings,
        *,
        ledger: Ledger | None = None,
        handlers: Handlers | None = None,
        client: httpx2.AsyncClient | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url
        self._settings = settings
        self._ledger = ledger
        self._handlers = handlers
        self._client = client
        self._headers = dict(headers or {})
        self._peer = Peer(
            name=settings.client_name,
            version=settings.client_version,
            capabilities=settings.declared_capabilities(),
        )
        self._stack = AsyncExitStack()
        self._inbox = Inbox(bytes_max=settings.limits.inbox_bytes)
        self._over: SessionOver | None = None
        self._lost: dict[str, StreamDriver] = {}
        self._stopped: set[str] = set()
        self._strangers = Strangers()
        self._facts = ServerFacts()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._parts: Parts | None = None
        self._is_opening = False

    # --- opening and closing

    async def __aenter__(self) -> Self:
        try:
            port = await self._stack.enter_async_context(
                open_port(self._url, client=self._client, headers=self._headers)
            )
            ledger, dispatcher = await open_dispatcher(
                self._stack, self._settings, ledger=self._ledger, handlers=self._handlers
            )
            self._tasks = await anyio.create_task_group().__aenter__()
            await self._open(port, self._tasks, ledger, dispatcher)
        except BaseException as error:
            await self._leave(type(error), error, error.__traceback__)
            raise
        return self

    async def _open(
        self, port: HttpPort, tasks: anyio.abc.TaskGroup, ledger: Ledger, dispatcher: Dispatcher | None
    ) -> None:
        parts = make_parts(
            port,
            tasks,
            self,
            self._settings,
            self._peer,
            ledger=ledger,
            dispatcher=dispatcher,
            handlers=self._handlers,
            on_stop=self._stop_delivery,
            keeps=self._keeps,
            is_kept=self._ledger is not None,
        )
        self._parts = parts
        self._is_opening = True
        self._facts = await open_or_join(parts, self._settings, self._peer, keeps=self._ledger is not None)
        self._is_opening = False
        if self._ledger is not None:
            parts.keyed.when_learned = lambda: note_session(parts)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._over is None:
            await self._say_farewell()
        return await self._leave(kind, error, trace)

    async def _say_farewell(self) -> None:
        self._end(SessionOver("the connection was closed", why=str(Why.CLOSED)))
        carrier, wish = self._open_parts.carrier, self._settings.end_session
        is_ours = self._settings.session_id is None
        if carrier.session_id is not None and is_ours and (self._ledger is None if wish is None else wish):
            with anyio.move_on_after(FAREWELL_S, shield=True):
                await carrier.end_session()

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._end(SessionOver("the connection was closed", why=str(Why.CLOSED)))
        tasks, self._tasks = self._tasks, None
        try:
            if tasks is not None:
                tasks.cancel_scope.cancel()
                try:
                    await tasks.__aexit__(kind, error, trace)
                except BaseExceptionGroup as raised:
                    if error is None or raised.exceptions != (error,):
                        raise
        finally:
            await self._stack.__aexit__(kind, error, trace)
        return False

    @property
    def _open_parts(self) -> Parts:
        if self._parts is None:
            raise ConnectionNotOpen("the connection is not open: use `async with connect(...)`")
        return self._parts

    # --- what users call

    @property
    def session_id(self) -> str | None:
        """The session's id, to join it later; None where the server has none."""
        return self._open_parts.carrier.session_id

    @property
    def revision(self) -> str:
        """The MCP revision that was agreed on."""
        return self._open_parts.carrier.revision

    @property
    def server(self) -> ServerFacts:
        """What the server said of itself; empty for a session that was joined."""
        return self._facts

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, so that nothing more can be sent."""
        return self._over is not None

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        deadline_s: float = 60.0,
        may_repeat: bool = False,
    ) -> Any:
        """Send a request and return its result; `(await submit(...)).wait()`.

        Under an `idempotency_key` its intent is in the ledger before it is sent, and its outcome before it
        is told: the same key gives the same outcome again, in a later process too, and only NotApplied frees
        it.  A call that is lost is sent again, under a new id, only to a server that honours our keys, or
        with `may_repeat`, by which you say that running it twice does no harm.

        Raises RequestFailed for the server's own error, NotApplied where it certainly was not executed,
        Indeterminate where nobody can tell, all within `deadline_s`, each with its evidence; KeyConflict
        where the key stands for other arguments.  Cancelled, an unkeyed request is cancelled at the server;
        a keyed one goes on.
        """
        ticket = await self.submit(
            method,
            params,
            idempotency_key=idempotency_key,
            deadline_s=deadline_s,
            may_repeat=may_repeat,
        )
        return await ticket.wait()

    async def submit(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        deadline_s: float = 60.0,
        may_repeat: bool = False,
    ) -> CallTicket:
        """Send a request and return its ticket at once; raises SessionOver after the session's end."""
        await anyio.lowlevel.checkpoint()
        if idempotency_key is None:
            return self._open_parts.calls.submit(method, params, deadline_s=deadline_s)
        return self._open_parts.keyed.submit(
            method, params, idempotency_key, deadline_s=deadline_s, may_repeat=may_repeat
        )

    async def ping(self, *, deadline_s: float = 10.0) -> None:
        """Ask the server for a sign of life; raises as `request`."""
        await self.request("ping", deadline_s=deadline_s)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification; raises NotApplied or Indeterminate where the server did not take it."""
        if self._over is not None:
            raise self._over
        known = self._open_parts.carrier.capabilities
        if known is not None and not known.has_sessions:
            raise NotApplied(f"revision {known.revision} has no notifications from client to server")
        await self._open_parts.carrier.post(write_notification(method, params))

    def deliveries(self) -> Arrivals:
        """Iterate the events of all streams, inside `async with`; asking for the next finishes the last.

        Raises StreamLost from the iteration when the standalone stream is not continuous or has ended
        (iterating may go on), and SessionOver behind the last event of a session that ended by itself.
        """
        return self._inbox.read()

    def accept(self, stream: str = STANDALONE) -> None:
        """Go on with a stream that was lost or stopped: anew from what the server sends now, or behind the
        event at which its delivery ended.

        Call it once the state behind the stream has been reconciled.  Raises KeyError for a stream that
        waits for nothing.
        """
        if stream in self._lost:
            self._lost.pop(stream).accept_loss()
            return
        self._stopped.remove(stream)
        if self._tasks is not None:
            self._tasks.start_soon(self._go_on, stream)

    async def _go_on(self, stream: str) -> None:
        parts = self._open_parts
        if parts.dispatching is not None:
            parts.dispatching.reopen(stream)
        present = parts.carrier.streams.get(stream)
        if stream == STANDALONE and (present is None or present.ended is not None):
            parts.carrier.open_standalone(await parts.keeping.restore(stream))

    @property
    def waiting_streams(self) -> tuple[str, ...]:
        """The streams that wait for `accept`."""
        return (*self._lost, *self._stopped)

    async def run(self) -> None:
        """Wait until the session ends, while handlers do the work.

        Raises StreamLost or DeliveryStopped for a stream that waits for `accept` (call `run` again then),
        TakenOver for one that another reader has now, and SessionOver for a session that ended by itself.
        """
        await self._inbox.wait_for_end()

    # --- what streams hand over (`Sink`)

    @property
    def has_room(self) -> bool:
        """Whether streams may read on."""
        return self._inbox.has_room

    async def wait_for_room(self) -> None:
        """Return when they may."""
        await self._inbox.wait_for_room()

    def deliver(self, driver: StreamDriver, event: do.Deliver, held: Held | None) -> None:
        """Give an event to whom it is for."""
        if event.request_id is None and event.method is not None:
            self._deliver_notification(driver, event, held)
        elif event.method is None:
            self._deliver_parts(driver, event, held)
        else:
            finish = self._finisher(driver, event.place, held)
            assert event.request_id is not None
            self._open_parts.replies.take(event.request_id, event.method, event.data, event.place, finish)

    def _deliver_parts(self, driver: StreamDriver, event: do.Deliver, held: Held | None) -> None:
        """Take a response that its own stream did not wait for, or a batch."""
        parts = split_batch(event.data) if event.data.lstrip().startswith(b"[") else [event.data]
        for part in parts:
            envelope = read_envelope(part)
            for request_id in envelope.answers:
                self._open_parts.calls.answer(request_id, part)
            if envelope.method is not None and envelope.request_id is not None:
                self._open_parts.replies.take(envelope.request_id, envelope.method, part, event.place, None)
            elif envelope.method is not None:
                self._put(driver, event, envelope.method, part, None)
        finish = self._finisher(driver, event.place, held)
        if finish is not None:
            finish()

    def _deliver_notification(self, driver: StreamDriver, event: do.Deliver, held: Held | None) -> None:
        assert event.method is not None
        if event.method == "notifications/cancelled":
            params = read_params(event.data)
            self._open_parts.replies.cancel(params.get("requestId") if isinstance(params, dict) else None)
        if event.in_sequence and self._strangers.had(driver.name, event.place):
            # Delivered before, as the event of the stream that it belongs to.
            finish = self._finisher(driver, event.place, held)
            if finish is not None:
                finish()
            return
        self._put(driver, event, event.method, event.data, held)

    def _put(
        self, driver: StreamDriver, event: do.Deliver, method: str, data: bytes, held: Held | None
    ) -> None:
        dispatching = self._open_parts.dispatching
        # The ledger moves its mark itself with what it dispatches.
        done = None if held is None else held.done
        finish = done if dispatching is not None else self._finisher(driver, event.place, held)
        arrival = Arrival(
            driver.name,
            event.place,
            method,
            data,
            event.judgement,
            driver.stream.verdict,
            event.at_most_once,
            finish,
        )
        if dispatching is not None:
            dispatching.take(driver, arrival)
        else:
            self._inbox.put(arrival)

    def _finisher(self, driver: StreamDriver, place: Place, held: Held | None) -> Callable[[], None] | None:
        """Return what to call once an event is processed: the ledger's mark first, then the stream's."""
        if held is None or not self._keeps(driver):
            return None if held is None else held.done
        keeping = self._open_parts.keeping

        def finish() -> None:
            if self._keeps(driver):
                keeping.pass_over(driver.name, place)
            held.done()

        return finish

    def _keeps(self, driver: StreamDriver) -> bool:
        """Return whether a stream is kept beyond this process."""
        if self._ledger is None:
            return False
        return driver.kind is StreamKind.STANDALONE or self._open_parts.keyed.owns(driver)

    def _stop_delivery(self, driver: StreamDriver, report: DispatchReport) -> None:
        name = driver.name
        why = f"{report.outcome}, {report.why}"
        text = f"an event of {report.delivery.name} ended the delivery of {name!r}: {why}"
        if driver.kind is StreamKind.STANDALONE:
            self._stopped.add(name)
            driver.abandon()
        self._inbox.interrupt(DeliveryStopped(text, name, report))

    def pass_over(self, driver: StreamDriver, event: do.PassOver) -> None:
        """Take note of an event without effect."""
        if self._keeps(driver):
            self._open_parts.keeping.pass_over(driver.name, event.place)

    def repeat(self, driver: StreamDriver, event: do.PassOver) -> None:
        """Answer a server's request again if it came again."""
        self._open_parts.replies.repeat(event.place)

    def answer(self, driver: StreamDriver, answer: do.Answer) -> None:
        """Settle a request with its answer."""
        if answer.place is not None and self._keeps(driver):
            self._open_parts.keeping.pass_over(driver.name, answer.place)
        self._open_parts.calls.answer(answer.request_id, answer.data)

    def settle(self, driver: StreamDriver, settled: do.Settle) -> None:
        """Settle a request without one."""
        self._open_parts.calls.settle(settled.request_id, settled.outcome)

    def report(self, driver: StreamDriver, verdict: ResumeVerdict) -> None:
        """Tell the application a verdict."""
        if self._settings.on_verdict is not None:
            self._settings.on_verdict(driver.name, verdict)

    def fault(self, driver: StreamDriver, told: do.TellFault | do.TellPending) -> None:
        """Take note of a stream that is doubtful; its verdict or its end will say more."""

    def keep(self, driver: StreamDriver, record: StreamRecord) -> None:
        """Keep a stream's record, and tell of a stream that was lost."""
        if self._keeps(driver):
            self._open_parts.keeping.keep(driver.name, record)
        if driver.is_lost and driver.name not in self._lost:
            self._lost[driver.name] = driver
            verdict = driver.stream.verdict
            why = "" if verdict is None else f" ({verdict.why})"
            text = f"the stream {driver.name!r} is not the one that was read before{why}"
            self._inbox.interrupt(StreamLost(text, driver.name, verdict))

    def end(self, driver: StreamDriver, end: do.End) -> None:
        """Take note of a stream's end, which may be the session's."""
        parts = self._open_parts
        if not parts.keyed.owns(driver):
            parts.keeping.forget(driver.name)
            if parts.dispatching is not None and driver.kind is StreamKind.CALL:
                parts.dispatching.end(driver)
        if end.extent is do.Extent.SESSION and not self._is_opening:
            self._end(SessionOver(f"the session is over ({end.why})", why=str(end.why)))
        elif driver.kind is StreamKind.STANDALONE and self._is_news(driver, end):
            self._tell_end(driver, end)

    def _tell_end(self, driver: StreamDriver, end: do.End) -> None:
        if end.why is Why.SUPERSEDED:
            self._inbox.interrupt(TakenOver(f"another reader has taken the stream {driver.name!r} over"))
            return
        self._stopped.add(driver.name)
        text = f"the stream {driver.name!r} has ended ({end.why}), and nothing more of it will come"
        self._inbox.interrupt(StreamLost(text, driver.name, driver.stream.verdict))

    def _is_news(self, driver: StreamDriver, end: do.End) -> bool:
        """Return whether the application must be told of a standalone stream's end."""
        if self._over is not None or end.why in (Why.CANCELLED, Why.CLOSED):
            return False
        # A refusal of the very first question says that the server has no such stream, as many have not.
        return driver.stream.verdict is not None or end.why is not Why.STATUS

    def _end(self, over: SessionOver) -> None:
        if self._over is not None:
            return
        self._over = over
        if self._parts is not None:
            self._parts.calls.close(over)
        self._inbox.close(None if over.why == str(Why.CLOSED) else over)
        if over.why != str(Why.CLOSED) and self._parts is not None:
            for driver in list(self._parts.carrier.streams.values()):
                driver.abandon()
            if self._ledger is not None:
                self._parts.keeping.keep_session(SessionRecord(session_id=None, revision=self.revision))
