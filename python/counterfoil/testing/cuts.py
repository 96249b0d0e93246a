"""Says after which byte of a response a connection breaks; knows HTTP/1.1 framing and SSE lines, does no I/O.

The link and tests of users call it; a given cut falls on the same byte however the bytes arrive.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Literal, get_args

import msgspec

CutPlace = Literal[
    "before-head", "at-byte", "in-frame", "between-cr-lf", "in-character", "after-frame", "after-last"
]
CutKind = Literal["fin", "rst"]

#: The places that lie behind the first event ID when `frames` is at least 1.
PLACES_AFTER_ID: tuple[CutPlace, ...] = (
    "in-frame",
    "between-cr-lf",
    "in-character",
    "after-frame",
    "after-last",
)

_CR, _LF = 0x0D, 0x0A


class Cut(msgspec.Struct, frozen=True):
    """One place in a response where the connection breaks, and how.

    `frames` counts whole SSE blocks with an `id` or `data` field, so `frames=1` is behind the first event
    ID of a primed stream.  `position` is in bytes: of the response (`at-byte`) or of the frame (`in-frame`).
    """

    place: CutPlace
    how: CutKind = "fin"
    frames: int = 0
    position: int = 1


def draw_cut(rng: random.Random, *, frames: int = 1, deepest: int = 4) -> Cut:
    """Draw a cut behind `frames` whole frames, at most `deepest` later; the same seed draws the same cut."""
    place = rng.choice(PLACES_AFTER_ID)
    how: CutKind = rng.choice(get_args(CutKind))
    return Cut(place, how, frames=rng.randint(frames, frames + deepest), position=rng.randint(1, 60))


class CutPoint:
    """Walks one HTTP/1.1 response and says where the cut falls; feed it all that the server sends."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self._passed = 0
        self._frames = 0
        self._inside = 0  # bytes of the frame that is open now
        self._walk = _walk_response()
        next(self._walk)
        self._frame = _FrameEnds()

    def feed(self, data: bytes) -> int | None:
        """Return how many bytes of `data` still pass before the break, or None if it is not in them."""
        if self.cut.place == "before-head":
            return 0
        for index, byte in enumerate(data):
            if self._advance(byte):
                return index + 1
        return None

    def _advance(self, byte: int) -> bool:
        part = self._walk.send(byte)
        self._passed += 1
        ended = part == "body" and self._frame.step(byte)
        self._inside = 0 if ended else self._inside + (part == "body")
        self._frames += ended
        return self._is_here(byte, part, ended)

    def _is_here(self, byte: int, part: str, ended: bool) -> bool:
        place = self.cut.place
        if place == "at-byte":
            return self._passed >= self.cut.position
        if place == "after-last":
            return part == "last"
        if part == "head" or self._frames < self.cut.frames:
            return False
        if place == "after-frame":
            return ended
        if place == "in-frame":
            return part == "body" and self._inside >= self.cut.position
        if place == "between-cr-lf":
            return byte == _CR
        return part == "body" and byte >= 0xC0  # the first byte of a character of several


class _FrameEnds:
    """Finds the blank line that ends an SSE block which has an `id` or a `data` field.

    A line that ends by CR LF ends with the LF, so that every reader has the frame where it is said to end.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._has_field = False
        self._after_cr = False

    def step(self, byte: int) -> bool:
        ended = (self._after_cr or byte == _LF) and self._end_line()
        self._after_cr = byte == _CR
        if byte not in (_CR, _LF) and len(self._line) < 5:
            self._line.append(byte)
        return ended

    def _end_line(self) -> bool:
        if self._line:
            self._has_field |= bytes(self._line[:3]) == b"id:" or bytes(self._line) == b"data:"
            self._line.clear()
            return False
        ended, self._has_field = self._has_field, False
        return ended


def _walk_response() -> Generator[str, int, None]:
    """Take the bytes of one response, answer which part each belongs to: head, framing, body or last."""
    head = bytearray()
    byte = yield ""
    while True:
        head.append(byte)
        byte = yield "head"
        if head.endswith(b"\r\n\r\n"):
            break
    if b"\r\ntransfer-encoding: chunked\r\n" in bytes(head).lower():
        yield from _walk_chunks(byte)
    yield from _walk_length(byte, _declared_length(bytes(head)))


def _walk_chunks(byte: int) -> Generator[str, int, None]:
    while True:
        line = bytearray()
        while byte != _LF:
            line.append(byte)
            byte = yield "framing"
        size = int(bytes(line).split(b";")[0], 16)
        if size == 0:
            byte = yield "framing"
            byte = yield "framing"  # the CR of the empty trailer
            while True:
                byte = yield "last"
        byte = yield "framing"
        for _ in range(size):
            byte = yield "body"
        byte = yield "framing"
        byte = yield "framing"


def _walk_length(byte: int, length: int | None) -> Generator[str, int, None]:
    passed = 0
    while True:
        passed += 1
        yield "last" if length is not None and passed >= length else "body"


def _declared_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return None
