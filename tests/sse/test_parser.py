"""What the Python-visible parser promises beside the vectors."""

from __future__ import annotations

import array
import gc
import mmap
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from counterfoil import (
    CounterfoilError,
    Limits,
    ParserClosed,
    SseBlock,
    SseComment,
    SseEnd,
    SseEvent,
    SseLimitError,
    SseParser,
)
from hypothesis import given
from hypothesis import strategies as st

PIECES = st.sampled_from(
    [
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"data",
        b"data: x",
        b"data:",
        b"id: 7",
        b"id:",
        b"event: t",
        b"retry: 5",
        b":",
        b": c",
        b"\0",
        b"\xef\xbb\xbf",
        b"\xf0\x9f",
        b"\xff",
        "é".encode(),
        b" ",
    ]
)
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


def read_whole(raw: bytes) -> list[tuple[str, str, str | None, str, int | None]]:
    """The stupid twin: all of it at once, decoded first, as the standard says."""
    text = raw.decode("utf-8", "replace")
    # "UTF-8 decode" removes one BOM; Python's codec keeps it.
    text = text.removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    events = []
    data: list[str] = []
    event = last = ""
    own: str | None = None
    retry: int | None = None
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            last = last if own is None else own
            if data:
                events.append((event or "message", "\n".join(data), own, last, retry))
            data, event, own, retry = [], "", None, None
        elif name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id" and "\0" not in value:
            own = value
        elif name == "retry" and value and value.isascii() and value.isdigit():
            retry = min(int(value), 2**63 - 1)
    return events


def plain(event: SseEvent) -> tuple[str, str, str | None, str, int | None]:
    return event.event, event.data, event.id, event.last_event_id, event.retry


@given(raw=STREAMS, size=st.integers(1, 9))
def test_the_parser_gives_what_its_stupid_twin_gives(raw: bytes, size: int) -> None:
    parser = SseParser()
    found = [event for at in range(0, len(raw), size) for event in parser.feed(raw[at : at + size])]
    assert [plain(event) for event in found] == read_whole(raw)


@given(raw=STREAMS, size=st.integers(1, 9))
def test_objects_bytes_and_batches_agree(raw: bytes, size: int) -> None:
    objects, undecoded, batches = SseParser(), SseParser(data="bytes"), SseParser()
    for at in range(0, len(raw), size):
        piece = raw[at : at + size]
        events = objects.feed(piece)
        assert [event.data.decode("utf-8", "replace") for event in undecoded.feed(piece)] == [
            e.data for e in events
        ]
        assert list(batches.feed_batch(piece)) == events
    assert objects.last_event_id == undecoded.last_event_id == batches.last_event_id


def test_objects_and_batches_may_be_mixed_on_one_parser() -> None:
    parser = SseParser()
    assert [e.last_event_id for e in parser.feed(b"id: 1\ndata: a\n\n")] == ["1"]
    assert [e.last_event_id for e in parser.feed_batch(b"id: 2\ndata: a\n\ndata: b\n\n")] == ["2", "2"]
    assert [e.last_event_id for e in parser.feed(b"data: c\n\n")] == ["2"]
    assert parser.feed(b"id: 3\n\n") == []
    assert [e.last_event_id for e in parser.feed(b"data: d\n\n")] == ["3"]


RAW = b"id: 1\ndata: x\n\n"


def mapped() -> mmap.mmap:
    block = mmap.mmap(-1, len(RAW))
    block.write(RAW)
    return block


@pytest.mark.parametrize(
    "chunk",
    [
        RAW,
        bytearray(RAW),
        memoryview(RAW),
        memoryview(b"__" + RAW)[2:],
        memoryview(RAW).cast("c"),
        array.array("b", RAW),
        mapped(),
    ],
    ids=lambda chunk: type(chunk).__name__,
)
def test_any_bytes_like_object_is_taken(chunk: Any) -> None:
    assert SseParser().feed(chunk) == [SseEvent("message", "x", "1")]
    assert list(SseParser().feed_batch(chunk)) == [SseEvent("message", "x", "1")]


