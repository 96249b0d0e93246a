"""Brings calls without a key back from the ledger: answers that nobody got, and outcomes that nobody knows.

Done when the gateway starts, and when a process that shares its ledger has died; an equal call adopts them,
or is told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.adoption.adopting import Adopting
from counterfoil.adapters.gateway.adoption.entries import AdoptableCall, CallWork
from counterfoil.adapters.gateway.adoption.journal import Journal, is_doubtful
from counterfoil.adapters.gateway.arrival.scopes import ANONYMOUS
from counterfoil.adapters.gateway.calls.settlements import note_failure
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.rewriting import id_of, read_rpc
from counterfoil.adapters.gateway.wire.upstream_port import UpstreamAnswer, UpstreamRequest
from counterfoil.errors import CounterfoilError, LedgerError, UpstreamUnreachable
from counterfoil.model.adoption import Work
from counterfoil.model.ledger_keys import UnkeyedCall
from counterfoil.model.ledger_rows import LedgerRow
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.model.tokens import Executed, Why
from counterfoil.native import Scope
from counterfoil.protocol.inband_error import InbandError
from counterfoil.stores.interface import ReplayLog


class _FormerLeg:
    """The upstream leg of a former life: it is closed, and nothing more is said on it."""

    name = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    def call(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamAnswer]:
        raise UpstreamUnreachable("the call was made in a former life of this process")


async def restore(
    adopting: Adopting, journal: Journal, log: ReplayLog, tasks: TaskGroup, *, window_s: float, limit: int
) -> None:
    """Take in at most `limit` calls; a ledger that cannot be read is logged, and nothing is restored."""
    try:
        async for scope, key, row, claimed in journal.kept(window_s, limit):
            await _take_in(adopting, log, tasks, scope, key, row, claimed)
    except LedgerError as failure:
        note_failure(failure)


async def _take_in(
    adopting: Adopting,
    log: ReplayLog,
    tasks: TaskGroup,
    scope: Scope,
    key: UnkeyedCall,
    row: LedgerRow,
    claimed: Claimed,
) -> None:
    message = read_rpc(row.result) if row.result is not None else None
    request_id = id_of(message) if message is not None else None
    is_doubt = is_doubtful(row)
    if not is_doubt and (row.result is None or request_id is None):
        return
    own_id = request_id if request_id is not None else f"kept-{key.number}"
    try:
        stream = await CallStream.open(log, scope, [own_id])
        if row.result is not None and not is_doubt:
            await stream.append([row.result])
    except CounterfoilError:
        return  # the store takes no more
    entry = AdoptableCall(
        identity=key.identity,
        tool=row.label,
        target=key.route.encode("latin-1"),
        stream=stream,
        request_id=own_id,
        upstream=_FormerLeg(),
        request=UpstreamRequest("POST", b"", ()),
        facts=SessionFacts(),
        crosses_sessions=scope.principal not in (None, ANONYMOUS),
    )
    work = CallWork(None, entry)
    work.claimed = claimed
    work.state = Work.INDETERMINATE if is_doubt else Work.ANSWERED
    if is_doubt:
        work.doubt = InbandError(request_id=own_id, why=Why.INTENDED, executed=Executed.UNKNOWN)
    adopting.take_in(entry, work, tasks)
