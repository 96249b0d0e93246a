"""Calls under an idempotency key: intent before they are sent, outcome in the ledger before it is told.

A lost one is sent again only to a server that honours our keys, or where the caller said that it may be.
The connection makes them; `Calls` sends them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.abc
import msgspec

from counterfoil.adapters.client.calls import Call, Calls
from counterfoil.adapters.client.driver import StreamDriver
from counterfoil.adapters.client.keeping import Keeping
from counterfoil.adapters.client.keys import add_key, make_intent, stream_name, wire_key
from counterfoil.adapters.client.messages import ErrorBody, Response, read_error
from counterfoil.adapters.client.tickets import CallEvidence, CallTicket
from counterfoil.decisions.reconnect import FULL as FULL_BUDGET
from counterfoil.decisions.reconnect import Budget, ReconnectLimits, Spent, after_failure
from counterfoil.errors import (
    ContinuityError,
    Indeterminate,
    KeyConflict,
    LedgerError,
    NotApplied,
    RequestFailed,
)
from counterfoil.model.ledger_keys import CallKey
from counterfoil.model.ledger_rows import LedgerRow, RowKind
from counterfoil.model.ledger_verdicts import Asked, ClaimAnswer, Claimed, Conflict, Expired, Known, Running
from counterfoil.model.outcomes import Outcome
from counterfoil.model.stream import RequestRecord
from counterfoil.model.tokens import OutcomeToken, Why
from counterfoil.native import Scope
from counterfoil.protocol.continuity import HEADER, read_claim
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.protocol.unreadable import UNREADABLE
from counterfoil.stores.ledger_interface import Ledger
from counterfoil.stores.tickets import Ticket

#: Reasons after which another sending would be pointless, or would not be what was asked for.
_FINAL_WHYS = frozenset(
    {Why.DEADLINE, Why.CANCELLED, Why.CLOSED, Why.SETTLED, Why.EXPIRED, Why.ADOPTED, Why.SESSION}
)
#: How long the ledger may take before an answer is given to its caller without it.
LEDGER_S = 5.0
_LOOK_S = 0.05
#: How long the answer to a call of an earlier process is waited for.
RESTORED_S = 60.0
_CONFLICT = "this idempotency key stands for a call with other arguments: nothing was sent"


class KeyedCall:
    """One keyed call: its intent, and where it stands in the ledger."""

    __slots__ = ("budget", "call", "claimed", "intent", "is_restored", "may_repeat", "scope")

    def __init__(self, call: Call, intent: Intent, *, may_repeat: bool, is_restored: bool = False) -> None:
        self.call = call
        self.intent = intent
        self.may_repeat = may_repeat
        self.is_restored = is_restored
        self.claimed: Claimed | None = None
        self.budget: Budget = FULL_BUDGET
        self.scope = anyio.CancelScope()


class KeyedCalls:
    """The keyed calls of one connection, by key.

    `honours_keys` is what the server last said: it offered to honour keys, or acknowledged one.
    """

    def __init__(
        self,
        calls: Calls,
        ledger: Ledger,
        keeping: Keeping,
        tasks: anyio.abc.TaskGroup,
        *,
        scope: Scope,
        server: str,
        reconnect: ReconnectLimits,
    ) -> None:
        self.honours_keys = False
        #: Called when that has changed.
        self.when_learned: Callable[[], None] = lambda: None
        self._calls = calls
        self._ledger = ledger
        self._keeping = keeping
        self._tasks = tasks
        self._scope = scope
        self._server = server
        self._reconnect = reconnect
        self._living: dict[str, KeyedCall] = {}
        self._names: set[str] = set()

    def submit(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        key: str,
        *,
        deadline_s: float,
        may_repeat: bool,
    ) -> CallTicket:
        """Give the ticket of a call under its key, at once; what its key already stands for is told by it."""
        self._calls.check_open()
        intent = make_intent(self._scope, self._server, key, method, params, honours_keys=self.honours_keys)
        keyed = self._make(
            method, add_key(params, wire_key(self._ledger.secret, self._server, key)), key, intent, deadline_s
        )
        keyed.may_repeat = may_repeat
        self._tasks.start_soon(self._run, keyed, key)
        return keyed.call.ticket

    def _make(
        self, method: str, params: Mapping[str, Any] | None, key: str, intent: Intent, deadline_s: float
    ) -> KeyedCall:
        request_id = self._calls.mint_id()
        call = Call(
            CallTicket(request_id, cancel=lambda: self._cancel(keyed), idempotency_key=key),
            method,
            params,
            deadline=anyio.current_time() + deadline_s,
            record=RequestRecord(
                request_id=request_id, method=method, idempotency_key=key, fingerprint=intent.fingerprint
            ),
            name=stream_name(self._scope, self._server, key),
        )
        call.ticket.survives_waiters = True
        keyed = KeyedCall(call, intent, may_repeat=False)
        call.end = partial(self._end, keyed)
        return keyed

    def note_answer(self, headers: Mapping[str, str], *, is_keyed: bool) -> None:
        """Learn whether the server honours keys, from the head of an answer (decision L12)."""
        try:
            claim = read_claim(headers[HEADER.lower()]) if HEADER.lower() in headers else None
        except ContinuityError:
            claim = None
        honours = (claim is not None and claim.call is not None) or (self.honours_keys and not is_keyed)
        if honours is not self.honours_keys:
            self.honours_keys = honours
            self.when_learned()

    def owns(self, driver: StreamDriver) -> bool:
        """Return whether a stream is that of a keyed call."""
        return driver.name in self._names

    # --- before it is sent

    async def _run(self, keyed: KeyedCall, key: str) -> None:
        keyed.scope.deadline = keyed.call.deadline
        try:
            with keyed.scope:
                await self._join_living(keyed, key)
                if keyed.call.ticket.outcome == "pending":
                    await self._claim(keyed)
        except BaseException:
            self._withdraw(keyed)
            raise
        if keyed.call.ticket.outcome != "pending":
            return
        if keyed.claimed is None or keyed.scope.cancel_called:
            self._withdraw(keyed)
            return
        self._hold(key, keyed)
        try:
            self._calls.check_open()
        except NotApplied:
            self._end(keyed, None, Outcome(token=OutcomeToken.NOT_APPLIED, why=Why.SESSION))
            return
        self._calls.send(keyed.call)

    async def _join_living(self, keyed: KeyedCall, key: str) -> None:
        """Wait for the call that this process has under the key already, and take its end if it has one."""
        living = self._living.get(key)
        if living is None:
            return
        if living.intent.fingerprint != keyed.intent.fingerprint:
            _refuse(keyed, KeyConflict(_CONFLICT))
            return
        await living.call.ticket.wait_settled()
        if not living.is_restored or living.call.ticket.outcome in (
            OutcomeToken.COMPLETED,
            OutcomeToken.FAILED,
        ):
            keyed.call.ticket.copy(living.call.ticket)

    async def _claim(self, keyed: KeyedCall) -> None:
        while True:
            work = self._ledger.claim(keyed.intent)
            try:
                answer = await work
            except anyio.get_cancelled_exc_class():
                if not work.withdraw():
                    work.when_settled(partial(self._release_late, work))
                raise
            except LedgerError as error:
                evidence = CallEvidence(why=Why.STORE)
                _refuse(
                    keyed, NotApplied(f"the ledger took no intent, so nothing was sent: {error}", evidence)
                )
                return
            if not isinstance(answer, Running):
                break
            await anyio.sleep(_LOOK_S)
        match answer:
            case Claimed():
                keyed.claimed = answer
            case Known():
                _repeat(keyed, answer.row)
            case Asked():
                keyed.call.ticket.settle_answer(Response(result=msgspec.Raw(answer.question)))
            case Conflict():
                _refuse(keyed, KeyConflict(_CONFLICT))
            case Expired():
                text = "the key was used before, and what became of it is forgotten"
                _doubt(keyed, text, Why.EXPIRED)

    def _release_late(self, work: Ticket[ClaimAnswer]) -> None:
        try:
            answer = work.result()
        except Exception:
            return
        if isinstance(answer, Claimed):
            with suppress(LedgerError):
                self._ledger.release(answer)

    def _withdraw(self, keyed: KeyedCall) -> None:
        if keyed.claimed is not None:
            with suppress(LedgerError):
                self._ledger.release(keyed.claimed)
        is_late = anyio.current_time() >= keyed.call.deadline
        why = Why.DEADLINE if is_late else Why.CANCELLED
        keyed.call.conclude(None, Outcome(token=OutcomeToken.NOT_APPLIED, why=why))

    def _cancel(self, keyed: KeyedCall) -> None:
        if keyed.call.driver is None:
            keyed.scope.cancel()
        else:
            self._calls.cancel(keyed.call)

    # --- after it was sent

    def _end(self, keyed: KeyedCall, response: Response | None, outcome: Outcome | None) -> None:
        driver = keyed.call.driver
        if driver is not None and driver.post_headers is not None and not keyed.is_restored:
            self.note_answer(driver.post_headers, is_keyed=True)
        if outcome is not None and outcome.why is Why.CLOSED:
            # Nobody is left to wait for the ledger; the write goes its way all the same.
            self._write(keyed, response, outcome)
            self._finish(keyed, response, outcome)
        else:
            self._tasks.start_soon(self._conclude, keyed, response, outcome)

    async def _conclude(self, keyed: KeyedCall, response: Response | None, outcome: Outcome | None) -> None:
        is_sent_again = False
        work: Ticket[Any] | None = None
        try:
            is_sent_again = outcome is not None and await self._send_again(keyed, outcome)
            if is_sent_again:
                return
            if keyed.is_restored and outcome is None:
                await self._claim_restored(keyed)
            work = self._write(keyed, response, outcome)
            if work is not None:
                with anyio.move_on_after(LEDGER_S):
                    await work
        except LedgerError:
            # The answer is given all the same; its row stays an intent, which the next start finds (L32).
            pass
        except BaseException:
            if work is None and not is_sent_again:
                self._write(keyed, response, outcome)
            raise
        finally:
            if not is_sent_again:
                self._finish(keyed, response, outcome)

    def _finish(self, keyed: KeyedCall, response: Response | None, outcome: Outcome | None) -> None:
        keyed.call.conclude(response, outcome)
        key = keyed.call.ticket.idempotency_key
        if key is not None and self._living.get(key) is keyed:
            del self._living[key]
            name = keyed.call.name or ""
            self._names.discard(name)
            if outcome is None or outcome.token is OutcomeToken.NOT_APPLIED:
                # A call without an outcome is read on for by the next process; any other is over.
                self._keeping.end(name)
            else:
                self._keeping.forget(name)

    def _hold(self, key: str, keyed: KeyedCall) -> None:
        self._living[key] = keyed
        self._names.add(keyed.call.name or "")

    def _write(
        self, keyed: KeyedCall, response: Response | None, outcome: Outcome | None
    ) -> Ticket[Any] | None:
        claimed = keyed.claimed
        if claimed is None:
            return None
        try:
            work: Ticket[Any]
            if outcome is None and response is not None and _asks_for_input(response):
                work = self._ledger.await_input(claimed, bytes(response.result))
            else:
                work = self._ledger.settle(claimed, _settlement_of(response, outcome))
        except LedgerError:
            return None
        work.when_settled(partial(self._look, claimed, work))
        return work

    def _look(self, claimed: Claimed, work: Ticket[Any]) -> None:
        """Where the outcome could not be written, nobody may wait for this run under its key."""
        if work.outcome is not OutcomeToken.COMPLETED:
            self._ledger.abandon(claimed)

    async def _send_again(self, keyed: KeyedCall, outcome: Outcome) -> bool:
        """Send a lost call again under a new id, where that cannot double it."""
        is_lost = outcome.token is OutcomeToken.INDETERMINATE and outcome.why not in _FINAL_WHYS
        if not is_lost or keyed.is_restored or not (self.honours_keys or keyed.may_repeat):
            return False
        planned = after_failure(
            keyed.budget,
            limits=self._reconnect,
            now=anyio.current_time(),
            jitter=random.random(),
            deadline=keyed.call.deadline,
        )
        if isinstance(planned, Spent):
            return False
        keyed.budget = planned.budget
        await anyio.sleep_until(planned.at)
        try:
            self._calls.check_open()
        except NotApplied:
            return False
        call = keyed.call
        call.record = msgspec.structs.replace(call.record, request_id=self._calls.mint_id())
        self._calls.send(call)
        return True

    # --- after a restart

    async def restore(self, session_id: str | None) -> list[CallTicket]:
        """Read on for the answers to calls of an earlier process whose streams can be resumed."""
        tickets = []
        async for entry in self._ledger.indeterminate():
            if entry.what != "call" or entry.server != self._server:
                continue
            if (entry.tenant, entry.principal, entry.session) != (
                self._scope.tenant,
                self._scope.principal,
                self._scope.session,
            ):
                continue
            key = entry.idempotency_key
            record = await self._keeping.restore(stream_name(self._scope, self._server, key))
            if record is None or record.request is None or record.session_id != session_id or not record.held:
                continue
            intent = Intent(
                scope=self._scope,
                key=CallKey(route=self._server, key=key),
                kind=RowKind.CALL,
                label=record.request.method,
                fingerprint=record.request.fingerprint,
            )
            keyed = self._make(record.request.method, None, key, intent, RESTORED_S)
            keyed.is_restored = True
            keyed.call.record = record.request
            self._hold(key, keyed)
            self._calls.resume(keyed.call, record)
            tickets.append(keyed.call.ticket)
        return tickets

    async def _claim_restored(self, keyed: KeyedCall) -> None:
        """Find the row of a call that an earlier process sent: its real answer settles it (decision L20)."""
        answer = await self._ledger.claim(keyed.intent)
        if isinstance(answer, Claimed):
            keyed.claimed = answer
        elif isinstance(answer, Known) and answer.row is not None:
            row = answer.row
            keyed.claimed = Claimed(
                key=answer.key, attempt=row.attempt, tries=row.tries, fence=row.fence, serial=row.serial
            )


def _settlement_of(response: Response | None, outcome: Outcome | None) -> Settlement:
    if outcome is not None:
        why = "" if outcome.why is None else str(outcome.why)
        evidence = f"the request ended without its answer ({why})"
        return Settlement(outcome=outcome.token, why=why, evidence=evidence)
    if response is None:
        return Settlement(outcome=OutcomeToken.INDETERMINATE, why=str(Why.NOT_JSON_RPC))
    if bytes(response.error):
        return Settlement(outcome=OutcomeToken.FAILED, result=bytes(response.error))
    return Settlement(outcome=OutcomeToken.COMPLETED, result=bytes(response.result))


class _ResultType(msgspec.Struct):
    resultType: str = "complete"


def _asks_for_input(response: Response) -> bool:
    try:
        return msgspec.json.decode(response.result, type=_ResultType).resultType == "input_required"
    except UNREADABLE:
        return False


def _repeat(keyed: KeyedCall, row: LedgerRow | None) -> None:
    """Give again what became of the key before."""
    ticket = keyed.call.ticket
    if row is not None and row.outcome is OutcomeToken.COMPLETED and row.result is not None:
        ticket.settle_answer(Response(result=msgspec.Raw(row.result)))
    elif row is not None and row.outcome is OutcomeToken.FAILED and row.result is not None:
        body = read_error(row.result) or ErrorBody()
        ticket.settle(OutcomeToken.FAILED, error=RequestFailed(body.code, body.message, body.data))
    else:
        why = "its answer is not kept" if row is None else f"{row.why}: {row.evidence}"
        _doubt(keyed, f"what became of an earlier call under this key is not known ({why})", Why.SETTLED)


def _doubt(keyed: KeyedCall, text: str, why: Why) -> None:
    key = keyed.call.ticket.idempotency_key
    keyed.call.ticket.settle(
        OutcomeToken.INDETERMINATE, error=Indeterminate(text, CallEvidence(why=why), key)
    )


def _refuse(keyed: KeyedCall, error: KeyConflict | NotApplied) -> None:
    keyed.call.ticket.settle(OutcomeToken.NOT_APPLIED, error=error)
