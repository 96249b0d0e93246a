"""Makes a call out of a POST that was let in: what keeps its answer, and who wants to know of its connection.

It runs nothing and writes nothing but the answer that a call gets which cannot be kept.
"""

from __future__ import annotations

import anyio
import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.adoption.front import CallIdentity
from counterfoil.adapters.gateway.answering.asking import Asking
from counterfoil.adapters.gateway.calls.calls import Call
from counterfoil.adapters.gateway.calls.closing import Closing, Closings
from counterfoil.adapters.gateway.calls.connection import Watcher
from counterfoil.adapters.gateway.calls.unresumable import relay_unresumable
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.exchanges.shared import Shared
from counterfoil.adapters.gateway.exchanges.terms import call_settings
from counterfoil.adapters.gateway.keyed.keyed_calls import KeyedCall
from counterfoil.adapters.gateway.keyed.keyed_stream import Following, KeyedParty, KeyedStream
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.wire.messages import MessageHead
from counterfoil.errors import RequestOverLimit, RequestRefused, SessionEnded, StoreFull
from counterfoil.protocol.call_facts import CallFacts, GivenKey
from counterfoil.protocol.revisions import Capabilities


class Post(msgspec.Struct, frozen=True):
    """A POST that brings a call, what its client knows, and what is remembered of its session.

    The call runs in `tasks`.
    """

    exchange: Exchange
    message: MessageHead
    knows: Capabilities
    facts: SessionFacts
    tasks: TaskGroup


class Asked(msgspec.Struct, frozen=True):
    """What a call asks beyond being passed on: all None where that is nothing."""

    facts: CallFacts | None = None
    identity: CallIdentity | None = None
    given: GivenKey | None = None


class Made(msgspec.Struct, frozen=True):
    """A call that has its stream."""

    call: Call
    closing: Closing | None
    keyed: KeyedCall | None

    @property
    def watchers(self) -> list[Watcher]:
        """Who wants to know of its connections, besides adoption; a close is judged first."""
        following = self.keyed.following if self.keyed is not None else None
        return [one for one in (self.closing, following) if one is not None]


class CallMaking:
    """Makes calls, and drops those that are not run."""

    def __init__(self, shared: Shared, closings: Closings, asking: Asking) -> None:
        self._shared = shared
        self._closings = closings
        self._asking = asking

    async def make(self, post: Post, asked: Asked) -> Made | None:
        """Make a call; None once it was relayed without promises, as the log takes no more.

        Raises `RequestOverLimit` and `RequestRefused` where it is to be refused instead.
        """
        stream = await self._open_stream(post, asked)
        if stream is None:
            return None
        exchange, shared = post.exchange, self._shared
        upstream = shared.adoption.listen(post.message, exchange.upstream)
        settings = call_settings(shared, post.knows)
        call = Call(upstream, exchange.request, post.message.request_ids, stream, settings)
        closing = self._close_with_client(call, post, asked.given)
        return Made(call, closing, self._under_key(post, asked, call, closing))

    async def drop(self, call: Call) -> None:
        """Forget a call that is not run."""
        self._closings.drop(call)
        await call.stream.end()

    async def relay_unresumable(self, exchange: Exchange) -> None:
        """Relay a call with nothing promised."""
        await relay_unresumable(
            exchange.upstream, exchange.request, self._shared.limits, exchange.receive, exchange.send
        )

    async def _open_stream(self, post: Post, asked: Asked) -> CallStream | None:
        """Open what keeps the answer; None once the call was relayed without."""
        kind = self._asking.kind_of(post.message, asked.facts, asked.given)
        scope = post.exchange.scope_under(post.knows)
        try:
            return await kind.open(self._shared.log, scope, post.message.request_ids)
        except StoreFull as full:
            if self._shared.settings.on_budget == "refuse":
                raise RequestOverLimit(503, full.bound, "the gateway takes no new calls now") from full
            self._shared.metrics.note_limit(full.bound)
            await self.relay_unresumable(post.exchange)
            return None
        except SessionEnded:
            raise RequestRefused(404, "mcp-session-id", "the session has ended") from None

    def _close_with_client(self, call: Call, post: Post, given: GivenKey | None) -> Closing | None:
        """Return what closes the upstream leg when the client goes; None where a close cancels nothing."""
        if not post.knows.disconnect_cancels or (given is not None and given.on_disconnect == "detach"):
            return None
        call.stream.notes_answer = True
        is_explicit = given is not None and given.on_disconnect == "cancel"
        has_grace = post.knows.has_resumption and not is_explicit
        grace_s = self._shared.settings.resume_grace_s if has_grace else 0.0
        return self._closings.add(call, post.tasks, grace_s=grace_s)

    def _under_key(self, post: Post, asked: Asked, call: Call, closing: Closing | None) -> KeyedCall | None:
        """Return the call as its key knows it; its POST waits until the ledger has judged it."""
        stream, exchange = call.stream, post.exchange
        if not isinstance(stream, KeyedStream) or asked.facts is None or asked.given is None:
            return None
        party = KeyedParty(stream, post.facts, exchange.upstream, exchange.request)
        call.judged = anyio.Event()
        return KeyedCall(
            facts=asked.facts,
            key=asked.given.key,
            route=exchange.route,
            request_id=call.request_id,
            party=party,
            following=Following(party, self._shared.adoption.questions),
            closing=closing,
        )
