"""`ReplayEventStore`: one class for the SDK's majors 1 (from 1.23) and 2, and for the FastMCP of either.

It must never raise in a replay, never wait in `store_event`, and never read another session's stream.
"""

from __future__ import annotations

import logging
import secrets
import sys
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple

import anyio
from mcp.server.streamable_http import EventCallback, EventStore, StreamableHTTPServerTransport

from counterfoil.adapters.gateway.resuming.replies import error_of
from counterfoil.adapters.mcp_event_store.callers import Caller, find_caller
from counterfoil.adapters.mcp_event_store.messages import (
    answered_id,
    make_event,
    read_message,
    write_message,
)
from counterfoil.adapters.mcp_event_store.session import SessionStreams, read_events
from counterfoil.errors import CounterfoilError, ReaderTooSlow, SessionUnknown, TakenOver
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.model.verdicts import Resumed, ResumeVerdict
from counterfoil.native import Scope
from counterfoil.protocol.inband_error import InbandError, write_inband_error
from counterfoil.stores.replay.reader import Reader
from counterfoil.stores.replay.store import ReplayStore

_LOGGER = logging.getLogger("counterfoil.event_store")


class _Resumed(NamedTuple):
    """What the replay of this task ended with: the SDK primes the connection in the same task, later."""

    session: SessionStreams
    name: str
    position: str


_RESUMED: ContextVar[_Resumed | None] = ContextVar("counterfoil_resumed", default=None)


class ReplayEventStore(EventStore):
    """A `ReplayStore` as the SDK's event store: `server.streamable_http_app(event_store=...)`.

    Sessions are told apart by the transport that calls; with `session` every call belongs to that one.
    A cursor that cannot be continued is answered by the in-band JSON-RPC error to the request that it names,
    by a warning of the logger `counterfoil.event_store`, and by a count (`store.statistics().rows`).
    `on_verdict` is told every verdict.  Works under asyncio and trio.
    """

    def __init__(
        self,
        store: ReplayStore,
        *,
        session: str | None = None,
        on_verdict: Callable[[ResumeVerdict], None] | None = None,
    ) -> None:
        self.store = store
        #: Events that went out without an id, because there was no room for their stream.
        self.unresumable = 0
        self._on_verdict = on_verdict
        self._sessions: weakref.WeakKeyDictionary[StreamableHTTPServerTransport, SessionStreams] = (
            weakref.WeakKeyDictionary()
        )
        self._bound = _open_session(store, session) if session is not None else None

    def for_session(self, session: str) -> ReplayEventStore:
        """Return a view of one session, for an SDK manager that makes one for each of its transports."""
        return ReplayEventStore(self.store, session=session, on_verdict=self._on_verdict)

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Append one message, or prime a connection where it is None; returns the event id.

        Never waits.  Where the stream has no room the id is empty: the SDK then writes none, so that nobody
        resumes there in good faith.  Raises `SessionUnknown` where nothing tells whose the event is.
        """
        session = self._session_of(find_caller(sys._getframe()))
        try:
            if message is not None:
                return session.append(stream_id, write_message(message), answered_id(message))
            resumed = _RESUMED.get()
            if resumed is not None and resumed.session is session and resumed.name == stream_id:
                return resumed.position
            return session.prime(stream_id)
        except CounterfoilError as error:
            self.unresumable += 1
            _LOGGER.warning("an event has no id and cannot be resumed from: %s", error)
            return ""

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Replay all that was missed, or settle the call that the cursor names by the in-band error.

        Returns the SDK's name of the stream where the connection is to go on, None where it is to end.
        Raises nothing of its own.  May be cancelled between two events.
        """
        frame = sys._getframe()
        try:
            return await self._replay(frame, last_event_id, send_callback)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return None  # the client has gone
        except Exception:
            _LOGGER.exception("a resume failed, and its connection ends without an answer")
            return None

    async def _replay(self, frame: FrameType, last_event_id: str, send: EventCallback) -> str | None:
        caller = find_caller(frame)
        session = self._session_of(caller)
        with session.resume(last_event_id) as reader:
            self._tell(reader.verdict)
            replay = _Replay(
                session, reader, last_event_id, send, is_direct=caller is not None and caller.is_direct
            )
            if isinstance(reader.verdict, Resumed):
                name = await replay.send_missed()
            elif reader.stream is not None and reader.stream.kind == "standalone":
                name = replay.stay()
            else:
                name = await replay.send_answer_or_error()
        return name

    def _session_of(self, caller: Caller | None) -> SessionStreams:
        if self._bound is not None:
            return self._bound
        if caller is None:
            raise SessionUnknown(
                "no transport of the MCP SDK called the event store, so nothing says whose stream it is: "
                "pass ReplayEventStore(store, session=...) or event_store.for_session(...)"
            )
        session = self._sessions.get(caller.transport)
        if session is None:
            session = self._sessions[caller.transport] = _open_session(
                self.store, caller.transport.mcp_session_id
            )
            weakref.finalize(caller.transport, _close_session, session).atexit = False
        return session

    def _tell(self, verdict: ResumeVerdict) -> None:
        if not isinstance(verdict, Resumed):
            _LOGGER.warning("a resume was refused: %s, %s", type(verdict).__name__.lower(), verdict.why.value)
        if self._on_verdict is not None:
            self._on_verdict(verdict)


