"""Makes a call under its caller's key at most once: intent before it is sent, outcome before its answer.

The ledger judges; an equal call waits for the one in flight or gets the stored answer, and nothing whose
outcome is unknown is ever sent again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import assert_never

import anyio
import msgspec

from counterfoil.adapters.gateway.calls.calls import Call, OnHead
from counterfoil.adapters.gateway.calls.closing import Closing
from counterfoil.adapters.gateway.calls.settlements import note_failure, refused_unrecorded, settlement_of
from counterfoil.adapters.gateway.keyed.keyed_stream import Following, KeyedParty, KeyedStream
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.adapters.gateway.wire.rewriting import read_rpc, with_id
from counterfoil.errors import LedgerError, StaleAttempt
from counterfoil.model.ledger_keys import CallKey
from counterfoil.model.ledger_rows import LedgerRow, RowKind
from counterfoil.model.ledger_verdicts import Asked, ClaimAnswer, Claimed, Conflict, Expired, Known, Running
from counterfoil.model.tokens import Executed, Why
from counterfoil.protocol.call_facts import CallFacts
from counterfoil.protocol.continuity import CallToken
from counterfoil.protocol.inband_error import CODE
from counterfoil.protocol.ledger_steps import Intent
from counterfoil.protocol.unreadable import UNREADABLE
from counterfoil.stores.ledger_interface import Ledger

#: How often the ledger is asked again about a run that no process says to have.
_LOOK_S = 0.05


class KeyedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call under a key, on a route; `closing` is None where its client's leaving cancels nothing."""

    facts: CallFacts
    key: str
    route: str
    request_id: RequestId
    party: KeyedParty
    following: Following
    closing: Closing | None = None


class _Run:
    """A run in flight under a stored key."""

    def __init__(self, keyed: KeyedCall) -> None:
        self.following = keyed.following
        self.closing = keyed.closing
        self.ended = anyio.Event()
        self.is_cancelling = False

    def note_cancelling(self) -> None:
        self.is_cancelling = True


class KeyedCalls:
    """The keyed calls of one gateway, over one ledger.

    `settle_s` is how long a cancelled run is waited for.
    """

    def __init__(self, ledger: Ledger, settle_s: float) -> None:
        self._ledger = ledger
        self._settle_s = settle_s
        self._runs: dict[bytes, _Run] = {}

    def has_run(self, key: bytes) -> bool:
        """Whether the run under a stored key is in flight here."""
        return key in self._runs

    async def claim(self, keyed: KeyedCall) -> ClaimAnswer | LedgerError:
        """Ask the ledger for a call; its failure is told as one, so that nothing is sent."""
        intent = Intent(
            scope=keyed.party.stream.scope,
            key=CallKey(route=keyed.route, key=keyed.key),
            kind=RowKind.CALL,
            label=keyed.facts.tool[:128],
            fingerprint=keyed.facts.fingerprint,
            round=keyed.facts.round,
        )
        try:
            return await self._ledger.claim(intent)
        except LedgerError as failure:
            note_failure(failure)
            return failure

    async def run(
        self,
        keyed: KeyedCall,
        call: Call,
        on_head: OnHead,
        answer: ClaimAnswer | LedgerError | None = None,
    ) -> None:
        """Answer a call: by making it, or by what its key stands for.  It raises nothing of the ledger's.

        `answer` is the ledger's, where it was asked already.
        """
        stream = keyed.party.stream
        waited_s = 0.0
        while True:
            if answer is None:
                answer = await self.claim(keyed)
            match answer:
                case LedgerError():
                    await call.refuse(refused_unrecorded(keyed.request_id))
                    return
                case Claimed():
                    await self._make(answer, keyed, call, on_head)
                    return
                case Running():
                    run, answer = self._runs.get(answer.key), None
                    if run is not None and await self._follow(run, keyed, call):
                        continue
                    if run is None and waited_s < self._settle_s:
                        # Another process has it, and ends it, or has just died: the ledger will say which.
                        waited_s += _LOOK_S
                        await anyio.sleep(_LOOK_S)
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

    async def _make(self, claimed: Claimed, keyed: KeyedCall, call: Call, on_head: OnHead) -> None:
        run = self._runs[claimed.key] = _Run(keyed)
        stream, closing = keyed.party.stream, keyed.closing

        async def record(data: bytes, is_answer: bool) -> None:
            await self._settle(claimed, data, is_answer=is_answer)

        async def begin_cancelling() -> None:
            await self._note(lambda: self._ledger.begin_cancelling(claimed))

        stream.on_end, stream.following = record, run.following
        try:
            if closing is not None:
                closing.leave()
                closing.on_cancel.append(run.note_cancelling)
                closing.before_close = begin_cancelling
            if closing is not None and closing.is_cancelled:  # while the intent was written
                await stream.settle(call.error(Why.UNSENT, Executed.NO))
                return
            call.note_judged(CallToken.DETACH if closing is None else CallToken.CANCEL)
            call.keeps_whole = True
            await call.run(on_head)
            doubt = call.doubt()
            if stream.on_end is not None:  # a refusal that passed as it is, or an end without a word
                stream.on_end = None
                error = doubt if doubt is not None else call.error(Why.CLOSED, Executed.UNKNOWN)
                await self._settle(claimed, error, is_answer=False)
        finally:
            stream.following = None
            del self._runs[claimed.key]
            run.ended.set()

    async def _follow(self, run: _Run, keyed: KeyedCall, call: Call) -> bool:
        """Wait for a run in flight, with its progress; False if it was cancelled and does not end in time."""
        call.open_stored(CallToken.ATTACHED)
        if not run.is_cancelling and run.closing is not None:
            if keyed.closing is not None:
                keyed.closing.join(run.closing)  # only the last caller's leaving cancels
            else:
                run.closing.disarm()
        await run.following.add(keyed.party)
        try:
            while not run.ended.is_set():
                with anyio.move_on_after(self._settle_s):
                    await run.ended.wait()
                if run.is_cancelling and not run.ended.is_set():
                    return False
        finally:
            run.following.remove(keyed.party)
        return True

    async def _settle(self, claimed: Claimed, data: bytes, *, is_answer: bool) -> None:
        """Write the outcome; where that fails the answer is delivered, and the row stays open."""
        if is_answer and asks_for_input(data):
            failed = await self._note(lambda: self._ledger.await_input(claimed, data))
        else:
            settlement = settlement_of(data, is_answer=is_answer)
            failed = await self._note(lambda: self._ledger.settle(claimed, settlement))
        if failed:
            # The run is over, and nobody may wait for it under its key.
            self._ledger.abandon(claimed)

    async def _note(self, write: Callable[[], Awaitable[object]]) -> bool:
        """Write, and say whether that failed; an outcome that came first is none."""
        try:
            await write()
        except StaleAttempt:
            return False
        except LedgerError as failure:
            note_failure(failure)
            return True
        return False


def asks_for_input(answer: bytes) -> bool:
    """Whether an answer is a question of the server's: then nothing is final yet."""
    if b"input_required" not in answer:
        return False
    try:
        return _ROUND.decode(answer).result.result_type == "input_required"
    except UNREADABLE:
        return False


class _Result(msgspec.Struct, rename="camel"):
    result_type: str = ""


class _Answer(msgspec.Struct):
    result: _Result


_ROUND = msgspec.json.Decoder(_Answer)


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
