"""The requests of one connection that wait for their answers: sent, answered, settled, cancelled.

Each ends exactly once.  The connection hands it what its streams say; it judges nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc
import msgspec

from counterfoil.adapters.client.carrier import Carrier
from counterfoil.adapters.client.driver import StreamDriver
from counterfoil.adapters.client.messages import (
    Peer,
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
from counterfoil.model.stream import RequestRecord
from counterfoil.model.tokens import OutcomeToken, Why

#: How long the answer to a cancelled request is still waited for.
CANCEL_SETTLE_S = 5.0


class _Call:
    """One request: its ticket, and the stream that carries its answer."""

    __slots__ = ("driver", "ticket")

    def __init__(self, ticket: CallTicket) -> None:
        self.ticket = ticket
        self.driver: StreamDriver | None = None


class Calls:
    """The requests of one connection."""

    def __init__(self, carrier: Carrier, tasks: anyio.abc.TaskGroup, peer: Peer) -> None:
        self._carrier = carrier
        self._tasks = tasks
        self._peer = peer
        self._prefix = secrets.token_urlsafe(6)
        self._count = 0
        self._calls: dict[tuple[type, int | str], _Call] = {}
        self._closed: SessionOver | None = None

    @property
    def waiting(self) -> int:
        """How many requests have no outcome yet."""
        return len(self._calls)

    def submit(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        deadline_s: float,
        dropped_headers: frozenset[str] = frozenset(),
    ) -> CallTicket:
        """Send a request; raises SessionOver where there is no session to send it to."""
        if self._closed is not None:
            raise self._closed
        self._count += 1
        request_id = f"{self._prefix}-{self._count}"
        key = (str, request_id)
        call = _Call(CallTicket(request_id, cancel=lambda: self._cancel(key)))
        self._calls[key] = call
        extra: dict[str, str] = {}
        known = self._carrier.capabilities
        if known is not None and not known.has_sessions:
            params = stamp(params, self._carrier.revision, self._peer)
            extra = standing_headers(method, params)
        call.driver = self._carrier.open_call(
            RequestRecord(request_id=request_id, method=method),
            write_request(request_id, method, params),
            deadline=anyio.current_time() + deadline_s,
            extra_headers=extra,
            dropped_headers=dropped_headers,
        )
        return call.ticket

    # --- what streams say

    def answer(self, request_id: int | str, data: bytes) -> bool:
        """Settle a request with its response; False where none with this id waits."""
        call = self._calls.pop((type(request_id), request_id), None)
        if call is None:
            return False
        call.ticket.settle_answer(read_response(data, request_id))
        if (
            call.driver is not None
            and call.driver.ended is None
            and request_id in call.driver.stream.outstanding
        ):
            # Another stream of the session brought the answer: nothing more is wanted of its own.
            call.driver.abandon()
        return True

    def settle(self, driver: StreamDriver, request_id: int | str, outcome: Outcome) -> None:
        """End a request without its answer."""
        call = self._calls.pop((type(request_id), request_id), None)
        if call is not None:
            self._end(call, outcome)

    def close(self, over: SessionOver) -> None:
        """End everything: what may have been sent is indeterminate, and nothing more can be sent."""
        self._closed = self._closed or over
        calls, self._calls = self._calls, {}
        for call in calls.values():
            was_sent = call.driver is not None and call.driver.was_asked
            token = OutcomeToken.INDETERMINATE if was_sent else OutcomeToken.NOT_APPLIED
            self._end(call, Outcome(token=token, why=Why.CLOSED))

    def _end(self, call: _Call, outcome: Outcome) -> None:
        evidence = _evidence_of(call.driver, outcome)
        error = error_of(outcome, evidence, call.ticket.idempotency_key)
        call.ticket.settle(outcome.token, error=error)

    # --- cancelling

    def _cancel(self, key: tuple[type, int | str]) -> None:
        call = self._calls.get(key)
        if call is None or call.driver is None:
            return
        known = self._carrier.capabilities
        if not call.driver.was_asked:
            del self._calls[key]
            self._end(call, Outcome(token=OutcomeToken.NOT_APPLIED, why=Why.CANCELLED))
            call.driver.abandon()
        elif known is not None and known.disconnect_cancels:
            call.driver.abandon()
        else:
            self._tasks.start_soon(self._tell_cancelled, call.driver, call.ticket)

    async def _tell_cancelled(self, driver: StreamDriver, ticket: CallTicket) -> None:
        """Say so, and read on for a while: the answer may be on its way."""
        with anyio.move_on_after(CANCEL_SETTLE_S):
            with suppress(NotApplied, Indeterminate):
                await self._carrier.post(write_cancelled(ticket.request_id, "the caller stopped waiting"))
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
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return decoded.get("error") if isinstance(decoded, dict) else None
