"""The streams of one SDK session, under the SDK's names for them: `str(request id)`, or one fixed name.

It must not know the SDK's models.  A wrapper may put a prefix before every name; it is learnt from the first
answer, whose id is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from counterfoil.errors import AnswerTooLarge, StreamEnded, UnknownStream
from counterfoil.model.tokens import Executed, Why
from counterfoil.native import Scope, StreamToken
from counterfoil.protocol.inband_error import InbandError, write_inband_error
from counterfoil.stores.replay.reader import Reader
from counterfoil.stores.replay.store import ReplayStore

RequestId = int | str

#: The SDK's name of the standalone stream; every other name is that of a request.
STANDALONE = "_GET_stream"
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,15})")
#: Names of ended calls whose request id has no place in a stream token.
_MAX_LONG_NAMES = 256


class SessionStreams:
    """One session's part of a replay store; every call is synchronous."""

    def __init__(self, store: ReplayStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._live: dict[str, StreamToken] = {}
        self._long_names: dict[StreamToken, str] = {}
        self._prefix: str | None = None
        self._has_text_ids = False

    def prime(self, name: str) -> str:
        """Open the stream of a request that begins now; returns the id of the position before any event.

        Raises `StoreFull`.
        """
        if name.endswith(STANDALONE):
            return ""  # the SDK primes this one only after a replay
        earlier = self._live.pop(name, None)
        if earlier is not None:
            self._end(earlier)
        return self._store.position_id(self._scope, self._open(name), 0) or ""

    def append(self, name: str, data: bytes, answers: RequestId | None) -> str:
        """Append one message and return its event id; `answers` is the request id that it settles.

        Raises `StoreFull` where a stream has to be opened, `AnswerTooLarge` once the call is settled, and
        `StreamEnded` for what comes behind an answer.
        """
        token = self._live.get(name) or self._open(name)
        try:
            event_id = self._store.append(self._scope, token, data)
        except UnknownStream:  # forgotten after hours without an event
            token = self._open(name)
            event_id = self._store.append(self._scope, token, data)
        except AnswerTooLarge:
            self._settle_too_large(name, token, answers)
            raise
        if answers is not None and token.kind == "call":
            self._note_answer(name, token, answers)
        return event_id

    def resume(self, last_event_id: str) -> Reader:
        """Decide a resume; a lost standalone stream is not attached."""
        return self._store.resume(self._scope, last_event_id)

    def settle(self, token: StreamToken, error: bytes) -> None:
        """Append the in-band error as a call's terminal event, unless it has one."""
        self._store.settle(self._scope, token, error)

    def name_of(self, token: StreamToken | None) -> str | None:
        """Return the SDK's name of a stream; None where it cannot be told."""
        if token is None:
            return None
        if token.kind == "standalone":
            return (self._prefix or "") + STANDALONE
        for name, live in self._live.items():
            if live == token:
                return name
        if token.request_id is not None:
            return (self._prefix or "") + str(token.request_id)
        return self._long_names.get(token)

    def request_id_of(self, token: StreamToken | None) -> RequestId | None:
        """Return the typed request id that an error for this stream must carry; None where none is known."""
        if token is None or token.kind != "call":
            return None
        if token.request_id is not None:
            return token.request_id
        name = self.name_of(token)
        return self._read_name(name) if name is not None else None

    def close(self) -> None:
        """Forget the session, its streams and what they hold."""
        self._store.delete_session(self._scope)

    def _open(self, name: str) -> StreamToken:
        if name.endswith(STANDALONE):
            token = self._store.open_standalone(self._scope)
        else:
            token = self._store.open_call(self._scope, [self._read_name(name)])
        self._live[name] = token
        return token

    def _read_name(self, name: str) -> RequestId:
        """Give a request id its type back: the SDK's name for 7 and for "7" is the same."""
        text = name.removeprefix(self._prefix or "")
        if not self._has_text_ids and _INTEGER.fullmatch(text) and text != "-0":
            return int(text)
        return text

    def _note_answer(self, name: str, token: StreamToken, answers: RequestId) -> None:
        self._live.pop(name, None)
        if self._prefix is None and name.endswith(str(answers)):
            self._prefix = name[: len(name) - len(str(answers))]
            # A client's ids are of one kind, and the first answer shows which.
            self._has_text_ids = isinstance(answers, str)
        if token.request_id is None:
            self._long_names[token] = name
            if len(self._long_names) > _MAX_LONG_NAMES:
                del self._long_names[next(iter(self._long_names))]
        if token.request_id != answers:
            self._end(token)

    def _end(self, token: StreamToken) -> None:
        try:
            self._store.end_stream(self._scope, token)
        except (StreamEnded, UnknownStream):
            return  # it has its answer: that is how it should end

    def _settle_too_large(self, name: str, token: StreamToken, answers: RequestId | None) -> None:
        error = InbandError(request_id=answers, why=Why.TOO_LARGE, executed=Executed.YES)
        self._store.settle(self._scope, token, write_inband_error(error))
        self._live.pop(name, None)


def read_events(reader: Reader) -> Iterator[tuple[str, bytes]]:
    """Read the ID and the data of everything that there is now, appends during the reading included.

    Raises `ReaderTooSlow` when the window moved past the reader, and `TakenOver` when a newer resume reads;
    ends quietly at the stream's end.
    """
    while True:
        try:
            events = reader.read_events()
        except StreamEnded:
            return
        if not events:
            return
        yield from zip(events.ids, events.data, strict=True)
