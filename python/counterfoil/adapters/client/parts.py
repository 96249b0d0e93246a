"""Puts together what an open connection is made of, and opens or joins its session.

It lives for the moment of opening; the connection uses the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

import anyio.abc

from counterfoil.adapters.client.calls import Calls
from counterfoil.adapters.client.carrier import STANDALONE, Carrier
from counterfoil.adapters.client.dispatching import Dispatching
from counterfoil.adapters.client.driver import Sink, StreamDriver
from counterfoil.adapters.client.handshake import ServerFacts, open_session
from counterfoil.adapters.client.http_port import HttpPort
from counterfoil.adapters.client.keeping import Keeping, SessionRecord
from counterfoil.adapters.client.keyed_calls import KeyedCalls
from counterfoil.adapters.client.messages import Peer
from counterfoil.adapters.client.replies import Replies
from counterfoil.adapters.client.settings import ConnectSettings
from counterfoil.adapters.client.tickets import CallEvidence
from counterfoil.adapters.dispatcher import Dispatcher, DispatchReport
from counterfoil.errors import HandshakeFailed, Indeterminate, NotApplied, RequestFailed
from counterfoil.handlers import Handlers
from counterfoil.native import Scope
from counterfoil.stores.ledger_interface import Ledger
from counterfoil.stores.ledger_memory import MemoryLedger

#: Whose rows they are where nobody is named.
_NOBODY = "client"
#: Statuses with which servers say that they do not know a session.
_NO_SUCH_SESSION = frozenset({400, 404})


class Parts(NamedTuple):
    """What an open connection is made of."""

    carrier: Carrier
    calls: Calls
    keyed: KeyedCalls
    keeping: Keeping
    replies: Replies
    dispatching: Dispatching | None


async def open_dispatcher(
    stack: AsyncExitStack, settings: ConnectSettings, *, ledger: Ledger | None, handlers: Handlers | None
) -> tuple[Ledger, Dispatcher | None]:
    """Open what the handlers need; a ledger of our own is for the connection alone, and forgets with it."""
    if ledger is None:
        ledger = await stack.enter_async_context(MemoryLedger(limits=settings.limits))
    if handlers is None:
        return ledger, None
    dispatcher = Dispatcher(
        ledger,
        handlers,
        limits=settings.limits,
        on_failed=settings.on_failed,
        on_indeterminate=settings.on_indeterminate,
    )
    return ledger, await stack.enter_async_context(dispatcher)


def make_parts(
    port: HttpPort,
    tasks: anyio.abc.TaskGroup,
    sink: Sink,
    settings: ConnectSettings,
    peer: Peer,
    *,
    ledger: Ledger,
    dispatcher: Dispatcher | None,
    handlers: Handlers | None,
    on_stop: Callable[[StreamDriver, DispatchReport], None],
    keeps: Callable[[StreamDriver], bool],
    is_kept: bool,
) -> Parts:
    """Make the parts; `is_kept` says that the ledger outlives the connection."""
    scope = Scope(principal=settings.principal or _NOBODY)
    carrier = Carrier(port, tasks, sink, policies=settings.policies)
    carrier.principal = settings.principal
    calls = Calls(carrier, tasks, peer)
    keeping = Keeping(ledger, scope, carrier.server)
    keyed = KeyedCalls(
        calls, ledger, keeping, tasks, scope=scope, server=carrier.server, reconnect=settings.reconnect
    )
    dispatching = None
    if dispatcher is not None and handlers is not None:
        dispatching = Dispatching(
            dispatcher,
            handlers,
            keeping,
            tasks,
            scope=scope,
            server=carrier.server,
            confirm=settings.confirm,
            keeps=keeps,
            on_stop=on_stop,
        )
    replies = Replies(carrier, tasks, settings.answer, keeping if is_kept else None)
    return Parts(carrier, calls, keyed, keeping, replies, dispatching)


async def open_or_join(parts: Parts, settings: ConnectSettings, peer: Peer, *, keeps: bool) -> ServerFacts:
    """Join the session that the settings or the ledger name, if it lives; else open one.

    A new session drops the cursors of the old one without sending them.  Raises HandshakeFailed.
    """
    carrier = parts.carrier
    kept = await parts.keeping.session() if keeps and settings.session_id is None else None
    facts = ServerFacts()
    is_joined = True
    if settings.session_id is not None:
        carrier.revision, carrier.session_id = settings.revision, settings.session_id
    elif kept is not None and await _lives(parts, kept, settings.handshake_s):
        parts.keyed.honours_keys = kept.honours_keys
    else:
        is_joined = False
        carrier.session_id = None
        facts = await open_session(
            carrier, parts.calls, peer, revision=settings.revision, within_s=settings.handshake_s
        )
        parts.keyed.note_answer(facts.headers, is_keyed=False)
        if keeps:
            await parts.keeping.drop(STANDALONE)
    await _open_streams(parts, settings, keeps=keeps and is_joined)
    if keeps:
        note_session(parts)
    return facts


def note_session(parts: Parts) -> None:
    """Keep the session as it is now."""
    parts.keeping.keep_session(
        SessionRecord(
            session_id=parts.carrier.session_id,
            revision=parts.carrier.revision,
            honours_keys=parts.keyed.honours_keys,
        )
    )


async def _lives(parts: Parts, kept: SessionRecord, within_s: float) -> bool:
    """Ask in a session of an earlier process; raises HandshakeFailed where nobody can tell."""
    parts.carrier.revision, parts.carrier.session_id = kept.revision, kept.session_id
    try:
        await parts.calls.submit("ping", None, deadline_s=within_s).wait()
    except RequestFailed:
        return True
    except NotApplied as refusal:
        evidence = refusal.evidence
        if isinstance(evidence, CallEvidence) and evidence.status in _NO_SUCH_SESSION:
            return False
        raise HandshakeFailed(f"the session could not be joined again: {refusal}") from refusal
    except Indeterminate as doubt:
        raise HandshakeFailed(f"the session could not be joined again: {doubt}") from doubt
    return True


async def _open_streams(parts: Parts, settings: ConnectSettings, *, keeps: bool) -> None:
    known = parts.carrier.capabilities
    if known is None or not known.has_sessions:
        return
    if keeps:
        await parts.keyed.restore(parts.carrier.session_id)
    if settings.standalone:
        record = await parts.keeping.restore(STANDALONE) if keeps else None
        if record is not None and record.session_id != parts.carrier.session_id:
            record = None
        parts.carrier.open_standalone(record)
