"""Looks at what a peer sends in the name of a stream: head, claim, and the stream that each event ID names.

It buffers no event, and cuts off what cannot be true.
"""

from __future__ import annotations

from contextlib import suppress

from counterfoil.adapters.gateway.wire.upstream_port import header_of
from counterfoil.adapters.peers.wire import Head
from counterfoil.errors import (
    ContinuityError,
    ForeignEventId,
    MalformedEventId,
    PeerBroken,
    UnknownEventIdVersion,
)
from counterfoil.native import EventId, KeyCheck, KeyRing, Scope
from counterfoil.protocol.continuity import read_claim

_FIELD_NAME = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
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
        if not name or not _FIELD_NAME.issuperset(name) or any(byte in b"\r\n\0" for byte in value):
            raise PeerBroken("a peer sent a header field that is none")
    if size > _FIELDS_BYTES:
        raise PeerBroken("a peer sent too many header fields")
    if resumes and head.status == 200:
        claim = header_of(head.headers, b"stream-continuity")
        with suppress(ContinuityError):
            if claim is not None and read_claim(claim).verdict is not None:
                return
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

    def take(self, piece: bytes) -> None:
        if b"\r" in piece or b"\0" in piece:
            raise PeerBroken("a peer sent bytes that no event of ours has")
        text = self._start + piece
        # What stands behind the last line end is looked at again with what follows it.
        cut = text.rfind(b"\n")
        self._start = text[cut : cut + _LINE_START_BYTES]
        lines = text[:cut]
        if self._prefix is None and b"\nid" in lines:
            self._prefix = self._learn(lines)
        if self._prefix is not None and lines.count(b"\nid") != lines.count(self._prefix):
            raise PeerBroken("a peer sent an event of another stream")

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
