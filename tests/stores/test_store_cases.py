"""Kinds of fault that users of other stores met, as small scenarios; `tests/cases.toml` names them."""

from __future__ import annotations

import json
import threading
import tracemalloc

import pytest
from counterfoil import (
    EventId,
    Gap,
    MalformedEventId,
    ReaderTooSlow,
    Reoriginated,
    Resumed,
    Scope,
    StreamEnded,
    TakenOver,
    UnstorableEvent,
)
from store_kit import KEYS, SCOPE, Clock, answer, ask, data_of, events_in, make_store, note, read_all


def test_b07_the_priming_ids_of_five_streams_differ_and_each_finds_its_own_stream() -> None:
    store = make_store()
    streams = [store.open_call(SCOPE, [number]) for number in range(5)]
    echoes = [store.attach(SCOPE, stream).echo_id for stream in streams]
    assert len(set(echoes)) == 5
    for number, (stream, echo) in enumerate(zip(streams, echoes, strict=True)):
        assert echo is not None
        assert EventId.parse(echo).stream == stream
        assert EventId.parse(echo).sequence == 0
        store.append(SCOPE, stream, note(number))
        reader = store.resume(SCOPE, echo)
        assert isinstance(reader.verdict, Resumed)
        assert data_of(reader) == [note(number)]


def test_b15_events_of_one_clock_tick_replay_in_the_order_of_their_append() -> None:
    store = make_store(clock=Clock())
    stream = store.open_standalone(SCOPE)
    ids = [store.append(SCOPE, stream, note(number)) for number in range(200)]
    assert data_of(store.resume(SCOPE, ids[0])) == [note(number) for number in range(1, 200)]


def test_b17_two_resumes_in_a_row_deliver_once_on_the_newest_only() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    ids = store.append_many(SCOPE, stream, [note(1), note(2)])
    first, second = store.resume(SCOPE, ids[0]), store.resume(SCOPE, ids[0])
    store.append(SCOPE, stream, ask("e"))
    with pytest.raises(TakenOver):
        first.read()
    assert data_of(second) == [note(2), ask("e")]
    assert second.read() == b""


def test_b31_every_evicted_range_is_a_typed_counted_gap_and_no_stream_disturbs_another() -> None:
    store = make_store(total_bytes=3 << 20, reserve_bytes=4096, session_streams=300)
    streams = [store.open_standalone(Scope(session=f"s{number}")) for number in range(300)]
    cursors = []
    for number, stream in enumerate(streams):
        scope = Scope(session=f"s{number}")
        first = store.append(scope, stream, note(0, size=100))
        cursors.append((scope, stream, first))
    for round_number in range(60):
        for scope, stream, _ in cursors:
            store.append(scope, stream, note(round_number, size=300))
    counts = store.statistics()
    assert counts.charged_bytes <= 3 << 20
    assert counts.appended == 300 * 61
    assert counts.trimmed_budget > 0
    for scope, _, first in cursors:
        reader = store.resume(scope, first)
        window = reader.window
        assert window is not None
        assert isinstance(reader.verdict, Gap)
        assert (reader.verdict.first, reader.verdict.last) == (2, window[0] - 1)
        # The reserve of 4 KiB holds at least seven such events, whatever the other 299 do.
        assert window[1] - window[0] + 1 >= 7


def test_b35_ten_thousand_resumes_of_one_stream_leave_nothing_behind() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    ids = store.append_many(SCOPE, stream, [note(number) for number in range(20)])

    def cycle(count: int) -> None:
        for number in range(count):
            assert data_of(store.resume(SCOPE, ids[number % 19], aware=True))

    cycle(200)
    before = store.statistics()
    tracemalloc.start()
    cycle(1_000)
    first, _ = tracemalloc.get_traced_memory()
    cycle(10_000)
    second, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    after = store.statistics()
    assert after.readers == before.readers <= 1
    assert (after.charged_bytes, after.held_bytes) == (before.charged_bytes, before.held_bytes)
    assert second - first < 50_000


def test_b37_a_quick_reconnect_gets_the_live_stream_and_the_ghost_is_fenced() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    ghost = store.attach(SCOPE, stream, aware=True)
    cursor = store.append(SCOPE, stream, note(1))
    live = store.resume(SCOPE, cursor, aware=True)
    ghost.close()
    store.append(SCOPE, stream, answer(1))
    assert data_of(live) == [answer(1)]
    assert store.statistics().taken_over == 1


def test_b43_one_notification_is_stored_under_one_stream_and_read_once() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    assert store.open_standalone(SCOPE) == stream
    readers = [store.resume(SCOPE, None, want_new=True) for _ in range(3)]
    store.append(SCOPE, stream, note(1))
    assert [len(events_in(read_all(reader))) for reader in readers] == [0, 0, 1]
    assert [reader.is_parked for reader in readers] == [True, True, False]


