"""A transport for the official SDK's own `ClientSession`, 1.x and 2.x: same session, safe streams underneath.

Messages pass as the session wrote them; what it would wait for in vain ends in a typed JSON-RPC error.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio
import anyio.abc
import msgspec

import counterfoil.protocol.client_stream.commands as do
from counterfoil.adapters.client.carrier import STANDALONE, Carrier, StreamPolicies
from counterfoil.adapters.client.connection import FAREWELL_S
from counterfoil.adapters.client.driver import StreamDriver
from counterfoil.adapters.client.http_port import open_port
from counterfoil.adapters.client.marks import Held
from counterfoil.adapters.client.settings import VerdictListener
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.errors import Indeterminate, NotApplied
from counterfoil.limits import Limits
from counterfoil.model.stream import RequestRecord, StreamRecord
from counterfoil.model.tokens import Executed, OutcomeToken, Why
from counterfoil.model.verdicts import ResumeVerdict
from counterfoil.protocol.client_stream.settings import OnLostStream, OnUnverifiable
from counterfoil.protocol.inband_error import InbandError, write_inband_error
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS, capabilities_of

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger("counterfoil.client")
_BEFORE_NEGOTIATION = frozenset({"mcp-protocol-version"})
#: How long a request may wait that its session sets no limit for.
REQUEST_S = 24 * 3600.0


class _Message(msgspec.Struct):
    method: str | None = None
    id: int | str | None = None
    params: Any = None
    result: Any = None


class _Outgoing:
    """What goes up to the session, in order; an event counts as processed once the session has taken it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size = 0
        self._waiting: deque[tuple[bytes, Callable[[], None] | None]] = deque()
        self._changed = anyio.Event()
        self._room = anyio.Event()

    @property
    def has_room(self) -> bool:
        return self._size < self._bytes_max

    async def wait_for_room(self) -> None:
        while not self.has_room:
            self._room = anyio.Event()
            await self._room.wait()

    def put(self, data: bytes, finish: Callable[[], None] | None = None) -> None:
        self._waiting.append((data, finish))
        self._size += len(data)
        self._changed.set()

    async def take(self) -> tuple[bytes, Callable[[], None] | None]:
        while not self._waiting:
            self._changed = anyio.Event()
            await self._changed.wait()
        data, finish = self._waiting.popleft()
        self._size -= len(data)
        self._room.set()
        return data, finish


class _Transport:
    """Carries one session's messages; it is the sink of its streams."""

    def __init__(self, limits: Limits, on_verdict: VerdictListener | None) -> None:
        self.outgoing = _Outgoing(limits.inbox_bytes)
        self.carrier: Carrier
        self._on_verdict = on_verdict
        self._initialize: int | str | None = None

    # --- from the session

    async def send(self, data: bytes, headers: Mapping[str, str], tasks: anyio.abc.TaskGroup) -> None:
        """Send one message of the session."""
        message = msgspec.json.decode(data, type=_Message)
        if message.method is not None and message.id is not None:
            self._send_request(message.method, message.id, message, data, headers)
        elif message.method == "notifications/cancelled" and self._closes_to_cancel:
            self._abandon(message.params)
        elif message.method is None:
            tasks.start_soon(self.carrier.post_until_taken, data)
        else:
            await self._post(data)
            if message.method == "notifications/initialized":
                self.carrier.open_standalone()

    @property
    def _closes_to_cancel(self) -> bool:
        known = self.carrier.capabilities
        return known is not None and known.disconnect_cancels

    def _send_request(
        self, method: str, request_id: int | str, message: _Message, data: bytes, headers: Mapping[str, str]
    ) -> None:
        dropped: frozenset[str] = frozenset()
        if method == "initialize":
            self._initialize = request_id
            offered = message.params.get("protocolVersion") if isinstance(message.params, dict) else None
            is_known = isinstance(offered, str) and capabilities_of(offered) is not None
            self.carrier.revision = offered if is_known and isinstance(offered, str) else _LATEST
            dropped = _BEFORE_NEGOTIATION
        else:
            self.carrier.revision = headers.get("mcp-protocol-version", self.carrier.revision)
        self.carrier.open_call(
            RequestRecord(request_id=request_id, method=method),
            data,
            deadline=anyio.current_time() + REQUEST_S,
            extra_headers=headers,
            dropped_headers=dropped,
        )

    async def _post(self, data: bytes) -> None:
        try:
            await self.carrier.post(data)
        except (NotApplied, Indeterminate) as error:
            logger.warning("a notification did not reach the server: %s", error)

    def _abandon(self, params: Any) -> None:
        request_id = params.get("requestId") if isinstance(params, dict) else None
        driver = self.carrier.streams.get(f"call-{request_id}")
        if driver is not None:
            driver.abandon()

    # --- from the streams (`Sink`)

    @property
    def has_room(self) -> bool:
        return self.outgoing.has_room

    async def wait_for_room(self) -> None:
        await self.outgoing.wait_for_room()

    def deliver(self, driver: StreamDriver, event: do.Deliver, held: Held | None) -> None:
        self.outgoing.put(event.data, None if held is None else held.done)

    def repeat(self, driver: StreamDriver, event: do.PassOver) -> None:
        """The session has it already."""

    def pass_over(self, driver: StreamDriver, event: do.PassOver) -> None:
        """The session has no use for it."""

    def answer(self, driver: StreamDriver, answer: do.Answer) -> None:
        if answer.request_id == self._initialize:
            self._initialize = None
            self._take_handshake(driver, answer.data)
        self.outgoing.put(answer.data)

    def _take_handshake(self, driver: StreamDriver, data: bytes) -> None:
        result = msgspec.json.decode(data, type=_Message).result
        spoken = result.get("protocolVersion") if isinstance(result, dict) else None
        if isinstance(spoken, str):
            self.carrier.revision = spoken
        self.carrier.session_id = driver.stream.session_id

    def settle(self, driver: StreamDriver, settled: do.Settle) -> None:
        why = settled.outcome.why or Why.SIGNALLED
        if why is Why.CANCELLED:
            return
        is_certain = settled.outcome.token is OutcomeToken.NOT_APPLIED
        error = InbandError(
            request_id=settled.request_id, why=why, executed=Executed.NO if is_certain else Executed.UNKNOWN
        )
        self.outgoing.put(write_inband_error(error))

    def report(self, driver: StreamDriver, verdict: ResumeVerdict) -> None:
        if self._on_verdict is not None:
            self._on_verdict(driver.name, verdict)

    def fault(self, driver: StreamDriver, told: do.TellFault | do.TellPending) -> None:
        """Its verdict or its end will say more."""

    def keep(self, driver: StreamDriver, record: StreamRecord) -> None:
        if driver.name == STANDALONE and driver.is_lost:
            logger.warning("the standalone stream is not continuous, and is not read any more")

    def end(self, driver: StreamDriver, end: do.End) -> None:
        """Requests learn of it by their own ends."""


