"""A cut falls on one byte of a response, whatever the pieces it arrives in."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from counterfoil.testing.cuts import PLACES_AFTER_ID, Cut, CutPoint, draw_cut

BODY = 'id: 1\ndata:\n\nid: 2\ndata: {"a":"né"}\n\n: a comment\n\nid: 3\r\ndata: z\r\n\r\n'.encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"


def sized(body: bytes) -> bytes:
    return HEAD + b"content-length: %d\r\n\r\n" % len(body) + body


RESPONSES = [chunked(BODY, 1_000), chunked(BODY, 7), chunked(BODY, 1), sized(BODY)]


def passed(cut: Cut, pieces: Iterator[bytes]) -> int | None:
    point, total = CutPoint(cut), 0
    for piece in pieces:
        if (through := point.feed(piece)) is not None:
            return total + through
        total += len(piece)
    return None


def pieces_of(data: bytes, rng: random.Random) -> Iterator[bytes]:
    while data:
        size = rng.randint(1, 9)
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("response", RESPONSES, ids=["one chunk", "chunks of 7", "chunks of 1", "sized"])
@pytest.mark.parametrize("place", [*PLACES_AFTER_ID, "at-byte", "before-head"])
def test_a_cut_falls_on_the_same_byte_for_every_way_of_arriving(response: bytes, place: str) -> None:
    cut = Cut(place, frames=1, position=5)  # type: ignore[arg-type]
    whole = passed(cut, iter([response]))
    assert whole is not None
    for seed in range(20):
        assert passed(cut, pieces_of(response, random.Random(seed))) == whole


def test_each_place_is_where_its_name_says() -> None:
    response = RESPONSES[0]

    def before(cut: Cut) -> bytes:
        through = passed(cut, iter([response]))
        assert through is not None
        return response[:through]

    assert before(Cut("before-head")) == b""
    assert before(Cut("at-byte", position=9)) == response[:9]
    assert before(Cut("after-frame", frames=1)).endswith(b"data:\n\n")
    assert before(Cut("after-frame", frames=2)).endswith('é"}\n\n'.encode())
    assert before(Cut("in-frame", frames=1, position=5)).endswith(b"\n\nid: 2")
    assert before(Cut("in-character", frames=1)).endswith(b'"n\xc3')
    assert before(Cut("between-cr-lf", frames=2)).endswith(b"id: 3\r")
    assert before(Cut("after-frame", frames=3)).endswith(b"data: z\r\n\r\n")
    assert before(Cut("after-last")) == response


def test_a_comment_is_no_frame() -> None:
    assert passed(Cut("after-frame", frames=4), iter(RESPONSES)) is None


def test_a_draw_is_repeatable_and_lies_behind_the_first_id() -> None:
    drawn = [draw_cut(random.Random(seed)) for seed in range(200)]
    assert drawn == [draw_cut(random.Random(seed)) for seed in range(200)]
    assert {cut.place for cut in drawn} == set(PLACES_AFTER_ID)
    assert {cut.how for cut in drawn} == {"fin", "rst"}
    assert min(cut.frames for cut in drawn) == 1
