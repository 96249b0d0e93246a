"""The same schedules against the real replay store: its rows, its windows, its frames, its readers.

Ids and epochs are drawn by the store, so a seed fixes what happens but not the bytes.
"""

from __future__ import annotations

from counterfoil.adapters.gateway.resuming.replies import claim_of
from counterfoil.adapters.gateway.streams.ids_out import strip_ids
from counterfoil.errors import ReaderTooSlow, StreamEnded, TakenOver
from counterfoil.limits import Limits
from counterfoil.model.tokens import Next, StreamKind, VerdictToken, Why
from counterfoil.native import EventId
from counterfoil.protocol.continuity import (
    CommentKind,
    ConnectionComment,
    ContinuityClaim,
    Want,
    read_request,
    write_claim,
    write_comment,
)
from counterfoil.stores.memory import ReplayStore
from counterfoil.stores.replay.reader import Reader
from world.history import REQUEST_ID, RING, SCOPE, Happening
from world.schedule import Fault, Schedule
from world.servers import SSE, Reply

#: Small windows, so that a reader that is away for a while finds a gap.
LIMITS = Limits(window_events=4)


class StoreHistory:
    """One stream in a store of its own: a replica, or a process after a restart."""

    scheme = "cf1"

    def __init__(self, kind: StreamKind) -> None:
        self.kind = kind.value
        self.store = ReplayStore(limits=LIMITS, keys=RING, clock=lambda: 0.0)
        self.store.open_session(SCOPE)
        is_call = kind is StreamKind.CALL
        self.token = (
            self.store.open_call(SCOPE, [REQUEST_ID]) if is_call else self.store.open_standalone(SCOPE)
        )
        self.events: list[Happening] = []
        self.start = 0
        self._by_id: dict[str, Happening] = {}

    @property
    def last(self) -> int:
        return len(self.events)

    @property
    def is_answered(self) -> bool:
        return any(event.is_answer for event in self.events)

    def append(self, event: Happening) -> None:
        self._by_id[self.store.append(SCOPE, self.token, event.data)] = event
        self.events.append(event)

    def truth(self, event_id: str) -> Happening | None:
        return self._by_id.get(event_id)


class StoreReply(Reply):
    """An answer that is read from a reader of the store, as the gateway reads it."""

    def __init__(self, history: StoreHistory, reader: Reader, claim: ContinuityClaim) -> None:
        super().__init__(200, SSE | {"stream-continuity": write_claim(claim)}, history)  # type: ignore[arg-type]
        self._reader = reader
        self._store = history.store
        self._token = history.token
        self.is_answer_only = reader.is_answers_only
        self.pieces.append(write_comment(claim))
        if reader.echo_id is not None and not self.is_answer_only:
            self.pieces.append(f"id: {reader.echo_id}\ndata:\n\n".encode())

    def pump(self) -> None:
        while not self.is_closed:
            try:
                frames = self._reader.read()
            except (StreamEnded, ReaderTooSlow, TakenOver) as end:
                self._end(end)
                return
            if not frames:
                return
            if self.is_answer_only:
                frames = strip_ids(frames)
            self.pieces += [frame + b"\n\n" for frame in frames.split(b"\n\n") if frame]

    def _end(self, end: Exception) -> None:
        why = {ReaderTooSlow: Why.SLOW, TakenOver: Why.SUPERSEDED}.get(type(end), Why.CLOSED)
        self.pieces.append(self._comment(CommentKind.END, None, why))
        self.is_closed = True

    def beat(self, kind: CommentKind, why: Why | None = None) -> None:
        if self.is_closed or not self._reader.has_caught_up:
            return
        last = None if self.is_answer_only else self._reader.position
        self.pieces.append(self._comment(kind, last, why))

    def _comment(self, kind: CommentKind, last: int | None, why: Why | None) -> bytes:
        text = self._store.position_id(SCOPE, self._token, self._reader.position or 0)
        if text is None:
            return b": still here\n\n"
        return write_comment(
            ConnectionComment(kind=kind, epoch=EventId.parse(text).epoch, last=last, why=why)
        )


class StoreServer:
    """Answers as the gateway does: the verdict of the store, its claim, and a status for a strict client."""

    def open_call(self, history: StoreHistory) -> Reply:
        reader = history.store.attach(SCOPE, history.token, aware=True)
        epoch = EventId.parse(reader.echo_id or "").epoch
        claim = ContinuityClaim(
            verdict=VerdictToken.NEW, why=Why.FIRST, next=Next.CONTINUE, epoch=epoch, after=0
        )
        return StoreReply(history, reader, claim)

    def resume(self, history: StoreHistory, headers: dict[str, str]) -> Reply:
        wanted = read_request(headers["stream-continuity"]).want
        cursor = headers.get("last-event-id")
        reader = history.store.resume(SCOPE, cursor, aware=True, want_new=Want.NEW in wanted)
        assert reader.answer is not None
        claim = claim_of(reader.verdict, reader.answer, cursor=cursor)
        if reader.is_attached:
            return StoreReply(history, reader, claim)
        status = {Next.RETRY: 503, Next.DONE: 405}.get(reader.verdict.next, 409)
        return Reply(status, {"mcp-session-id": "s", "stream-continuity": write_claim(claim)})


class StoreSchedule(Schedule):
    """A schedule whose servers are real stores; what only a lie could do is not among its faults."""

    WITHOUT = frozenset({"trim", "restart_higher", "rewrite_tail", "poll", "stale_header", "splice"})

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.faults = Fault({name: rate for name, rate in self.faults.items() if name not in self.WITHOUT})
        self.scheme = "cf1"
        self.is_plain = False
        self.server = StoreServer()  # type: ignore[assignment]
        self.replicas = [self._new_history(), self._new_history()]
        self.stream = self._new_stream(None)

    def _new_history(self, **_: object) -> StoreHistory:  # type: ignore[override]
        return StoreHistory(self.kind)

    def _open_call(self) -> Reply:
        assert isinstance(self.server, StoreServer)
        return self.server.open_call(self.history)  # type: ignore[arg-type]