_LATEST = LAST_WITH_SESSIONS.revision


@asynccontextmanager
async def resumable_client(
    url: str,
    *,
    http_client: httpx2.AsyncClient | None = None,
    headers: Mapping[str, str] | None = None,
    terminate_on_close: bool = True,
    on_verdict: VerdictListener | None = None,
    on_unverifiable: Literal["end_stream", "at_most_once"] = "end_stream",
    on_lost_stream: Literal["ask", "accept"] = "accept",
    reconnect: ReconnectLimits | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[tuple[Any, ...]]:
    """Take the place of the SDK's `streamable_http_client`: same streams for the same `ClientSession`.

    Yields `(read, write)` under SDK 2.x, `(read, write, get_session_id)` under 1.x.  Streams that break are
    resumed, on evidence only; a request whose answer cannot come ends at once in a JSON-RPC error whose
    `data["io.counterfoil"]` says why and whether it was executed.  A session has no means to accept a loss:
    a lost standalone stream begins anew by default, and `on_verdict` is told; with `on_lost_stream="ask"` it
    is not read any more.  Needs the extras `http` and `mcp`.
    """
    policies = StreamPolicies(
        limits=limits or Limits(),
        reconnect=reconnect or ReconnectLimits(),
        on_unverifiable=OnUnverifiable(on_unverifiable),
        on_lost_stream=OnLostStream(on_lost_stream),
    )
    transport = _Transport(policies.limits, on_verdict)
    to_session, read = anyio.create_memory_object_stream[Any](0)
    write, from_session = anyio.create_memory_object_stream[Any](0)
    async with (
        open_port(url, client=http_client, headers=headers or {}) as port,
        read,
        write,
        to_session,
        from_session,
        anyio.create_task_group() as tasks,
    ):
        transport.carrier = carrier = Carrier(port, tasks, transport, policies=policies)
        tasks.start_soon(_pump_up, transport, to_session)
        tasks.start_soon(_pump_down, transport, from_session, tasks)
        try:
            if _is_first_major():
                yield read, write, lambda: carrier.session_id
            else:
                yield read, write
        finally:
            if terminate_on_close and carrier.session_id is not None:
                with anyio.move_on_after(FAREWELL_S, shield=True):
                    await carrier.end_session()
            tasks.cancel_scope.cancel()


async def _pump_up(transport: _Transport, to_session: anyio.abc.ObjectSendStream[Any]) -> None:
    from mcp.shared.message import SessionMessage

    parse = _parser()
    while True:
        data, finish = await transport.outgoing.take()
        try:
            message: Any = SessionMessage(parse(data))
        except Exception as error:  # the SDK's own validation; its session takes exceptions as such
            message = error
        try:
            await to_session.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        if finish is not None:
            finish()


async def _pump_down(
    transport: _Transport, from_session: anyio.abc.ObjectReceiveStream[Any], tasks: anyio.abc.TaskGroup
) -> None:
    async for sent in from_session:
        headers = getattr(sent.metadata, "headers", None) or {}
        data = sent.message.model_dump_json(by_alias=True, exclude_none=True).encode()
        await transport.send(data, {name.lower(): value for name, value in headers.items()}, tasks)


def _is_first_major() -> bool:
    return importlib.metadata.version("mcp").startswith("1.")


def _parser() -> Callable[[bytes], Any]:
    if _is_first_major():
        first_major: Any = importlib.import_module("mcp.types")
        return cast("Callable[[bytes], Any]", first_major.JSONRPCMessage.model_validate_json)
    from mcp_types import jsonrpc_message_adapter

    return lambda data: jsonrpc_message_adapter.validate_json(data, by_name=False)
