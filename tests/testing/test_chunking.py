"""Every way of cutting joins back to the same bytes, and the places that hurt are among them."""

from __future__ import annotations

import pytest
from counterfoil.testing.chunking import chunked, every_cutting, interesting_places, random_pieces

RAW = "\ufeffid: 1\r\ndata: é😀\r\n\r\n".encode()


@pytest.mark.parametrize("raw", [b"", b"x", RAW, RAW * 200])
def test_every_cutting_joins_to_the_same_bytes(raw: bytes) -> None:
    labels = []
    for label, pieces in every_cutting(raw, most_places=100):
        assert b"".join(pieces) == raw, label
        labels.append(label)
    assert len(labels) == len(set(labels))
    assert {"whole", "by 1", "by 7", "by 1024", "in two at 0"} <= set(labels)


def test_short_bytes_are_cut_in_two_at_every_place() -> None:
    assert interesting_places(RAW) == list(range(len(RAW) + 1))


def test_long_bytes_are_cut_between_cr_and_lf_and_inside_characters() -> None:
    raw = b"x" * 5000 + b"\r\n" + "é".encode() + b"y" * 5000
    assert {5001, 5003} <= set(interesting_places(raw))
    assert 2500 not in interesting_places(raw)


def test_random_pieces_are_the_same_for_the_same_seed() -> None:
    assert random_pieces(RAW * 9, seed=4) == random_pieces(RAW * 9, seed=4)
    assert random_pieces(RAW * 9, seed=4) != random_pieces(RAW * 9, seed=5)


def test_a_piece_has_at_least_one_byte() -> None:
    with pytest.raises(ValueError, match="size is 0"):
        chunked(b"x", 0)
