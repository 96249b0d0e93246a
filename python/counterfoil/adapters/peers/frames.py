"""Frames between processes of one gateway: a kind, a length, and so many bytes; `docs/wire.md`, section 8.

It holds no more than one read's bytes ahead, and no frame that is longer than its caller allows.
"""

from __future__ import annotations

import struct
from enum import IntEnum

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
    """What a frame is.  A request has a seal before it; an answer is a line, its body, and its end."""

    REQUEST = 1
    LINE = 2
    BODY = 3
    END = 4


END = _START.pack(Kind.END, 0)


def write_frame(kind: Kind, payload: bytes) -> bytes:
    return _START.pack(kind, len(payload)) + payload


def write_request(seal: bytes, envelope: bytes) -> bytes:
    """Return the frame of a request; without a seal where the kernel vouches for who sends it."""
    return _START.pack(Kind.REQUEST, 1 + len(seal) + len(envelope)) + bytes((len(seal),)) + seal + envelope


def read_request(payload: bytes) -> tuple[bytes | None, bytes]:
    """Return the seal, or None where there is none, and the envelope."""
    end = 1 + (payload[0] if payload else 0)
    return payload[1:end] or None, payload[end:]


class FrameReader:
    """Reads the frames of one connection; raises `PeerBroken`.  One task reads at a time."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._ahead = b""
        #: Of the body frame that is being read.
        self._left = 0

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing was read that belongs to a later frame."""
        return not self._ahead and not self._left

    async def frame(self, *, max_bytes: int) -> tuple[int, bytes] | None:
        """Return the next whole frame, with its kind; None where the connection ended before one.

        A body is not read whole: its frame is returned empty, and `piece` gives what is in it.
        """
        while len(self._ahead) < _START.size:
            if not await self._read_on():
                if self._ahead:
                    raise PeerBroken("a peer closed the connection in the middle of a frame")
                return None
        kind, length = _START.unpack_from(self._ahead)
        if kind == Kind.BODY:
            self._ahead, self._left = self._ahead[_START.size :], length
            return kind, b""
        if length > max_bytes:
            raise PeerBroken("a peer's frame is longer than any is")
        end = _START.size + length
        if len(self._ahead) < end:
            await self._read_whole(end)
        payload, self._ahead = self._ahead[_START.size : end], self._ahead[end:]
        return kind, payload

    async def piece(self) -> bytes:
        """Return the next bytes of the body frame that was begun; none once it is over."""
        if not self._left:
            return b""
        if not self._ahead and not await self._read_on():
            raise PeerBroken("a peer closed the connection in the middle of its answer")
        piece = self._ahead
        if len(piece) > self._left:
            piece, self._ahead = piece[: self._left], piece[self._left :]
        else:
            self._ahead = b""
        self._left -= len(piece)
        return piece

    async def wait_end(self) -> None:
        """Return once the other end has gone, or has sent more than a little that nobody asked for.

        What comes is kept: cancelling the wait loses nothing.
        """
        try:
            while len(self._ahead) < PIECE_BYTES and await self._read_on():
                pass
        except PeerBroken:
            return

    async def _read_whole(self, end: int) -> None:
        parts, size = [self._ahead], len(self._ahead)
        while size < end:
            if not (part := await self._read()):
                raise PeerBroken("a peer closed the connection in the middle of a frame")
            parts.append(part)
            size += len(part)
        self._ahead = b"".join(parts)

    async def _read_on(self) -> bool:
        part = await self._read()
        self._ahead += part
        return bool(part)

    async def _read(self) -> bytes:
        try:
            return await self._stream.receive(PIECE_BYTES)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise PeerBroken("a peer's connection broke") from error
