"""What the encoder writes, what it refuses, and that the parser reads it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from counterfoil import EncodeError, SseComment, SseEvent, SseParser, encode_comment, encode_event
from counterfoil.testing.streams import KINDS, StreamKind, generate_stream
from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).parents[1] / "vectors" / "sse_encoder" / "frames.json"
CASES = [pytest.param(case, id=case["name"]) for case in json.loads(FILE.read_text())["cases"]]

TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=40)
FIELD = TEXT.filter(lambda text: not set(text) & set("\r\n\0"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", [str, bytes, bytearray, memoryview])
def test_frames_are_what_the_vectors_say(case: dict[str, Any], form: Any) -> None:
    def shape(value: Any) -> Any:
        return value if form is str or not isinstance(value, str) else form(value.encode())

    fields = {name: shape(value) for name, value in case["given"].items()}
    if "refused" in case["expect"]:
        word = {"id": "the id", "event": "the event type"}[case["expect"]["refused"]]
        with pytest.raises(EncodeError, match=f"{word} holds CR, LF or NUL"):
            encode_event(**fields)
    else:
        assert encode_event(**fields) == case["expect"]["frame"].encode()


@given(data=TEXT, event=FIELD, own=st.none() | FIELD, retry=st.none() | st.integers(0, 2**63 - 1))
def test_what_is_written_is_read_back(data: str, event: str, own: str | None, retry: int | None) -> None:
    frame = encode_event(data, event=event, id=own, retry=retry)
    lines = data.replace("\r\n", "\n").replace("\r", "\n")
    (found,) = SseParser().feed(frame)
    assert found == SseEvent(event or "message", lines, own, retry, own or "")


@given(text=TEXT)
def test_comments_are_read_back_and_make_no_event(text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    parser = SseParser(comments=True)
    assert parser.feed(encode_comment(text)) == [SseComment(line) for line in lines]


def test_user_text_forges_nothing() -> None:
    parser = SseParser(last_event_id="41")
    (event,) = parser.feed(encode_event("x\rid: 99\r\rdata: evil"))
    assert event == SseEvent("message", "x\nid: 99\n\ndata: evil", None, None, "41")
    assert parser.last_event_id == "41"


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_is_written_again_parses_the_same(kind: StreamKind) -> None:
    raw = generate_stream(kind, size_bytes=100_000).raw
    first = SseParser().feed(raw)
    again = b"".join(encode_event(e.data, event=e.event, id=e.id, retry=e.retry) for e in first)
    assert SseParser().feed(again) == first


def test_keep_alives_for_an_hour_move_no_cursor() -> None:
    parser = SseParser()
    parser.feed(encode_event("a", id="7"))
    for _ in range(4 * 60):
        assert parser.feed(encode_comment("keep-alive")) == []
    assert parser.last_event_id == "7"
    assert parser.held_bytes == 0


def test_text_without_utf8_form_is_refused() -> None:
    with pytest.raises(EncodeError, match="no UTF-8 form"):
        encode_event("\ud800")


@pytest.mark.parametrize("retry", [-1, 2**64])
def test_a_retry_out_of_range_is_refused(retry: int) -> None:
    with pytest.raises(OverflowError):
        encode_event("x", retry=retry)
