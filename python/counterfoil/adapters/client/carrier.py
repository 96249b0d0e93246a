"""One session with one server: opens its streams and posts messages, for whoever stands above.

It decides nothing and keeps no messages; the connection and the transport for SDK sessions use it.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping

import anyio
import anyio.abc
import msgspec

from counterfoil.adapters.client.driver import Sink, StreamDriver
from counterfoil.adapters.client.http_port import HttpPort
from counterfoil.adapters.client.wakeups import Wakeups
from counterfoil.decisions.reconnect import FULL as FULL_BUDGET
from counterfoil.decisions.reconnect import ReconnectLimits, Spent, after_failure
from counterfoil.errors import HttpFault, Indeterminate, NotApplied
from counterfoil.limits import Limits
from counterfoil.model.stream import RequestRecord, StreamRecord
from counterfoil.model.tokens import StreamKind
from counterfoil.protocol.client_stream import ClientStream
from counterfoil.protocol.client_stream.foreign_ids import Declared
from counterfoil.protocol.client_stream.settings import OnLostStream, OnUnverifiable, StreamSettings
from counterfoil.protocol.client_stream.statuses import is_not_applied
from counterfoil.protocol.revisions import Capabilities, capabilities_of

#: The standalone stream's own name; a session has one.
STANDALONE = "standalone"
#: How long an answer to a posted message may take; it has no body worth waiting for.
POST_S = 30.0


class StreamPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to every stream of a connection; see `StreamSettings`."""

    judge_within_s: float = 5.0
    declared: Declared = Declared()
    reconnect: ReconnectLimits = ReconnectLimits()
    limits: Limits = Limits()
    on_unverifiable: OnUnverifiable = OnUnverifiable.END_STREAM
    on_lost_stream: OnLostStream = OnLostStream.ASK


class Carrier:
    """The streams and posts of one session; `tasks` runs them."""

    def __init__(
        self, port: HttpPort, tasks: anyio.abc.TaskGroup, sink: Sink, *, policies: StreamPolicies
    ) -> None:
        self.revision = ""
        self.session_id: str | None = None
        self.principal: str | None = None
        self.streams: dict[str, StreamDriver] = {}
        self._port = port
        self._tasks = tasks
        self._sink = sink
        self._policies = policies
        self._wakeups = Wakeups()
        tasks.start_soon(self._wakeups.run)

    @property
    def server(self) -> str:
        """The server's URL, which names it in every record."""
        return self._port.url

    @property
    def capabilities(self) -> Capabilities | None:
        """What the revision of this session can do."""
        return capabilities_of(self.revision)

    # --- streams

    def open_call(
        self,
        request: RequestRecord,
        body: bytes,
        *,
        deadline: float | None,
        extra_headers: Mapping[str, str] | None = None,
        dropped_headers: frozenset[str] = frozenset(),
        name: str | None = None,
    ) -> StreamDriver:
        """Send a request and read its stream to its answer; what comes goes to the sink.

        `name` is the stream's own, where it must be found again after a restart.
        """
        return self._start(
            name or f"call-{request.request_id}",
            StreamKind.CALL,
            request=request,
            deadline=deadline,
            body=body,
            extra_headers=extra_headers,
            dropped_headers=dropped_headers,
        )

    def open_standalone(self, record: StreamRecord | None = None) -> StreamDriver:
        """Open the session's standalone stream, or go on with it from a record."""
        return self._start(STANDALONE, StreamKind.STANDALONE, record=record)

    def continue_call(self, record: StreamRecord, *, deadline: float) -> StreamDriver:
        """Go on with a call's stream from a record; its request is not sent again."""
        return self._start(
            record.stream, StreamKind.CALL, record=record, request=record.request, deadline=deadline
        )

    def _start(
        self,
        name: str,
        kind: StreamKind,
        *,
        record: StreamRecord | None = None,
        request: RequestRecord | None = None,
        deadline: float | None = None,
        body: bytes | None = None,
        extra_headers: Mapping[str, str] | None = None,
        dropped_headers: frozenset[str] = frozenset(),
    ) -> StreamDriver:
        policies = self._policies
        settings = StreamSettings(
            server=self.server,
            stream=name,
            kind=kind,
            revision=self.revision,
            session_id=self.session_id,
            principal=self.principal,
            request=request,
            deadline=deadline,
            judge_within=policies.judge_within_s,
            declared=policies.declared,
            reconnect=policies.reconnect,
            limits=policies.limits,
            on_unverifiable=policies.on_unverifiable,
            on_lost_stream=policies.on_lost_stream,
        )
        stream = ClientStream(settings, mint_epoch=_mint_epoch, jitter=random.random, record=record)
        driver = StreamDriver(
            stream,
            port=self._port,
            wakeups=self._wakeups,
            sink=self._sink,
            name=name,
            kind=kind,
            body=body,
            extra_headers=extra_headers,
            dropped_headers=dropped_headers,
        )
        self.streams[name] = driver
        self._tasks.start_soon(self._run, driver)
        return driver

    async def _run(self, driver: StreamDriver) -> None:
        try:
            await driver.run()
        finally:
            if self.streams.get(driver.name) is driver:
                del self.streams[driver.name]

    # --- posts

    async def post(self, body: bytes, *, extra_headers: Mapping[str, str] | None = None) -> int:
        """POST a notification or a response and return the status of the answer.

        Raises NotApplied where it certainly did not arrive, Indeterminate where it may have.
        """
        headers = {**self._session_headers(), **(extra_headers or {}), "content-type": "application/json"}
        headers["accept"] = "application/json, text/event-stream"
        with anyio.move_on_after(POST_S):
            try:
                async with self._port.exchange("POST", headers, body) as exchange:
                    has_retry_after = "retry-after" in exchange.headers
                    status = exchange.status
            except HttpFault as fault:
                if fault.sent:
                    raise Indeterminate(f"a posted message may not have arrived: {fault}") from fault
                raise NotApplied(f"a message could not be posted: {fault}") from fault
            if 200 <= status < 300:
                return status
            if is_not_applied(status, has_retry_after=has_retry_after):
                raise NotApplied(f"the server refused a message with status {status}", status)
            raise Indeterminate(f"the server answered a message with status {status}", status)
        raise Indeterminate(f"a posted message was not answered within {POST_S:.0f} s")

    async def post_until_taken(self, body: bytes) -> bool:
        """POST until the server takes it; False once the budget is gone, or the server refuses for good."""
        budget = FULL_BUDGET
        while True:
            try:
                await self.post(body)
                return True
            except (NotApplied, Indeterminate) as error:
                if isinstance(error, NotApplied) and error.evidence not in (None, 429, 503):
                    return False
            planned = after_failure(
                budget,
                limits=self._policies.reconnect,
                now=anyio.current_time(),
                jitter=random.random(),
            )
            if isinstance(planned, Spent):
                return False
            budget = planned.budget
            await anyio.sleep_until(planned.at)

    async def end_session(self) -> None:
        """Tell the server that the session is over; what it answers does not matter."""
        try:
            async with self._port.exchange("DELETE", self._session_headers()):
                pass
        except HttpFault:
            return

    def _session_headers(self) -> dict[str, str]:
        headers = {"accept-encoding": "identity"}
        if self.session_id is not None:
            headers["mcp-session-id"] = self.session_id
        known = self.capabilities
        if known is None or known.has_revision_header:
            headers["mcp-protocol-version"] = self.revision
        return headers


def _mint_epoch() -> str:
    return secrets.token_urlsafe(9)
