"""Looks at what a peer sends in the name of a stream: head, claim, and the stream that each event ID names.

It buffers no event, and cuts off what cannot be true.
"""

from __future__ import annotations

import re

from counterfoil.adapters.gateway.wire.upstream_port import header_of
from counterfoil.adapters.peers.frames import Piece
from counterfoil.adapters.peers.wire import Head
from counterfoil.errors import ForeignEventId, MalformedEventId, PeerBroken, UnknownEventIdVersion
from counterfoil.model.tokens import VerdictToken
from counterfoil.native import EventId, KeyCheck, KeyRing, Scope, ids_agree

_FIELD_NAME = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
_NO_VALUE = re.compile(rb"[\r\n\0]")
#: A claim as we write it has one; what else it says is the client's to read.
_VERDICT = re.compile(rb"(?:^|, )verdict=(?:%s)(?:,|$)" % "|".join(VerdictToken).encode())
_FIELDS_BYTES = 64 << 10
#: No id of ours and what stands before it is longer.
_LINE_START_BYTES = 160


def check_head(head: Head, *, resumes: bool) -> None:
    """Raise `PeerBroken` for a head that no gateway sends; `resumes`: it answers a GET of a stream."""
    if not 200 <= head.status <= 599:
        raise PeerBroken("a peer sent a status that is none")
    size = 0
    for name, value in head.headers:
        size += len(name) + len(value)
        if not name or not _FIELD_NAME.issuperset(name) or _NO_VALUE.search(value):
            raise PeerBroken("a peer sent a header field that is none")
    if size > _FIELDS_BYTES:
        raise PeerBroken("a peer sent too many header fields")
    if resumes and head.status == 200:
        claim = header_of(head.headers, b"stream-continuity")
        if claim is None or not _VERDICT.search(claim):
            raise PeerBroken("a peer resumed a stream without a verdict")


class StreamCheck:
    """Takes the pieces of a stream and raises `PeerBroken` at the first event of another one.

    `stream` is the text of its token; where it is not known yet, the first ID says it and must be ours.
    """

    def __init__(self, keys: KeyRing, scope: Scope, stream: str | None) -> None:
        self._keys = keys
        self._scope = scope
        self._prefix = b"\nid: cf1.%s." % stream.encode() if stream is not None else None
        self._start = b"\n"

    def take(self, piece: Piece) -> None:
        text, begin, end = piece
        first, last = text.find(b"\n", begin, end), text.rfind(b"\n", begin, end)
        if first < 0:
            self._look_at(text, begin, end, end, end)
            self._start = (self._start + text[begin : min(end, begin + _LINE_START_BYTES)])[
                :_LINE_START_BYTES
            ]
            return
        # What stands behind the last line end is looked at again with what follows it.
        line = self._start + text[begin : min(first, begin + _LINE_START_BYTES)]
        self._look_at(line, 0, 0, len(line), len(line))
        self._look_at(text, begin, first, last, end)
        self._start = text[last : min(end, last + _LINE_START_BYTES)]

    def _look_at(self, text: bytes, begin: int, first: int, last: int, end: int) -> None:
        if self._prefix is None and text.find(b"\nid", first, last) >= 0:
            self._prefix = self._learn(text[first:last])
        if not ids_agree(text, self._prefix or b"\n", begin, first, last, end):
            raise PeerBroken("a peer sent an event of another stream, or bytes that no event of ours has")

    def _learn(self, lines: bytes) -> bytes:
        begin = lines.index(b"\nid") + len(b"\nid: ")
        end = lines.find(b"\n", begin)
        text = lines[begin : end if end >= 0 else len(lines)].decode("latin-1")
        try:
            event_id = EventId.parse(text)
        except (ForeignEventId, MalformedEventId, UnknownEventIdVersion) as error:
            raise PeerBroken("a peer sent an event whose ID is not ours") from error
        if self._keys.check(self._scope, event_id) != KeyCheck.VERIFIED:
            raise PeerBroken("a peer sent an event of another scope")
        return b"\nid: cf1.%s." % str(event_id.stream).encode()
