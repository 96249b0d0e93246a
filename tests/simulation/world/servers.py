"""How a simulated server answers: one that knows `Stream-Continuity`, and stock ones that guess.

Each answer is a status, headers and a body that goes on; which history stands behind it is the truth that
only the simulation knows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from counterfoil.errors import ForeignEventId, MalformedEventId, UnknownEventIdVersion
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
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
from world.history import History

SSE = {"content-type": "text/event-stream", "mcp-session-id": "s"}


@dataclass
class Reply:
    """One answer, as the server sees it: `position` is the last sequence that it wrote here."""

    status: int
    headers: dict[str, str]
    history: History | None = None
    pieces: list[bytes] = field(default_factory=list)
    position: int = 0
    is_answer_only: bool = False
    is_other_session: bool = False
    is_closed: bool = False
    loses_comments: bool = False

    def pump(self) -> None:
        """Write what has been appended since."""
        history = self.history
        if history is None or self.is_closed:
            return
        while self.position < history.last:
            self.position += 1
            event = history.event(self.position)
            if event.is_answer or not self.is_answer_only:
                history.was_written = True
                # A stock server pushes what it has; ours reads its log, which may have been trimmed.
                if history.scheme != "cf1" or self.position >= history.first or event.is_answer:
                    frame = history.frame(self.position)
                    self.pieces.append(without_id(frame) if self.is_answer_only else frame)

    def beat(self, kind: CommentKind, why: Why | None = None) -> None:
        if self.history is None or self.history.scheme != "cf1" or self.is_closed:
            return
        last = None if self.is_answer_only else self.position
        self.pieces.append(
            write_comment(ConnectionComment(kind=kind, epoch=self.history.epoch, last=last, why=why))
        )


def echo_of_refusal(cursor: EventId) -> list[bytes]:
    """None to an aware client: where the claim is lost on its way it would read as an acceptance."""
    return []


def without_id(frame: bytes) -> bytes:
    """To a client whose cursor was refused no id is shown: one that follows it would read as a proof."""
    return b"\n".join(line for line in frame.split(b"\n") if not line.startswith(b"id: "))


def open_call(history: History) -> Reply:
    """The answer to the POST of a call."""
    reply = Reply(200, dict(SSE), history, position=history.start)
    if history.scheme == "cf1":
        claim = ContinuityClaim(
            verdict=VerdictToken.NEW,
            why=Why.FIRST,
            epoch=history.epoch,
            after=history.start,
            digest=history.digest(history.start),
        )
        reply.headers["stream-continuity"] = write_claim(claim)
        reply.pieces.append(write_comment(claim))
    reply.pieces.append(history.echo(history.start))
    return reply


def refuse(claim: ContinuityClaim) -> Reply:
    return Reply(409, {"mcp-session-id": "s", "stream-continuity": write_claim(claim)})


class AwareServer:
    """Decides by the server's table: exact, and in one step."""

    def resume(self, history: History, headers: dict[str, str]) -> Reply:
        wants_new = Want.NEW in read_request(headers["stream-continuity"]).want
        text = headers.get("last-event-id")
        if wants_new or (text is None and not history.was_written):
            return self._attach(history, VerdictToken.NEW, history.last if wants_new else history.first - 1)
        if text is None:
            return self._refuse(VerdictToken.UNVERIFIABLE, Why.NO_CURSOR, history)
        try:
            cursor = EventId.parse(text)
        except (ForeignEventId, UnknownEventIdVersion, MalformedEventId):
            return self._refuse(VerdictToken.UNVERIFIABLE, Why.FOREIGN_ID, history)
        if str(cursor.stream) != str(history.token):
            return self._refuse(VerdictToken.UNVERIFIABLE, Why.UNKNOWN_STREAM, history, names_epoch=False)
        if cursor.epoch != history.epoch:
            return self._lose(VerdictToken.REORIGINATED, Why.EPOCH, history, cursor)
        if cursor.sequence > history.last:
            return self._lose(VerdictToken.REORIGINATED, Why.AHEAD, history, cursor)
        if cursor.sequence < history.first - 1:
            return self._lose(VerdictToken.GAP, Why.TRIMMED, history, cursor)
        if cursor.digest != history.digest(cursor.sequence):
            return self._lose(VerdictToken.REORIGINATED, Why.DIVERGED, history, cursor)
        return self._attach(history, VerdictToken.RESUMED, cursor.sequence)

    def _attach(self, history: History, verdict: VerdictToken, after: int) -> Reply:
        claim = ContinuityClaim(
            verdict=verdict,
            next=Next.CONTINUE,
            epoch=history.epoch,
            after=after,
            last=history.last,
            digest=history.digest(after),
        )
        headers = SSE | {"stream-continuity": write_claim(claim)}
        pieces = [write_comment(claim), history.echo(after)]
        return Reply(200, headers, history, pieces, position=after)

    def _lose(self, verdict: VerdictToken, why: Why, history: History, cursor: EventId) -> Reply:
        if history.kind != "call":
            return self._refuse(verdict, why, history)
        lost = (cursor.sequence + 1, history.first - 1) if verdict is VerdictToken.GAP else (None, None)
        claim = ContinuityClaim(
            verdict=verdict, why=why, next=Next.CONTINUE, epoch=history.epoch, first=lost[0], last=lost[1]
        )
        headers = SSE | {"stream-continuity": write_claim(claim)}
        pieces = [write_comment(claim), *echo_of_refusal(cursor)]
        return Reply(200, headers, history, pieces, history.start, is_answer_only=True)

    def _refuse(
        self, verdict: VerdictToken, why: Why, history: History, *, names_epoch: bool = False
    ) -> Reply:
        epoch = history.epoch if names_epoch else None
        return refuse(
            ContinuityClaim(
                verdict=verdict, why=why, next=Next.RECONCILE, executed=Executed.UNKNOWN, epoch=epoch
            )
        )


class StockServer:
    """Knows opaque ids and nothing else; what it does with an id that it never issued is the lie."""

    LIES = ("silent", "fresh", "oldest", "newest-echo", "refuse")

    def __init__(self, rng: random.Random) -> None:
        self._lie = rng.choice(self.LIES)
        self._is_inclusive = rng.random() < 0.3

    def resume(self, history: History, headers: dict[str, str]) -> Reply:
        text = headers.get("last-event-id")
        reply = Reply(200, dict(SSE), history, position=history.last)
        if text is None:
            return reply
        found = history.find(text)
        if found is not None and found >= history.first - 1:
            is_repeated = self._is_inclusive and found > max(history.start, history.first - 1)
            reply.position = found - 1 if is_repeated else found
            return reply
        return self._lie_about(history, reply)

    def _lie_about(self, history: History, reply: Reply) -> Reply:
        match self._lie:
            case "silent":
                reply.history = None
            case "oldest":
                reply.position = history.first - 1
            case "newest-echo":
                reply.pieces.append(history.echo(history.last))
            case "refuse":
                return Reply(400, {"mcp-session-id": "s"})
        return reply


def cut_somewhere(rng: random.Random, data: bytes) -> Iterator[bytes]:
    """The same bytes in pieces of any size."""
    position = 0
    while position < len(data):
        size = rng.choice((1, 3, 17, 64, 4096))
        yield data[position : position + size]
        position += size