class _Replay:
    """One answer to a `Last-Event-ID`."""

    def __init__(
        self, session: SessionStreams, reader: Reader, asked: str, send: EventCallback, *, is_direct: bool
    ) -> None:
        self._session = session
        #: The last id that was handed out, else the one asked for.
        self._position = asked
        self._reader = reader
        self._send = send
        self._is_direct = is_direct
        self._name = session.name_of(reader.stream)

    async def send_missed(self) -> str | None:
        """Send the missed events; the connection goes on unless the call is answered by them."""
        has_answer = False
        if self._reader.is_attached:
            try:
                for event_id, data in read_events(self._reader):
                    message = read_message(data)
                    has_answer = has_answer or answered_id(message) is not None
                    await self._send(make_event(message, event_id))
                    self._position = event_id
            except ReaderTooSlow:
                return await self._send_error()
            except TakenOver:
                return self._end()
        return self._end() if has_answer else self.stay()

    async def send_answer_or_error(self) -> str | None:
        """Send the answer if it is stored; behind the loss nothing else may follow, so else the error."""
        events = []
        if self._reader.is_attached:
            events = [(read_message(data), event_id) for event_id, data in read_events(self._reader)]
        if not any(answered_id(message) is not None for message, _ in events):
            return await self._send_error()
        for message, event_id in events:
            await self._send(make_event(message, event_id))
            self._position = event_id
        return self._end()

    async def _send_error(self) -> str | None:
        """Settle the call that waits; without an id, so that no client asks again with it."""
        answer, token = self._reader.answer, self._reader.stream
        request_id = self._session.request_id_of(token)
        if answer is None or token is None or request_id is None:
            return None
        error = write_inband_error(self._error(request_id))
        if answer.settle == "append":
            self._session.settle(token, error)
        await self._send(make_event(read_message(error), None))
        return self._end()

    def _error(self, request_id: int | str) -> InbandError:
        answer, verdict = self._reader.answer, self._reader.verdict
        assert answer is not None
        if not isinstance(verdict, Resumed):
            return error_of(verdict, answer, request_id)
        return InbandError(
            request_id=request_id,
            why=Why.SLOW,
            executed=Executed.UNKNOWN,
            verdict=VerdictToken.GAP,
            next=Next.RECONCILE,
        )

    def stay(self) -> str | None:
        """Let the connection go on, primed with the position that was reached."""
        if self._name is not None:
            _RESUMED.set(_Resumed(self._session, self._name, self._position))
        return self._name

    def _end(self) -> str | None:
        """End the connection; a wrapper that buffers a replay (FastMCP's) drops it without a name."""
        return None if self._is_direct else self.stay()


def _open_session(store: ReplayStore, session: str | None) -> SessionStreams:
    # The front's sessions may share the store, and are others.
    name = session if session is not None else secrets.token_urlsafe(16)
    return SessionStreams(store, Scope(session=f"event-store {name}"))


def _close_session(session: SessionStreams) -> None:
    try:
        session.close()
    except CounterfoilError as error:
        _LOGGER.debug("a session could not be forgotten: %s", error)
