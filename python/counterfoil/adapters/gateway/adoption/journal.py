"""Keeps calls without a key in the ledger until they were handed over, so that a restart forgets none.

The intent is durable before a call is sent and the outcome before its answer is read; the mark that it was
handed over comes last (decision L17).  What may be adopted is decided elsewhere.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from counterfoil.adapters.gateway.adoption.entries import CallWork
from counterfoil.adapters.gateway.calls.settlements import note_failure, settlement_of
from counterfoil.adapters.gateway.streams.recorded_stream import RecordedStream
from counterfoil.errors import LedgerError, StaleAttempt
from counterfoil.model.adoption import Work
from counterfoil.model.ledger_keys import UnkeyedCall, read_unkeyed
from counterfoil.model.ledger_rows import LedgerRow, RowKind, RowState
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.model.tokens import OutcomeToken
from counterfoil.native import Scope
from counterfoil.protocol.ledger_steps import Intent
from counterfoil.stores.ledger_interface import Ledger
from counterfoil.stores.tickets import Ticket

_MAX_LABEL = 128


class Journal:
    """The unkeyed calls of one gateway, over one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def begin(self, work: CallWork) -> None:
        """Write the intent; raises what the ledger raises, and then nothing may be sent."""
        entry = work.origin
        assert isinstance(entry.identity, bytes), "with a ledger identities are digests"
        key = UnkeyedCall(route=entry.route, identity=entry.identity, number=secrets.token_hex(8))
        intent = Intent(scope=entry.scope, key=key, kind=RowKind.CALL, label=entry.tool[:_MAX_LABEL])
        claimed = await self._ledger.claim(intent)
        assert isinstance(claimed, Claimed), "a random key is nobody else's"
        work.claimed = claimed

        async def record(data: bytes, is_answer: bool) -> None:
            if work.state is not Work.CANCELLED:
                settlement = settlement_of(data, is_answer=is_answer)
                await _note(lambda: self._ledger.settle(claimed, settlement))

        if isinstance(work.stream, RecordedStream):
            work.stream.on_end = record
        if work.call is not None:
            work.call.keeps_whole = True

    async def end(self, work: CallWork, doubt: bytes | None) -> None:
        """Note the end of a call whose stream said nothing of it, and close one that nobody may adopt."""
        claimed, stream = work.claimed, work.stream
        if claimed is None:
            return
        if isinstance(stream, RecordedStream) and stream.on_end is not None:
            stream.on_end = None
            if doubt is not None and work.state is Work.INDETERMINATE:
                settlement = settlement_of(doubt, is_answer=False)
                await _note(lambda: self._ledger.settle(claimed, settlement))
        if work.state in (Work.CANCELLED, Work.NOT_APPLIED):
            self.close(work)

    def close(self, work: CallWork) -> None:
        """The answer was handed over, or there is none to adopt; written with the next group."""
        claimed = work.claimed
        if claimed is not None:
            _soon(lambda: self._ledger.close_call(claimed))

    def note_adopted(self, work: CallWork) -> None:
        """Another caller has the call now; written with the next group."""
        claimed = work.claimed
        if claimed is not None:
            _soon(lambda: self._ledger.note_adopted(claimed))

    async def kept(
        self, window_s: float, limit: int
    ) -> AsyncIterator[tuple[Scope, UnkeyedCall, LedgerRow, Claimed]]:
        """Go through what former lives left to be adopted, or to be told; it is this process's from now on.

        At most `limit` are given; the rest, and what is too old to be adopted, is this process's as well.
        Doubts are settled on the way.  Raises what the ledger raises.
        """
        after = b""
        since = time.time() - window_s
        while page := await self._ledger.kept_calls(after):
            after = page[-1].key
            left = [call for call in page if _is_left(call.row)]
            # All of a page together: they share their commits.
            for call, taking in [(call, self._ledger.take_call(call)) for call in left]:
                row = await taking
                if row is not None and limit and _is_wanted(call.row, since=since):
                    limit -= 1
                    scope, key = read_unkeyed(call.key)
                    yield scope, key, row, _claimed(call.key, row)


def is_doubtful(row: LedgerRow) -> bool:
    """Whether nobody knows what became of a call."""
    return row.outcome is OutcomeToken.INDETERMINATE


def _is_open(row: LedgerRow) -> bool:
    return row.state in (RowState.INTENDED, RowState.CANCELLING)


def _is_left(row: LedgerRow) -> bool:
    """Whether an equal call may come for it: a doubt is told as often as somebody asks."""
    return _is_open(row) or is_doubtful(row) or not row.delivered


def _is_wanted(row: LedgerRow, *, since: float) -> bool:
    """Whether its window lasts; a doubt that is found now has a new one, however long the call had run."""
    return _is_open(row) or row.changed_at >= since


def _claimed(key: bytes, row: LedgerRow) -> Claimed:
    return Claimed(
        key=key, attempt=row.attempt, tries=row.tries, fence=row.fence, serial=row.serial, run=row.run
    )


def _soon(write: Callable[[], Ticket[None]]) -> None:
    try:
        write()
    except LedgerError as failure:
        note_failure(failure)


async def _note(write: Callable[[], Awaitable[object]]) -> None:
    try:
        await write()
    except StaleAttempt:
        return
    except LedgerError as failure:
        note_failure(failure)  # the answer is delivered all the same, and the row stays intended
