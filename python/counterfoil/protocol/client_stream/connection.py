"""Read one answer: its head, then its body, piece by piece, into the items of an event stream.

It lives for one connection and judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from counterfoil.errors import LimitExceeded
from counterfoil.limits import Limits
from counterfoil.model.evidence import Session
from counterfoil.native import SseBlock, SseComment, SseEvent, SseParser
from counterfoil.protocol.client_stream.foreign_ids import Declared, Order, compare_token, compare_window
from counterfoil.protocol.client_stream.gathered import Gathered, read_claim_or_none
from counterfoil.protocol.client_stream.statuses import Meaning, meaning_of
from counterfoil.protocol.client_stream.track import AskedWith
from counterfoil.protocol.continuity import HEADER

SESSION_HEADER = "mcp-session-id"
Item = SseEvent[bytes] | SseComment | SseBlock


class Kind(StrEnum):
    """What a response head opens."""

    STREAM = "stream"
    JSON = "json"
    CLAIM = "claim"  # a verdict, or another session, and no stream to read
    REFUSAL = "refusal"


class Connection:
    """One answer to one question; `is_post` says that the question was the call itself."""

    def __init__(self, asked: AskedWith, *, limits: Limits, is_resumable: bool, is_post: bool) -> None:
        self.asked = asked
        self.is_post = is_post
        self.gathered = Gathered(asked, is_resumable=is_resumable)
        self.kind = Kind.REFUSAL
        self.status = 0
        self.retry_after_ms: int | None = None
        self.token: str | None = None
        self._limits = limits
        self._json = bytearray()
        self._parser: SseParser[Item] = SseParser(
            limits=limits, data="bytes", comments=True, blocks=True, last_event_id=asked.event_id or None
        )

    def read_head(
        self,
        status: int,
        headers: Mapping[str, str],
        *,
        session_id: str | None,
        declared: Declared,
        token: str | None,
    ) -> Kind:
        """Take the response head and return what it opens; a claim counts on any status."""
        self.status = status
        self.retry_after_ms = _retry_after_ms(headers.get("retry-after"))
        answered_by = headers.get(SESSION_HEADER)
        if None not in (session_id, answered_by) and answered_by != session_id:
            self.gathered.session = Session.REPLACED
        claim = read_claim_or_none(headers.get(HEADER.lower(), ""))
        if claim is not None:
            self.gathered.note_claim(claim)
        if declared.order is Order.SPARSE:
            self.token = headers.get(declared.token_header)
            self.gathered.token = compare_token(self.token, token)
            window = headers.get(declared.window_header)
            self.gathered.window = compare_window(window, self.asked.number)
        self.kind = self._kind_of(status, headers.get("content-type", ""))
        if self.kind is not Kind.STREAM:
            self.gathered.note_line()
        return self.kind

    def _kind_of(self, status: int, content_type: str) -> Kind:
        media_type = content_type.partition(";")[0].strip().lower()
        if meaning_of(status) is Meaning.ACCEPTED:
            if media_type == "text/event-stream":
                return Kind.STREAM
            if media_type == "application/json" and self.is_post:
                return Kind.JSON
        judgeable = self.gathered.has_claim or self.gathered.session is Session.REPLACED
        return Kind.CLAIM if judgeable else Kind.REFUSAL

    def feed(self, chunk: bytes) -> list[Item]:
        """Take the next bytes and return what they complete.

        Raises `LimitExceeded` where a line, an event or a JSON body passes its bound.
        """
        if self.kind is Kind.STREAM:
            return self._parser.feed(chunk)
        if self.kind is Kind.JSON:
            self._json += chunk
            if len(self._json) > self._limits.event_bytes:
                raise self._too_large()
        return []

    def _too_large(self) -> LimitExceeded:
        limit = self._limits.event_bytes
        error = LimitExceeded(f"a JSON answer is longer than Limits.event_bytes={limit}")
        error.bound, error.limit = "event_bytes", limit
        return error

    @property
    def json(self) -> bytes:
        """The JSON body so far."""
        return bytes(self._json)

    @property
    def retry_ms(self) -> int | None:
        """The `retry` that this connection gave, None where it gave none."""
        return self._parser.reconnection_time_ms


def _retry_after_ms(text: str | None) -> int | None:
    # Only the form in seconds: the other one needs a clock that agrees with the server's.
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 9):
        return None
    return int(text) * 1000
