"""Holds what a client that is gone says: that it stopped waiting, or that its session is over.

A cancellation is passed on when the call's window ends, the end of a session upstream when none of its calls
runs attached or in its window (decisions L3, L4).  What is held dies with the process.
"""

from __future__ import annotations

from enum import StrEnum, auto

import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.adoption.adopting import Adopting
from counterfoil.adapters.gateway.adoption.entries import AdoptableCall, CallWork
from counterfoil.adapters.gateway.adoption.questions import send_in_session
from counterfoil.adapters.gateway.calls.open_calls import end_cancelled
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.adapters.gateway.wire.rewriting import with_member
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamRequest
from counterfoil.errors import UpstreamError
from counterfoil.model.adoption import Delivery, Work
from counterfoil.native import Scope, StreamToken


class Cancellation(StrEnum):
    """What is to be done with a client's cancellation."""

    PASS = auto()  # send it to the upstream as it is
    TAKEN = auto()  # it is held, was sent on, or has no object any more


class _HeldEnd(msgspec.Struct):
    upstream: Upstream
    request: UpstreamRequest
    works: set[CallWork]


class Held:
    """What one gateway holds."""

    def __init__(self, adopting: Adopting, settle_s: float) -> None:
        self._adopting = adopting
        self._settle_s = settle_s
        self._ends: list[_HeldEnd] = []
        self._tasks: TaskGroup | None = None

    def stop(self) -> None:
        """Send nothing any more that was held: the gateway ends."""
        self._tasks = None

    def _begin(self, tasks: TaskGroup) -> None:
        """From the first one on it has to know of every call that ends."""
        self._tasks = tasks
        if self._note_release not in self._adopting.on_release:
            self._adopting.on_release.append(self._note_release)

    async def take_cancellation(
        self, scope: Scope, request_id: RequestId, body: bytes, tasks: TaskGroup
    ) -> Cancellation:
        """Decide on a `notifications/cancelled`, and do what is to be done with one that is not passed."""
        self._begin(tasks)
        table = self._adopting.table
        entry = table.of_request(scope, request_id)
        if entry is None:
            return Cancellation.TAKEN if table.is_taken(scope, request_id) else Cancellation.PASS
        work = entry.work
        if work is None:
            if entry.is_attached:
                self._adopting.withdraw(entry)
                await entry.stream.end("cancelled")
            return Cancellation.TAKEN
        if entry.is_attached:
            return await self._cancel(entry, work, body, tasks)
        if entry.delivery is Delivery.DONE:
            return Cancellation.PASS
        entry.held_cancellation = with_member(body, "requestId", work.origin.request_id)
        self._adopting.told.held("cancellation")
        return Cancellation.TAKEN

    def needs_session(self, scope: Scope) -> bool:
        """Whether works of a session may still be wanted once it is over."""
        return any(_needs_session(work) for work in self._adopting.table.works_of(scope))

    def holds_end(self, scope: Scope, upstream: Upstream, request: UpstreamRequest, tasks: TaskGroup) -> bool:
        """Hold the end of a session upstream while works of it may still be wanted; False to pass it on."""
        self._begin(tasks)
        works = {work for work in self._adopting.table.works_of(scope) if _needs_session(work)}
        if not works:
            return False
        self._ends.append(_HeldEnd(upstream, request, works))
        self._adopting.told.held("session-end")
        return True

    def leave_session(self, scope: Scope) -> list[StreamToken]:
        """Detach every unanswered call of a session that is over; return the streams to keep for adopters."""
        table = self._adopting.table
        for entry in table.of_session(scope):
            entry.session_ended = True
            if entry.crosses_sessions and entry.work is not None:
                self._adopting.leave(entry)
            else:
                self._adopting.withdraw(entry)  # nobody else may take it
        return [work.stream.token for work in table.works_of(scope) if work.origin.crosses_sessions]

    async def _cancel(
        self, entry: AdoptableCall, work: CallWork, body: bytes, tasks: TaskGroup
    ) -> Cancellation:
        """A client that is there means it: the call is cancelled, and nobody adopts it."""
        work.state = Work.CANCELLED
        self._adopting.forget(entry)
        if work.origin is entry:
            return Cancellation.PASS
        tasks.start_soon(end_cancelled, work.stream, self._settle_s)
        tasks.start_soon(end_cancelled, entry.stream, self._settle_s)
        await send_in_session(work.origin, with_member(body, "requestId", work.origin.request_id))
        return Cancellation.TAKEN

    def _note_release(self, entry: AdoptableCall, work: CallWork | None) -> None:
        if work is None or self._tasks is None:
            return
        if entry.held_cancellation is not None and entry.is_forgotten and work.is_running:
            self._tasks.start_soon(send_in_session, work.origin, entry.held_cancellation)
            self._tasks.start_soon(end_cancelled, work.stream, self._settle_s)
        for end in [end for end in self._ends if work in end.works]:
            if not _needs_session(work):
                end.works.discard(work)
            if not end.works:
                self._ends.remove(end)
                self._tasks.start_soon(send_end, end.upstream, end.request)


def _needs_session(work: CallWork) -> bool:
    """Whether a work may still be wanted that runs in its session upstream."""
    return (
        work.is_running
        and work.origin.crosses_sessions
        and work.state is not Work.CANCELLED
        and not work.holder.is_forgotten
    )


async def send_end(upstream: Upstream, request: UpstreamRequest) -> None:
    """Send the end of a session that was held."""
    try:
        async with upstream.call(request):
            pass
    except UpstreamError:
        return  # a server that is gone has no session to end