def test_b51_equal_request_ids_of_two_sessions_never_cross() -> None:
    store = make_store()
    mine, theirs = Scope(session="a"), Scope(session="b")
    cursors = {}
    for scope, number in ((mine, 1), (theirs, 2)):
        stream = store.open_call(scope, [7])
        cursors[number] = store.append(scope, stream, note(number))
        store.append(scope, stream, answer(7, size=number))
    assert data_of(store.resume(mine, cursors[1])) == [answer(7, size=1)]
    assert data_of(store.resume(theirs, cursors[2])) == [answer(7, size=2)]
    assert not store.resume(mine, cursors[2]).is_attached


def test_b53_an_id_alone_names_stream_epoch_and_sequence_or_fails() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, ["r"])
    event_id = EventId.parse(store.append(SCOPE, stream, note(1)))
    assert (event_id.stream, event_id.sequence, event_id.stream.request_id) == (stream, 1, "r")
    with pytest.raises(MalformedEventId):
        EventId.parse("cf1." + str(stream))


def test_b57_appending_needs_no_reader_and_survives_one_that_is_closing() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    store.append(SCOPE, stream, note(1))
    reader = store.attach(SCOPE, stream)
    reader.close()
    reader.close()
    store.append(SCOPE, stream, note(2))
    assert data_of(store.attach(SCOPE, stream)) == [note(1), note(2)]


def test_b61_keep_alives_and_echoes_take_no_sequence() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    relay = store.open_relay(SCOPE, stream)
    for _ in range(240):
        relay.feed(b": ping\n\n")
    with pytest.raises(UnstorableEvent):
        store.append(SCOPE, stream, b"")
    assert EventId.parse(store.append(SCOPE, stream, note(1))).sequence == 1
    assert relay.last_event_id == ""


def test_b67_a_stream_that_nobody_reads_or_writes_ends_by_itself() -> None:
    clock = Clock()
    store = make_store(clock=clock, stream_idle_s=100, grace_s=10, tombstone_age_s=10, session_idle_s=50)
    stream = store.open_call(SCOPE, [1])
    store.append(SCOPE, stream, note(1))
    for now_s in range(0, 400, 5):
        clock.now_s = float(now_s)
        store.sweep()
    with pytest.raises(LookupError):
        store.append(SCOPE, stream, note(2))
    counts = store.statistics()
    assert (counts.idle_ends, counts.live_streams, counts.window_bytes, counts.sessions) == (1, 0, 0, 0)


def test_b71_a_resume_gets_its_own_streams_answer_and_no_other() -> None:
    store = make_store()
    cursors = {}
    for number in (20, 21):
        stream = store.open_call(SCOPE, [number])
        cursors[number] = store.append(SCOPE, stream, note(number))
        store.append(SCOPE, stream, answer(number))
    assert data_of(store.resume(SCOPE, cursors[21])) == [answer(21)]


def test_b149_a_cursor_at_the_end_of_an_aged_window_goes_on() -> None:
    clock = Clock()
    store = make_store(clock=clock, window_age_s=60)
    stream = store.open_standalone(SCOPE)
    ids = store.append_many(SCOPE, stream, [note(number) for number in range(1, 6)])
    clock.now_s = 120
    reader = store.resume(SCOPE, ids[4])
    assert isinstance(reader.verdict, Resumed)
    assert (reader.verdict.missed, reader.window) == (0, (6, 5))
    store.append(SCOPE, stream, note(6))
    assert data_of(reader) == [note(6)]


def test_b163_after_everything_was_trimmed_the_numbers_still_rise() -> None:
    clock = Clock()
    store = make_store(clock=clock, window_age_s=10)
    stream = store.open_standalone(SCOPE)
    store.append_many(SCOPE, stream, [note(1), note(2)])
    clock.now_s = 100
    store.sweep()
    assert EventId.parse(store.append(SCOPE, stream, note(3))).sequence == 3


def test_b165_order_is_the_order_of_appends_whatever_the_clock_says() -> None:
    clock = Clock()
    store = make_store(clock=clock)
    stream = store.open_standalone(SCOPE)
    sequences = []
    for now_s in (50, 40, 30, 60, 10):
        clock.now_s = now_s
        sequences.append(EventId.parse(store.append(SCOPE, stream, note(now_s))).sequence)
    assert sequences == [1, 2, 3, 4, 5]
    assert data_of(store.attach(SCOPE, stream)) == [note(now_s) for now_s in (50, 40, 30, 60, 10)]


def test_b167_a_slow_reader_is_told_the_range_before_any_later_event() -> None:
    store = make_store(window_events=10)
    stream = store.open_standalone(SCOPE)
    reader = store.attach(SCOPE, stream)
    store.append_many(SCOPE, stream, [note(number) for number in range(1, 26)])
    with pytest.raises(ReaderTooSlow) as slow:
        reader.read()
    assert (slow.value.first, slow.value.last) == (1, 15)
    assert store.statistics().too_slow == 1