@pytest.mark.parametrize("chunk", ["data: x\n\n", 5, None, [1, 2]])
def test_anything_else_is_a_type_error(chunk: Any) -> None:
    with pytest.raises(TypeError):
        SseParser().feed(chunk)


def test_a_changed_bytearray_changes_no_event() -> None:
    chunk = bytearray(b"data: first\n\ndata: sec")
    parser = SseParser()
    batch = parser.feed_batch(chunk)
    chunk[:] = b"#" * len(chunk)
    assert batch.data(0) == b"first"
    assert parser.feed(b"ond\n\n")[0].data == "second"


def test_comments_and_blocks_come_in_the_order_of_the_stream() -> None:
    parser = SseParser(comments=True, blocks=True)
    found = parser.feed(b": one\ndata: a\n\nid: 5\n\n: two\n\ndata: b\n\n")
    assert found == [
        SseComment("one"),
        SseEvent("message", "a"),
        SseBlock("message", "5", None, "5"),
        SseComment("two"),
        SseEvent("message", "b", None, None, "5"),
    ]


def test_a_batch_tells_before_which_event_a_comment_came() -> None:
    parser = SseParser(comments=True)
    batch = parser.feed_batch(b": zero\n\ndata: a\n\n: one\n\ndata: b\n\n: two\n")
    assert batch.comments() == [(0, b"zero"), (1, b"one"), (2, b"two")]
    assert SseParser().feed_batch(b": zero\n\ndata: a\n\n").comments() == []


def test_a_batch_is_indexed_from_both_ends() -> None:
    batch = SseParser().feed_batch(b"data: a\n\nevent: t\nid\ndata: b\n\n")
    assert len(batch) == 2
    assert batch[-1] == batch[1] == SseEvent("t", "b", "")
    assert (batch.event(0), batch.event(1), batch.id(0), batch.id(1)) == (b"message", b"t", None, b"")
    for index in (2, -3):
        with pytest.raises(IndexError, match="has 2 events"):
            batch[index]


def test_a_view_outlives_its_batch() -> None:
    view = SseParser().feed_batch(b"data: kept\n\n").view(0)
    gc.collect()
    assert bytes(view) == b"kept"
    assert view.readonly


def test_what_came_before_a_bound_is_given_first_and_then_the_error_for_ever() -> None:
    parser = SseParser(limits=Limits(line_bytes=10))
    assert parser.feed(b"data: x\n\ndata: 6789x\n\n") == [SseEvent("message", "x")]
    assert isinstance(parser.error, SseLimitError)
    for call in (lambda: parser.feed(b""), lambda: parser.feed_batch(b""), parser.end, parser.end):
        with pytest.raises(SseLimitError, match=r"raise Limits\.line_bytes") as caught:
            call()
        assert (caught.value.bound, caught.value.limit, caught.value.position) == ("line_bytes", 10, 19)


def test_limit_errors_pickle_with_their_bound() -> None:
    parser = SseParser(limits=Limits(line_bytes=1))
    with pytest.raises(SseLimitError) as caught:
        parser.feed(b"data: x\n\n")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy)) == (SseLimitError, str(caught.value))
    assert (copy.bound, copy.limit, copy.position) == ("line_bytes", 1, 1)
    assert isinstance(copy, CounterfoilError)
    assert isinstance(copy, ValueError)


def test_one_limit_holds_for_one_line_and_for_many() -> None:
    limits = Limits(line_bytes=300_000, event_bytes=300_000)
    one = b"data: " + b"x" * 200_000 + b"\n\n"
    ten = b"".join(b"data: " + b"x" * 20_000 + b"\n" for _ in range(10)) + b"\n"
    for raw in (one, ten):
        assert len(SseParser(limits=limits).feed(raw)) == 1
        small = SseParser(limits=Limits(line_bytes=100_000, event_bytes=100_000))
        with pytest.raises(SseLimitError):
            small.feed(raw)


