"""Makes a call under its caller's key at most once: intent before it is sent, outcome before its answer.

The ledger judges; an equal call waits for the one in flight or gets the stored answer, and nothing whose
outcome is unknown is ever sent again.
"""

from __future__ import annotations

import json
import logging
from typing import assert_never

import anyio
import msgspec
from counterfoil.adapters.gateway.adoption.rewriting import read_rpc, with_id
from counterfoil.adapters.gateway.calls import Call, OnHead, WholeAnswer
from counterfoil.adapters.gateway.keyed.keyed_stream import KeyedStream
from counterfoil.adapters.gateway.messages import RequestId, write_error
from counterfoil.errors import LedgerError
from counterfoil.model.ledger_keys import CallKey
from counterfoil.model.ledger_rows import LedgerRow, RowKind
from counterfoil.model.ledger_verdicts import Asked, Claimed, Conflict, Expired, Known, Running
from counterfoil.model.tokens import Executed, OutcomeToken, Why
from counterfoil.protocol.call_facts import CallFacts
from counterfoil.protocol.continuity import CallToken
from counterfoil.protocol.inband_error import CODE, read_inband_error
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_interface import Ledger

_LOGGER = logging.getLogger("counterfoil.gateway")


class KeyedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call under a key, on a route."""

    facts: CallFacts
    key: str
    route: str
    request_id: RequestId


class KeyedCalls:
    """The keyed calls of one gateway, over one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        #: Set when the run under a stored key has ended.
        self._running: dict[bytes, anyio.Event] = {}

    async def run(self, keyed: KeyedCall, stream: KeyedStream, call: Call, on_head: OnHead) -> None:
        """Answer a call: by making it, or by what its key stands for.  It raises nothing of the ledger's."""
        intent = Intent(
            scope=stream.scope,
            key=CallKey(route=keyed.route, key=keyed.key),
            kind=RowKind.CALL,
            label=keyed.facts.tool[:128],
            fingerprint=keyed.facts.fingerprint,
            round=keyed.facts.round,
        )
        while True:
            try:
                answer = await self._ledger.claim(intent)
            except LedgerError as failure:
                _refuse(keyed, call, failure)
                return
            match answer:
                case Claimed():
                    await self._make(answer, stream, call, on_head)
                    return
                case Running():
                    call.note_judged(CallToken.ATTACHED)
                    ended = self._running.get(answer.key)
                    if ended is not None:
                        await ended.wait()
                        continue
                    await _tell(stream, call, call.error(Why.INTENDED, Executed.UNKNOWN), CallToken.STORED)
                case Known():
                    await _repeat(keyed, stream, call, answer.row)
                case Asked():
                    await _tell(stream, call, _under(keyed, answer.question), CallToken.STORED)
                case Conflict():
                    await _tell(stream, call, call.error(Why.FINGERPRINT, Executed.NO), CallToken.CONFLICT)
                case Expired():
                    await _tell(stream, call, call.error(Why.EXPIRED, Executed.UNKNOWN), CallToken.STORED)
                case _:
                    assert_never(answer)
            return

    async def _make(self, claimed: Claimed, stream: KeyedStream, call: Call, on_head: OnHead) -> None:
        self._running[claimed.key] = anyio.Event()

        async def record(data: bytes, is_answer: bool) -> None:
            await self._settle(claimed, settlement_of(data, is_answer=is_answer))

        stream.on_end = record
        call.note_judged(CallToken.DETACH)  # these revisions never cancel by a close
        call.keeps_whole = True
        try:
            await call.run(on_head)
            doubt = call.doubt()
            if stream.on_end is not None:  # a refusal that passed as it is, or an end without a word
                stream.on_end = None
                error = doubt if doubt is not None else call.error(Why.CLOSED, Executed.UNKNOWN)
                await self._settle(claimed, settlement_of(error, is_answer=False))
        finally:
            self._running.pop(claimed.key).set()

    async def _settle(self, claimed: Claimed, settlement: Settlement) -> None:
        """Write the outcome; where that fails the answer is delivered, and the row stays open."""
        try:
            await self._ledger.settle(claimed, settlement)
        except LedgerError as failure:
            _LOGGER.error("%s", json.dumps({"event": "ledger-failure", "what": type(failure).__name__}))


def settlement_of(data: bytes, *, is_answer: bool) -> Settlement:
    """Say what the end of a call is in the ledger: only what the upstream answered is final (L20)."""
    if is_answer:
        message = read_rpc(data)
        is_error = message is not None and isinstance(message.error, msgspec.Raw)
        outcome = OutcomeToken.FAILED if is_error else OutcomeToken.COMPLETED
        return Settlement(outcome=outcome, result=data)
    error = read_inband_error(data)
    executed = error.executed if error is not None else Executed.UNKNOWN
    why = error.why.value if error is not None else Why.CLOSED.value
    if executed is Executed.NO:
        return Settlement(outcome=OutcomeToken.NOT_APPLIED, why=why)
    evidence = "the upstream's answer did not come, or could not be kept"
    return Settlement(outcome=OutcomeToken.INDETERMINATE, result=data, why=why, evidence=evidence)


async def _repeat(keyed: KeyedCall, stream: KeyedStream, call: Call, row: LedgerRow | None) -> None:
    if row is not None and row.result is not None:
        await _tell(stream, call, _under(keyed, row.result), CallToken.STORED)
    else:
        await _tell(stream, call, call.error(Why.SETTLED, Executed.UNKNOWN), CallToken.STORED)


async def _tell(stream: KeyedStream, call: Call, message: bytes, token: CallToken) -> None:
    call.open_stored(token)
    if f'"code":{CODE}'.encode() in message:
        await stream.settle(message)
    else:
        await stream.append([message])


def _under(keyed: KeyedCall, message: bytes) -> bytes:
    read = read_rpc(message)
    return with_id(read, keyed.request_id) if read is not None else message


def _refuse(keyed: KeyedCall, call: Call, failure: LedgerError) -> None:
    """Without a durable intent a keyed call is never sent."""
    _LOGGER.error("%s", json.dumps({"event": "ledger-failure", "what": type(failure).__name__}))
    text = "the ledger cannot record the call: it was not executed"
    body = write_error(keyed.request_id, CODE, text)
    headers = ((b"content-type", b"application/json"), (b"retry-after", b"5"))
    call.whole = WholeAnswer(503, headers, body)
    call.note_judged(None)
    call.decided.set()
