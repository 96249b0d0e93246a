"""The requests of one connection that wait for their answers: sent, answered, settled, cancelled.

Each ends exactly once.  The connection hands it what its streams say; it judges nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc
import msgspec

from counterfoil.adapters.client.carrier import Carrier
from counterfoil.adapters.client.driver import StreamDriver
from counterfoil.adapters.client.messages import (
    Peer,
    Response,
    read_response,
    stamp,
    standing_headers,
    write_cancelled,
    write_request,
)
from counterfoil.adapters.client.tickets import CallEvidence, CallTicket, error_of
from counterfoil.errors import Indeterminate, NotApplied, SessionOver
from counterfoil.model.evidence import Evidence
from counterfoil.model.outcomes import Outcome
from counterfoil.model.stream import RequestRecord, StreamRecord
from counterfoil.model.tokens import OutcomeToken, Why
from counterfoil.protocol.unreadable import UNREADABLE

#: How long the answer to a cancelled request is still waited for.
CANCEL_SETTLE_S = 5.0


class Call:
    """One request on its way: what is sent, its ticket, and the stream that carries its answer.

    `end` takes its response, or the outcome without one; it is called once per sending.
    """

    __slots__ = (
        "deadline",
        "driver",
        "dropped_headers",
        "end",
        "method",
        "name",
        "params",
        "record",
        "ticket",
    )

    def __init__(
        self,
        ticket: CallTicket,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        deadline: float,
        record: RequestRecord,
        name: str | None = None,
        dropped_headers: frozenset[str] = frozenset(),
    ) -> None:
        self.ticket = ticket
        self.method = method
        self.params = params
        self.deadline = deadline
        self.record = record
        self.name = name
        self.dropped_headers = dropped_headers
        self.driver: StreamDriver | None = None
        self.end: Callable[[Response | None, Outcome | None], None] = self.conclude

    def conclude(self, response: Response | None, outcome: Outcome | None) -> None:
        """Settle the ticket."""
        if outcome is None:
            self.ticket.settle_answer(response)
        else:
            evidence = _evidence_of(self.driver, outcome)
            error = error_of(outcome, evidence, self.ticket.idempotency_key)
            self.ticket.settle(outcome.token, error=error)


class Calls:
    """The requests of one connection."""

    def __init__(self, carrier: Carrier, tasks: anyio.abc.TaskGroup, peer: Peer) -> None:
        self._carrier = carrier
        self._tasks = tasks
        self._peer = peer
        self._prefix = secrets.token_urlsafe(6)
        self._count = 0
        self._calls: dict[tuple[type, int | str], Call] = {}
        self._closed: SessionOver | None = None

    def check_open(self) -> None:
        """Raise SessionOver where there is no session to send anything to."""
        if self._closed is not None:
            raise self._closed

    def mint_id(self) -> str:
        """Return a request id that no other process uses."""
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def submit(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        deadline_s: float,
        dropped_headers: frozenset[str] = frozenset(),
    ) -> CallTicket:
        """Send a request; raises SessionOver where there is no session to send it to."""
        self.check_open()
        request_id = self.mint_id()
        call = Call(
            CallTicket(request_id, cancel=lambda: self.cancel(call)),
            method,
            params,
            deadline=anyio.current_time() + deadline_s,
            record=RequestRecord(request_id=request_id, method=method),
            dropped_headers=dropped_headers,
        )
        self.send(call)
        return call.ticket

    def send(self, call: Call) -> None:
        """Send a call under the id of its record."""
        request_id = call.record.request_id
        self._calls[type(request_id), request_id] = call
        params, extra = call.params, {}
        known = self._carrier.capabilities
        if known is not None and not known.has_sessions:
            params = stamp(params, self._carrier.revision, self._peer)
            extra = standing_headers(call.method, params)
        call.driver = self._carrier.open_call(
            call.record,
            write_request(request_id, call.method, params),
            deadline=call.deadline,
            extra_headers=extra,
            dropped_headers=call.dropped_headers,
            name=call.name,
        )

    def resume(self, call: Call, record: StreamRecord) -> None:
        """Read on for the answer to a call that an earlier process sent."""
        request_id = call.record.request_id
        self._calls[type(request_id), request_id] = call
        call.driver = self._carrier.continue_call(record, deadline=call.deadline)

    # --- what streams say

    def answer(self, request_id: int | str, data: bytes) -> bool:
        """Settle a request with its response; False where none with this id waits."""
        call = self._calls.pop((type(request_id), request_id), None)
        if call is None:
            return False
        driver = call.driver
        if driver is not None and driver.ended is None and request_id in driver.stream.outstanding:
            # Another stream of the session brought the answer: nothing more is wanted of its own.
            driver.abandon()
        call.end(read_response(data, request_id), None)
        return True

    def settle(self, request_id: int | str, outcome: Outcome) -> None:
        """End a request without its answer."""
        call = self._calls.pop((type(request_id), request_id), None)
        if call is not None:
            call.end(None, outcome)

    def close(self, over: SessionOver) -> None:
        """End everything: what may have been sent is indeterminate, and nothing more can be sent."""
        self._closed = self._closed or over
        calls, self._calls = self._calls, {}
        for call in calls.values():
            was_sent = call.driver is not None and call.driver.was_asked
            token = OutcomeToken.INDETERMINATE if was_sent else OutcomeToken.NOT_APPLIED
            call.end(None, Outcome(token=token, why=Why.CLOSED))

    # --- cancelling

    def cancel(self, call: Call) -> None:
        """Cancel a call that was sent; the server is told in the way of its revision."""
        driver = call.driver
        if (
            driver is None
            or self._calls.get((type(call.record.request_id), call.record.request_id)) is not call
        ):
            return
        known = self._carrier.capabilities
        if not driver.was_asked:
            self.settle(call.record.request_id, Outcome(token=OutcomeToken.NOT_APPLIED, why=Why.CANCELLED))
            driver.abandon()
        elif known is not None and known.disconnect_cancels:
            driver.abandon()
        else:
            self._tasks.start_soon(self._tell_cancelled, driver, call.record.request_id)

    async def _tell_cancelled(self, driver: StreamDriver, request_id: int | str) -> None:
        """Say so, and read on for a while: the answer may be on its way."""
        with anyio.move_on_after(CANCEL_SETTLE_S):
            with suppress(NotApplied, Indeterminate):
                await self._carrier.post(write_cancelled(request_id, "the caller stopped waiting"))
            await driver.wait_until_ended()
        driver.abandon()


def _evidence_of(driver: StreamDriver | None, outcome: Outcome) -> CallEvidence:
    if driver is None:
        return CallEvidence(why=outcome.why)
    return CallEvidence(
        why=outcome.why,
        status=driver.status,
        connections=driver.connections,
        verdict=_verdict_evidence(driver, outcome),
        refusal=_refusal_of(driver.refusal),
    )


def _verdict_evidence(driver: StreamDriver, outcome: Outcome) -> Evidence | None:
    if outcome.evidence is not None:
        return outcome.evidence
    verdict = driver.stream.verdict
    return None if verdict is None else verdict.evidence


def _refusal_of(body: bytes) -> Any:
    if not body:
        return None
    try:
        decoded = msgspec.json.decode(body)
    except UNREADABLE:
        return None
    return decoded.get("error") if isinstance(decoded, dict) else None
