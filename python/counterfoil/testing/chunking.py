"""Ways to cut bytes that tend to break incremental parsers; users' tests and ours feed them.

Deterministic: the same bytes and seed give the same pieces.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

#: Above this length, cutting in two is tried at every place around a line end or a high byte only.
EVERY_PLACE_BYTES = 2048


def chunked(raw: bytes, size: int) -> list[bytes]:
    """Cut into pieces of `size` bytes, the last one shorter."""
    if size < 1:
        raise ValueError(f"size is {size}: a piece has at least one byte")
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def interesting_places(raw: bytes) -> list[int]:
    """Where a cut may hurt: beside CR, LF, colon and NUL, and inside a character of several bytes."""
    if len(raw) <= EVERY_PLACE_BYTES:
        return list(range(len(raw) + 1))
    special = frozenset(b"\r\n:\0")
    places: set[int] = {0, len(raw)}
    for at, byte in enumerate(raw):
        if byte in special or byte >= 0x80:
            places.update((at, at + 1))
    return sorted(places)


def random_pieces(raw: bytes, *, seed: int, longest: int = 64) -> list[bytes]:
    """Cut into pieces of 0 to `longest` bytes; empty pieces are among them on purpose."""
    rng = random.Random(seed)
    pieces = []
    at = 0
    while at < len(raw):
        size = rng.randint(0, longest)
        pieces.append(raw[at : at + size])
        at += size
    return pieces


def every_cutting(raw: bytes, *, seed: int = 1, most_places: int = 4096) -> Iterator[tuple[str, list[bytes]]]:
    """Yield a label and the pieces for each way of cutting that is worth trying.

    Whole; 1, 7 and 1024 bytes at a time; in two, with an empty piece between, at each interesting place (at
    most `most_places`, evenly thinned out); and three random ways.  The pieces always join to `raw`.
    """
    yield "whole", [raw]
    for size in (1, 7, 1024):
        yield f"by {size}", chunked(raw, size)
    places = interesting_places(raw)
    step = max(1, -(-len(places) // most_places))
    for at in places[::step]:
        yield f"in two at {at}", [raw[:at], b"", raw[at:]]
    for number in range(3):
        yield f"at random {seed + number}", random_pieces(raw, seed=seed + number)
