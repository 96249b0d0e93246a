"""The vectors that Rust reads too, through the installed wheel, under every way of cutting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from counterfoil import Limits, SseBlock, SseComment, SseEvent, SseLimitError, SseParser
from counterfoil.testing.chunking import every_cutting

FOLDER = Path(__file__).parents[1] / "vectors" / "sse"
CASES = [
    pytest.param(case, id=f"{file.stem}::{case['name']}")
    for file in sorted(FOLDER.glob("*.json"))
    for case in json.loads(file.read_text())["cases"]
]


def as_vector(event: SseEvent) -> dict[str, Any]:
    return {
        "event": event.event,
        "data": event.data,
        "id": event.id,
        "last_event_id": event.last_event_id,
        "retry_ms": event.retry,
    }


def arguments(case: dict[str, Any]) -> dict[str, Any]:
    given = case["given"]
    limits = Limits(**given["limits"]) if "limits" in given else None
    return {"limits": limits, "last_event_id": given.get("last_event_id")}


@pytest.mark.parametrize("case", CASES)
def test_objects_hold_under_every_cutting(case: dict[str, Any]) -> None:
    raw = case["given"]["stream"].encode("latin-1")
    expect = case["expect"]
    for label, pieces in every_cutting(raw):
        parser = SseParser(**arguments(case), comments=True, blocks=True)
        items = []
        error: dict[str, Any] | None = None
        try:
            for piece in pieces:
                items += parser.feed(piece)
            assert parser.end().truncated == expect.get("truncated"), label
        except SseLimitError as caught:
            error = {"bound": caught.bound, "limit": caught.limit, "position": caught.position}
        assert error == expect.get("error"), label
        assert [as_vector(item) for item in items if isinstance(item, SseEvent)] == expect["events"], label
        assert parser.last_event_id == expect["last_event_id"], label
        assert parser.reconnection_time_ms == expect["reconnection_time_ms"], label
        if "comments" in expect:
            found = [item.text for item in items if isinstance(item, SseComment)]
            assert found == expect["comments"], label
        if "blocks" in expect:
            blocks = [{"event": item.event, "id": item.id} for item in items if isinstance(item, SseBlock)]
            assert blocks == expect["blocks"], label


@pytest.mark.parametrize("case", CASES)
def test_batches_hold_under_every_cutting(case: dict[str, Any]) -> None:
    raw = case["given"]["stream"].encode("latin-1")
    for label, pieces in every_cutting(raw, most_places=50):
        parser = SseParser(**arguments(case))
        found: list[dict[str, Any]] = []
        try:
            for piece in pieces:
                batch = parser.feed_batch(piece)
                found += [as_vector(event) for event in batch]
                assert batch.all_data() == [batch.data(index) for index in range(len(batch))]
                for index, event in enumerate(batch):
                    assert batch.data(index).decode("utf-8", "replace") == event.data
                    assert bytes(batch.view(index)) == batch.data(index)
                    own = batch.id(index)
                    assert (None if own is None else own.decode("utf-8", "replace")) == event.id
                    assert batch.retry(index) == event.retry
        except SseLimitError:
            assert "error" in case["expect"]
        assert found == case["expect"]["events"], label