def test_b173_one_event_lost_by_age_is_still_a_gap() -> None:
    clock = Clock()
    store = make_store(clock=clock, window_age_s=10)
    stream = store.open_standalone(SCOPE)
    ids = [store.append(SCOPE, stream, note(1))]
    clock.now_s = 5
    ids += store.append_many(SCOPE, stream, [note(2), note(3)])
    clock.now_s = 12
    assert isinstance(store.resume(SCOPE, ids[0]).verdict, Resumed)
    echo = KEYS.event_id(
        SCOPE,
        stream=stream,
        epoch=EventId.parse(ids[0]).epoch,
        sequence=0,
        digest=KEYS.digest_chain(SCOPE, stream=stream, epoch=EventId.parse(ids[0]).epoch).current,
    )
    gap = store.resume(SCOPE, str(echo)).verdict
    assert isinstance(gap, Gap)
    assert (gap.first, gap.last) == (1, 1)


def test_b175_an_event_at_any_point_of_a_replay_is_neither_lost_nor_doubled() -> None:
    for pieces_before in range(8):
        store = make_store()
        stream = store.open_standalone(SCOPE)
        ids = store.append_many(SCOPE, stream, [note(number) for number in range(6)])
        reader = store.resume(SCOPE, ids[0])
        got = b"".join(reader.read(1) for _ in range(pieces_before))
        store.append(SCOPE, stream, note(6))
        got += read_all(reader)
        assert [event.data.encode() for event in events_in(got)] == [note(number) for number in range(1, 7)]


def test_b177_a_cut_after_any_prefix_of_a_replay_resumes_without_loss() -> None:
    for prefix in range(1, 11):
        store = make_store()
        stream = store.open_standalone(SCOPE)
        ids = store.append_many(SCOPE, stream, [note(number) for number in range(90, 101)])
        reader = store.resume(SCOPE, ids[0])
        store.append(SCOPE, stream, note(101))
        got = [events_in(reader.read(1))[0] for _ in range(prefix)]
        rest = data_of(store.resume(SCOPE, got[-1].id))
        assert [event.data.encode() for event in got] + rest == [note(number) for number in range(91, 102)]


def test_b181_sequences_are_compared_as_numbers() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    ids = store.append_many(SCOPE, stream, [note(number) for number in range(1, 121)])
    for asked in (9, 10, 99, 100):
        verdict = store.resume(SCOPE, ids[asked - 1]).verdict
        assert isinstance(verdict, Resumed)
        assert verdict.missed == 120 - asked
    seen = EventId.parse(ids[0])
    for beyond in (121, 1 << 53, (1 << 53) + 1, (1 << 63) - 1):
        cursor = KEYS.event_id(SCOPE, stream=stream, epoch=seen.epoch, sequence=beyond, digest=seen.digest)
        reader = store.resume(SCOPE, str(cursor))
        assert isinstance(reader.verdict, Reoriginated)
        assert reader.verdict.why.value == "ahead"
        evidence = reader.answer
        assert evidence is not None
        assert evidence.asked == beyond == json.loads(json.dumps(str(evidence.asked)).strip('"'))


def test_b183_a_refused_cursor_gives_a_verdict_and_nothing_to_read_or_to_leak() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    store.append(SCOPE, stream, note(1))
    for cursor in ("bad", "cf1.bad", "cf7.x.y.z.1.d", None):
        reader = store.resume(SCOPE, cursor)
        assert reader.verdict.next.value in {"reconcile", "stop"}
        with pytest.raises(StreamEnded):
            reader.read()
    assert store.statistics().readers == 0


def test_b189_readers_see_a_dense_prefix_under_concurrent_appends() -> None:
    store = make_store(window_events=100_000, window_bytes=64 << 20)
    stream = store.open_standalone(SCOPE)
    reader = store.attach(SCOPE, stream)
    writers = [
        threading.Thread(target=lambda: [store.append(SCOPE, stream, note(0)) for _ in range(250)])
        for _ in range(4)
    ]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    while len(seen) < 1000:
        for event in events_in(reader.read(3000)):
            assert event.id is not None
            seen.append(EventId.parse(event.id).sequence)
    for writer in writers:
        writer.join()
    assert seen == list(range(1, 1001))


def test_b217_a_long_history_is_replayed_in_pieces_of_bounded_size() -> None:
    store = make_store(window_events=100_000, window_bytes=64 << 20, total_bytes=128 << 20)
    stream = store.open_standalone(SCOPE)
    first = store.append(SCOPE, stream, note(0))
    events = [note(number, size=20_000) for number in range(1, 1001)]
    store.append_many(SCOPE, stream, events)
    reader = store.resume(SCOPE, first)
    tracemalloc.start()
    count = 0
    while piece := reader.read():
        assert len(piece) <= 256 << 10
        count += piece.count(b"\n\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 1000
    assert peak < 4 << 20