def test_a_large_result_passes_or_is_refused_by_name() -> None:
    raw = b"data: " + b"x" * (8 << 20) + b"\n\n"
    assert len(SseParser().feed(raw)[0].data) == 8 << 20
    parser = SseParser(limits=Limits(line_bytes=4 << 20, event_bytes=4 << 20))
    with pytest.raises(SseLimitError, match="line_bytes"):
        parser.feed(raw)


def test_an_endless_line_and_an_endless_event_stop_at_their_bound() -> None:
    limits = Limits(line_bytes=10_000, event_bytes=20_000)
    for piece, bound in ((b"x" * 100, "line_bytes"), (b"data: x\n", "event_bytes")):
        parser = SseParser(limits=limits)
        with pytest.raises(SseLimitError) as caught:
            any(parser.feed(piece) for _ in range(10_000))
        assert caught.value.bound == bound
        assert parser.held_bytes == 0


def test_the_end_is_told_once_and_closes_the_parser() -> None:
    parser = SseParser()
    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")
    assert parser.end() == SseEnd(True, None)
    assert parser.last_event_id == "1"
    for call in (lambda: parser.feed(b"x"), parser.end):
        with pytest.raises(ParserClosed, match="has ended"):
            call()


def test_a_lenient_end_gives_the_unfinished_event() -> None:
    parser = SseParser()
    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\xff")
    assert parser.end(lenient=True) == SseEnd(True, SseEvent("message", "b\ufffd", "2", None, "1"))
    assert parser.last_event_id == "1"
    assert SseParser().end(lenient=True) == SseEnd(False, None)


def test_values_are_frozen_hashable_and_pickle() -> None:
    for value in (
        SseEvent("t", "d", "1", 5),
        SseEvent("t", b"d", None, None, "9"),
        SseComment("c"),
        SseBlock("t", None, 5, ""),
        SseEnd(True, None),
    ):
        copy = pickle.loads(pickle.dumps(value))
        assert copy == value
        assert hash(copy) == hash(value)
        assert eval(repr(value)) == value
        assert value != "something else"
        with pytest.raises(AttributeError):
            value.event = "x"  # type: ignore[union-attr, misc]
    assert SseEvent("t", "d", "") != SseEvent("t", "d", None)


def test_two_threads_on_one_parser_get_events_or_a_typed_error() -> None:
    parser = SseParser()
    counts = [0, 0]

    def read(which: int) -> None:
        for _ in range(2_000):
            try:
                counts[which] += len(parser.feed(b"data: x\n\n"))
            except ParserClosed as refused:
                assert "another thread" in str(refused)  # noqa: PT017

    threads = [threading.Thread(target=read, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < sum(counts) <= 4_000
    assert parser.position == sum(counts) * len(b"data: x\n\n")


def fastest(mebibytes: int, size: int) -> float:
    raw = b"data: " + b"x" * (mebibytes << 20) + b"\n\n"
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    limits = Limits(line_bytes=1 << 30, event_bytes=1 << 30)
    times = []
    for _ in range(5):
        parser = SseParser(limits=limits)
        start = time.perf_counter()
        found = [event for piece in pieces for event in parser.feed(piece)]
        times.append(time.perf_counter() - start)
        assert len(found[0].data) == mebibytes << 20
    return min(times)


@pytest.mark.slow
def test_the_cost_per_byte_does_not_grow_with_the_line(scaled: Callable[[int, int], int]) -> None:
    # The bound is loose for a noisy machine; a quadratic parser would need sixteen times as much.
    long = scaled(4, 16)
    assert fastest(long, 1024) / long < 3 * fastest(1, 1024)
    assert fastest(1, 7) / 8 < 3 * fastest(1, 56)


@pytest.mark.parametrize("data", ["text", ""])
def test_another_form_of_data_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match='"str" or "bytes"'):
        SseParser(data=data)
