"""The stream of a keyed call, and the callers that wait for the same run.

They get its progress as it comes, and its questions when the first caller is not there.
"""

from __future__ import annotations

import msgspec

from counterfoil.adapters.gateway.adoption.questions import Questions
from counterfoil.adapters.gateway.calls.connection import Connection
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.streams.recorded_stream import RecordedStream, Said
from counterfoil.adapters.gateway.wire.rewriting import (
    Message,
    progress_token_of,
    read_rpc,
    with_progress_token,
)
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamRequest
from counterfoil.native import Scope

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


class KeyedStream(RecordedStream):
    """As `RecordedStream`; callers of the same run follow it."""

    following: Following | None = None

    async def pass_on(self, said: Said) -> None:
        """Give everybody who follows what the server said."""
        if self.following is not None:
            await self.following.pass_on(said)


class Following:
    """The callers that wait for one run, the first one aside; it is told where that one's connection is."""

    def __init__(self, first: KeyedParty, questions: Questions) -> None:
        self._first = first
        self._questions = questions
        #: Read when somebody follows.
        self._own_token: bytes | None = None
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
        if not self._followers:
            self._own_token = progress_token_of(self._first.request.body)
        self._followers.append((party, progress_token_of(party.request.body)))
        if not self._present:
            for question in self._asked:
                await self._ask(party, question)

    def remove(self, party: KeyedParty) -> None:
        self._followers = [one for one in self._followers if one[0] is not party]

    async def pass_on(self, said: Said) -> None:
        """Give every follower what the server said, under its own progress token."""
        for data, message in said:
            if message is not None and message.is_request:
                if len(self._asked) < _MAX_QUESTIONS:
                    self._asked.append(message)
                if not self._present and self._followers:
                    await self._ask(self._followers[0][0], message)
            elif self._followers:
                await self._tell(data, message if message is not None else read_rpc(data))

    async def _tell(self, data: bytes, message: Message | None) -> None:
        is_progress = message is not None and message.method == "notifications/progress"
        for party, token in list(self._followers):
            mine: bytes | None = data
            if is_progress and message is not None:
                mine = with_progress_token(message, self._own_token, token)
            if mine is not None:
                await party.stream.append([mine])

    async def _ask(self, party: KeyedParty, question: Message) -> None:
        asked = await self._questions.pass_on(self._first, party, question)
        if asked is not None:
            await party.stream.append([asked])
