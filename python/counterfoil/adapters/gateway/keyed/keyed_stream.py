"""The stream of a keyed call: its outcome is in the ledger before anybody can read the answer.

Callers that wait for the same run follow it: they get its progress as it comes, and its questions when the
first caller is not there.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import msgspec
from counterfoil.adapters.gateway.adoption.connection import Connection
from counterfoil.adapters.gateway.adoption.questions import Questions
from counterfoil.adapters.gateway.adoption.rewriting import (
    Message,
    progress_token_of,
    read_rpc,
    with_progress_token,
)
from counterfoil.adapters.gateway.sessions import SessionFacts
from counterfoil.adapters.gateway.short_way import OnRelay
from counterfoil.adapters.gateway.streams import CallStream
from counterfoil.adapters.gateway.upstream import Take, Upstream, UpstreamRequest
from counterfoil.limits import Limits
from counterfoil.native import Scope, SseParser

#: Told of the answer (True) or of the in-band error (False), before it is appended.
OnEnd = Callable[[bytes, bool], Awaitable[None]]
#: Questions of one call that are kept for a caller who comes later.
_MAX_QUESTIONS = 64


class KeyedParty(msgspec.Struct, frozen=True, eq=False):
    """One caller of a keyed call."""

    stream: KeyedStream
    facts: SessionFacts
    upstream: Upstream
    request: UpstreamRequest

    @property
    def scope(self) -> Scope:
        return self.stream.scope


class KeyedStream(CallStream):
    """As `CallStream`; `on_end` is awaited once, before the event that ends the call is appended."""

    on_end: OnEnd | None = None

    async def open_feed(self, limits: Limits, on_relay: OnRelay) -> Take:
        """Return what takes an upstream's stream, piece by piece."""
        parser = SseParser(limits=limits, data="bytes")

        async def take(piece: bytes) -> None:
            began = time.perf_counter()
            events = parser.feed(piece)
            await self.append([event.data for event in events if event.data not in (b"", b"{}")])
            on_relay(time.perf_counter() - began)

        return take

    async def append(self, events: list[str] | list[bytes]) -> None:
        """Append a batch; the answer in it is recorded first.  Raises `AnswerTooLarge`."""
        said: list[tuple[bytes, Message | None]] = []
        for event in events:
            data = event.encode() if isinstance(event, str) else event
            message = read_rpc(data)
            if message is not None and message.is_answer:
                await self._note_end(data, is_answer=True)
            else:
                said.append((data, message))
        await super().append(events)
        if said and self.following is not None:
            await self.following.pass_on(said)

    async def settle(self, error: bytes) -> bool:
        """Record that there is no answer, then append the in-band error."""
        await self._note_end(error, is_answer=False)
        return await super().settle(error)

    #: Who follows the run whose events come here.
    following: Following | None = None

    async def _note_end(self, data: bytes, *, is_answer: bool) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            if is_answer:
                self.note_answer()
            await on_end(data, is_answer)


class Following:
    """The callers that wait for one run, the first one aside; it is told where that one's connection is."""

    def __init__(self, first: KeyedParty, questions: Questions) -> None:
        self._first = first
        self._questions = questions
        self._own_token = progress_token_of(first.request.body)
        self._followers: list[tuple[KeyedParty, bytes | None]] = []
        self._asked: list[Message] = []
        self._present: set[Connection] = set()

    def note_id(self) -> None:
        """An id was given to the first caller: nothing follows from that."""

    def note_handed_over(self, connection: Connection) -> None:
        """The first caller has its answer."""

    def note_attached(self, connection: Connection) -> None:
        """The first caller is there."""
        self._present.add(connection)

    def note_gone(self, connection: Connection) -> None:
        """The first caller has left: later questions go to who follows."""
        self._present.discard(connection)

    async def add(self, party: KeyedParty) -> None:
        """Let a caller follow; a question that nobody answers is put to it."""
        self._followers.append((party, progress_token_of(party.request.body)))
        if not self._present:
            for question in self._asked:
                await self._ask(party, question)

    def remove(self, party: KeyedParty) -> None:
        self._followers = [one for one in self._followers if one[0] is not party]

    async def pass_on(self, said: list[tuple[bytes, Message | None]]) -> None:
        """Give every follower what the server said, under its own progress token."""
        for data, message in said:
            if message is not None and message.is_request:
                if len(self._asked) < _MAX_QUESTIONS:
                    self._asked.append(message)
                if not self._present and self._followers:
                    await self._ask(self._followers[0][0], message)
                continue
            for party, token in self._followers:
                mine: bytes | None = data
                if message is not None and message.method == "notifications/progress":
                    mine = with_progress_token(message, self._own_token, token)
                if mine is not None:
                    await party.stream.append([mine])

    async def _ask(self, party: KeyedParty, question: Message) -> None:
        asked = await self._questions.pass_on(self._first, party, question)
        if asked is not None:
            await party.stream.append([asked])
