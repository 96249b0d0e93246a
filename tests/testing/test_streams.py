"""The generated streams are pinned, and the parser gets from them what the generator meant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from counterfoil import SseEvent, SseParser
from counterfoil.testing.chunking import chunked, random_pieces
from counterfoil.testing.streams import KINDS, StreamKind, digest_events, generate_stream

PINNED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "streams.json").read_text()
)["streams"]


def parsed_digest(pieces: list[bytes]) -> str:
    parser = SseParser()
    events: list[SseEvent] = [event for piece in pieces for event in parser.feed(piece)]
    assert not parser.end().truncated
    return digest_events((e.event, e.last_event_id, e.data, e.retry) for e in events)


@pytest.mark.parametrize("kind", KINDS)
def test_small_streams_are_pinned_and_parse_under_every_chunking(kind: StreamKind) -> None:
    pinned = PINNED[f"{kind}.small"]
    stream = generate_stream(kind, size_bytes=pinned["size_bytes"])
    assert hashlib.sha256(stream.raw).hexdigest() == pinned["sha256"]
    assert digest_events(stream.events) == pinned["events_sha256"]
    assert len(stream.events) == pinned["events"]
    for size in (len(stream.raw), 1, 7, 1024, 16_384):
        assert parsed_digest(chunked(stream.raw, size)) == pinned["events_sha256"], size
    assert parsed_digest(random_pieces(stream.raw, seed=3)) == pinned["events_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_big_streams_are_pinned_and_parse_under_every_chunking(
    kind: StreamKind, scaled: Callable[[int, int], int]
) -> None:
    pinned = PINNED[kind]
    stream = generate_stream(kind, size_bytes=pinned["size_bytes"])
    assert hashlib.sha256(stream.raw).hexdigest() == pinned["sha256"]
    assert digest_events(stream.events) == pinned["events_sha256"]
    for size in (1024, 65_536)[: scaled(1, 2)]:
        assert parsed_digest(chunked(stream.raw, size)) == pinned["events_sha256"], size
    if scaled(0, 1):
        assert parsed_digest(chunked(stream.raw, 7)) == pinned["events_sha256"]


def test_seeds_differ_and_repeat() -> None:
    one, again, two = (generate_stream("tokens", size_bytes=4000, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.raw != two.raw


def test_another_kind_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'noise' is no kind of stream"):
        generate_stream("noise", size_bytes=1)  # type: ignore[arg-type]


def test_the_digest_tells_fields_apart() -> None:
    assert digest_events([("a", "b", "", None)]) != digest_events([("a", "", "b", None)])
    assert digest_events([("a", "b", "", None)]) != digest_events([("a", "b", "", 0)])
