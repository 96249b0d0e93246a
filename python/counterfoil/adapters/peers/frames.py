"""Frames between processes of one gateway: a kind, a length, and so many bytes; `docs/wire.md`, section 8.

It holds no more than one read's bytes ahead, and no frame that is longer than its caller allows.
"""

from __future__ import annotations

import struct
from contextlib import nullcontext
from enum import IntEnum
from typing import NamedTuple

import anyio
from anyio.abc import ByteStream

from counterfoil.errors import PeerBroken

_START = struct.Struct(">BI")
#: Of one read: an answer of many events then passes in few pieces.
PIECE_BYTES = 256 << 10
#: What an unsealed, unreadable or unwanted request is told: in HTTP, as whoever sends one may speak that.
_REFUSAL = b"HTTP/1.1 %d %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
REFUSED = {400: _REFUSAL % (400, b"Bad Request"), 401: _REFUSAL % (401, b"Unauthorized")}


class Kind(IntEnum):
    """What a frame is.  A request has a seal before it; an answer is a line and the parts of its body."""

    REQUEST = 1
    LINE = 2
    BODY = 3
    LAST = 4


END = _START.pack(Kind.LAST, 0)
_BODIES = (Kind.BODY, Kind.LAST)


def write_frame(kind: Kind, payload: bytes) -> bytes:
    return _START.pack(kind, len(payload)) + payload


def start_body(body: bytes, *, is_last: bool) -> bytes:
    """Return what stands before a part of a body in its frame."""
    return _START.pack(Kind.LAST if is_last else Kind.BODY, len(body))


def write_request(seal: bytes, envelope: bytes) -> bytes:
    """Return the frame of a request; without a seal where the kernel vouches for who sends it."""
    return _START.pack(Kind.REQUEST, 1 + len(seal) + len(envelope)) + bytes((len(seal),)) + seal + envelope


def read_request(payload: bytes) -> tuple[bytes | None, bytes]:
    """Return the seal, or None where there is none, and the envelope."""
    end = 1 + (payload[0] if payload else 0)
    return payload[1:end] or None, payload[end:]


class Piece(NamedTuple):
    """Bytes of a body where they were read, which are not copied to be passed on."""

    text: bytes
    begin: int
    end: int

    @property
    def view(self) -> memoryview:
        return memoryview(self.text)[self.begin : self.end]


NOTHING = Piece(b"", 0, 0)


class FrameReader:
    """Reads the frames of one connection; raises `PeerBroken`.  One task reads at a time.

    `large` bounds how many frames above `PIECE_BYTES` are read at once, those of other connections included.
    """

    def __init__(self, stream: ByteStream, large: anyio.Semaphore | None = None) -> None:
        self._stream = stream
        self._large = large
        #: What was read, and how much of that is used up: what follows is not moved for each frame.
        self._ahead = b""
        self._used = 0
        #: Of the body frame that is being read.
        self._left = 0
        self._is_last = False

    @property
    def has_last(self) -> bool:
        """Whether all of an answer's body was given out."""
        return self._is_last and not self._left

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing was read that belongs to a later frame."""
        return self._used == len(self._ahead) and not self._left

    async def frame(self, *, max_bytes: int) -> tuple[int, bytes] | None:
        """Return the next whole frame, with its kind; None where the connection ended before one.

        A body is not read whole: its frame is returned empty, and `piece` gives what is in it.
        """
        if not await self._have(_START.size):
            return None
        kind, length = _START.unpack_from(self._ahead, self._used)
        if kind in _BODIES:
            self._used, self._left, self._is_last = self._used + _START.size, length, kind == Kind.LAST
            return kind, b""
        self._is_last = False
        if length > max_bytes:
            raise PeerBroken("a peer's frame is longer than any is")
        async with self._large if self._large is not None and length > PIECE_BYTES else nullcontext():
            await self._have(_START.size + length)
        begin = self._used + _START.size
        self._used = begin + length
        return kind, self._ahead[begin : self._used]

    async def piece(self) -> Piece:
        """Return the next bytes of the body frame that was begun; none once it is given out."""
        if not self._left:
            return NOTHING
        if self._used == len(self._ahead):
            self._ahead, self._used = await self._read(), 0
            if not self._ahead:
                raise PeerBroken("a peer closed the connection in the middle of its answer")
        begin, self._used = self._used, min(self._used + self._left, len(self._ahead))
        self._left -= self._used - begin
        return Piece(self._ahead, begin, self._used)

    async def wait_end(self) -> None:
        """Return once the other end has gone, or has sent more than a little that nobody asked for.

        What comes is kept: cancelling the wait loses nothing.
        """
        try:
            while len(self._ahead) - self._used < PIECE_BYTES:
                part = await self._read()
                if not part:
                    return
                self._ahead, self._used = self._ahead[self._used :] + part, 0
        except PeerBroken:
            return

    async def _have(self, size: int) -> bool:
        """Read until there is so much; False where the connection has ended before anything of it."""
        have = len(self._ahead) - self._used
        if have >= size:
            return True
        parts = [self._ahead[self._used :]] if have else []
        while have < size:
            if not (part := await self._read()):
                if not have:
                    return False
                raise PeerBroken("a peer closed the connection in the middle of a frame")
            parts.append(part)
            have += len(part)
        self._ahead, self._used = b"".join(parts) if len(parts) > 1 else parts[0], 0
        return True

    async def _read(self) -> bytes:
        try:
            return await self._stream.receive(PIECE_BYTES)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise PeerBroken("a peer's connection broke") from error
