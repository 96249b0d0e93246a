"""What the other processes of a gateway ask this one, answered from what it holds.

Called by the listener for peers only; a client's request that was forwarded is answered like one of its own.
"""

from __future__ import annotations

from typing import Protocol, assert_never

from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.across.across import (
    MINE,
    NO,
    PASS,
    SETTLED,
    YES,
    Across,
    SignalUpstream,
    learn_news,
)
from counterfoil.adapters.gateway.adoption.front import Adoption
from counterfoil.adapters.gateway.calls.open_calls import OpenCalls
from counterfoil.adapters.gateway.sessions.session_news import note_requests
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts, Sessions
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.messages import read_message
from counterfoil.adapters.gateway.wire.upstream_port import UpstreamRequest
from counterfoil.adapters.peers.owners import Owner
from counterfoil.adapters.peers.wire import (
    Forwarded,
    Line,
    NeedsSession,
    Offer,
    Offered,
    Report,
    Reported,
    Request,
    RunsCall,
    RunsKey,
    Said,
    ScopeParts,
    SessionEnd,
    SessionNews,
    TakesAnswer,
    ToolsNews,
    WantsOffers,
    Wish,
    scope_of,
)
from counterfoil.errors import CounterfoilError
from counterfoil.native import Scope
from counterfoil.stores.interface import ReplayLog

_LONGEST_OFFER_S = 3_600.0
#: What one reply has room for.
_MOST_OFFERS = 4_096


class Holder(Protocol):
    """The part of a gateway that answers requests, as far as its peers may ask it."""

    adoption: Adoption | None
    open_calls: OpenCalls
    sessions: Sessions

    async def end_scope(self, scope: Scope) -> None: ...

    def has_keyed_run(self, key: bytes) -> bool: ...


class Front(Protocol):
    """The gateway itself."""

    async def answer_forwarded(self, request: Forwarded, receive: Receive, send: Send) -> None: ...

    async def report(self) -> tuple[bytes, bytes]: ...


class GatewayInbox:
    """Serves the peers of one gateway while it runs."""

    def __init__(
        self, front: Front, holder: Holder, log: ReplayLog, across: Across, tasks: TaskGroup
    ) -> None:
        self._across = across
        self._front = front
        self._holder = holder
        self._log = log
        self._tasks = tasks

    async def answer_forwarded(self, request: Forwarded, receive: Receive, send: Send) -> None:
        """Answer a client's request in the place of the process that it reached."""
        await self._front.answer_forwarded(request, receive, send)

    async def take(self, request: Request) -> Line:
        """Take news, or reply to a question; what cannot be done is not done, and nothing is raised."""
        try:
            return await self._take(request)
        except CounterfoilError:
            return Said("refused")

    async def _take(self, request: Request) -> Line:
        match request:
            case SessionNews():
                await self._learn_session(request)
            case Wish():
                note_requests(self._facts(request.scope), read_message(request.body), request.body)
            case ToolsNews():
                if self._holder.adoption is not None:
                    self._holder.adoption.learn_tools(request.route, scope_of(request.scope), request.answer)
            case Offer():
                self._take_offer(request)
            case WantsOffers():
                return self._offered()
            case SessionEnd():
                await self._end_session(scope_of(request.scope), holds=request.holds)
            case NeedsSession():
                adoption = self._holder.adoption
                return _said(adoption is not None and adoption.needs_session(scope_of(request.scope)))
            case RunsCall():
                return _said(self._knows_call(request))
            case RunsKey():
                return _said(self._holder.has_keyed_run(request.key))
            case TakesAnswer():
                return Said(self._take_answer(request))
            case Report():
                metrics, status = await self._front.report()
                return Reported(metrics, status)
            case Forwarded():
                return Said("refused")  # it has its own way in
            case _:
                assert_never(request)
        return Said()

    async def _learn_session(self, news: SessionNews) -> None:
        owner = Owner.of(news.holder)
        if owner is not None:
            self._across.holders.note(scope_of(news.scope), owner)
        if news.is_opened:
            await self._log.open_session(scope_of(news.scope))
        learn_news(self._facts(news.scope), news)
        if news.has_left is not None and self._holder.adoption is not None:
            self._holder.adoption.note_session(scope_of(news.scope), has_left=news.has_left)

    def _take_offer(self, offer: Offer) -> None:
        owner = Owner.of(offer.owner)
        if owner is None:
            return
        if offer.within_s > 0:
            self._across.offers.note(offer.identity, owner, within_s=min(offer.within_s, _LONGEST_OFFER_S))
        else:
            self._across.offers.forget(offer.identity, owner)

    def _offered(self) -> Line:
        adoption = self._holder.adoption
        identities = adoption.offered if adoption is not None else ()
        within_s = adoption.window_s if adoption is not None else 0.0
        return Offered(self._across.peers.own.number, tuple(identities[-_MOST_OFFERS:]), within_s)

    async def _end_session(self, scope: Scope, *, holds: bool) -> None:
        signal = SignalUpstream()
        adoption = self._holder.adoption
        end = UpstreamRequest("DELETE", b"", ())
        is_held = holds and adoption is not None and adoption.holds_end(scope, signal, end, self._tasks)
        await self._holder.end_scope(scope)
        if is_held:
            await signal.called.wait()

    def _knows_call(self, request: RunsCall) -> bool:
        scope = scope_of(request.scope)
        adoption = self._holder.adoption
        return self._holder.open_calls.has(scope, request.request_id) or (
            adoption is not None and adoption.knows_call(scope, request.request_id)
        )

    def _take_answer(self, request: TakesAnswer) -> str:
        scope = scope_of(request.scope)
        adoption = self._holder.adoption
        if adoption is not None and adoption.asked(scope, request.request_id):
            return MINE
        is_first = self._facts(request.scope).server_requests.note_answer(request.request_id)
        return PASS if is_first else SETTLED

    def _facts(self, scope: ScopeParts) -> SessionFacts:
        session = scope[2]
        return self._holder.sessions.of(session) if session is not None else SessionFacts()


def _said(answer: bool) -> Said:
    return Said(YES if answer else NO)
