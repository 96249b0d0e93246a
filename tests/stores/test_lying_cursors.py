"""The ways in which a cursor lies, as far as a store can meet them: one test each, named for what must be."""

from __future__ import annotations

import pytest
from counterfoil import (
    EventId,
    Forged,
    Gap,
    KeyRing,
    New,
    ReplayStore,
    Resumed,
    Scope,
    SessionEnded,
    StreamEnded,
    StreamToken,
    TakenOver,
    Unverifiable,
)
from counterfoil import Reoriginated as Other
from counterfoil.stores.replay.reader import Reader
from store_kit import KEYS, SCOPE, Clock, answer, data_of, events_in, make_store, note


def filled(count: int, **limits: int | float) -> tuple[ReplayStore, StreamToken, list[str]]:
    store = make_store(**limits)
    stream = store.open_standalone(SCOPE)
    return store, stream, store.append_many(SCOPE, stream, [note(n) for n in range(1, count + 1)])


def at(cursor: str, **changes: object) -> str:
    """The same cursor with other parts, validly signed: what a store that lost its tail is shown."""
    seen = EventId.parse(cursor)
    parts = {"epoch": seen.epoch, "sequence": seen.sequence, "digest": seen.digest} | changes
    return str(KEYS.event_id(SCOPE, stream=seen.stream, **parts))  # type: ignore[arg-type]


def nothing_is_read(reader: Reader) -> None:
    assert not reader.is_attached
    with pytest.raises(StreamEnded):
        reader.read()


def test_01_a_cursor_ahead_of_the_end_is_told_and_never_waits() -> None:
    store, _, ids = filled(10)
    reader = store.resume(SCOPE, at(ids[-1], sequence=15))
    assert isinstance(reader.verdict, Other)
    assert reader.verdict.why.value == "ahead"
    nothing_is_read(reader)


def test_02_a_future_cursor_that_the_stream_caught_up_with_has_another_digest() -> None:
    store, stream, ids = filled(10)
    future = at(ids[-1], sequence=15, digest="AAAAAAAAAAA")
    store.append_many(SCOPE, stream, [note(n) for n in range(11, 21)])
    verdict = store.resume(SCOPE, future).verdict
    assert isinstance(verdict, Other)
    assert verdict.why.value == "diverged"


def test_03_a_trimmed_cursor_is_a_gap_with_its_floor_and_size_not_the_oldest_survivor() -> None:
    store, _, ids = filled(2506, window_events=2000)
    reader = store.resume(SCOPE, ids[4])
    assert isinstance(reader.verdict, Gap)
    assert (reader.verdict.first, reader.verdict.last) == (6, 506)
    nothing_is_read(reader)


def test_04_an_idle_stream_whose_last_event_aged_out_is_resumed_with_zero_missed() -> None:
    clock = Clock()
    store = make_store(clock=clock, window_age_s=60)
    stream = store.open_standalone(SCOPE)
    ids = store.append_many(SCOPE, stream, [note(n) for n in range(5)])
    clock.now_s = 120
    reader = store.resume(SCOPE, ids[-1])
    assert isinstance(reader.verdict, Resumed)
    assert reader.verdict.missed == 0
    assert isinstance(store.resume(SCOPE, ids[-2]).verdict, Gap)


def test_05_a_stream_deleted_and_made_again_does_not_know_the_old_numbers() -> None:
    store, stream, ids = filled(10)
    store.end_stream(SCOPE, stream)
    again = store.open_standalone(SCOPE)
    assert again != stream
    store.append_many(SCOPE, again, [note(n) for n in range(20)])
    # The old stream answers for itself, and nothing of the new one is read.
    verdict = store.resume(SCOPE, ids[-1]).verdict
    assert isinstance(verdict, Resumed)
    assert verdict.why.value == "ended"


def test_06_made_again_with_continuing_numbers_is_another_epoch() -> None:
    store, stream, ids = filled(10)
    store.renew_epoch(SCOPE, stream)
    store.append_many(SCOPE, stream, [note(n) for n in range(1, 21)])
    reader = store.resume(SCOPE, ids[-1])
    assert isinstance(reader.verdict, Other)
    assert reader.verdict.why.value == "epoch"
    nothing_is_read(reader)


def test_07_a_new_epoch_paired_with_an_old_position_is_refused_by_its_digest() -> None:
    store, stream, old = filled(9)
    store.renew_epoch(SCOPE, stream)
    new = store.append_many(SCOPE, stream, [note(n) for n in range(9)])
    before, after = EventId.parse(old[4]), EventId.parse(new[4])
    paired = store.resume(SCOPE, at(new[4], sequence=before.sequence, digest=before.digest))
    assert isinstance(paired.verdict, Other)
    assert paired.verdict.why.value == "diverged"
    nothing_is_read(paired)
    other_way = store.resume(SCOPE, at(old[4], sequence=after.sequence, digest=after.digest))
    assert isinstance(other_way.verdict, Other)
    assert other_way.verdict.why.value == "epoch"
    nothing_is_read(other_way)


def test_08_a_client_without_epoch_or_cursor_is_unverifiable_never_any() -> None:
    store, _, _ = filled(10)
    reader = store.resume(SCOPE, None)
    assert isinstance(reader.verdict, Unverifiable)
    nothing_is_read(reader)
    for bare in ("10", "0", ""):
        assert isinstance(store.resume(SCOPE, bare).verdict, Unverifiable)


def test_09_an_unknown_cursor_is_not_answered_with_the_newest_position() -> None:
    store, _, _ = filled(5)
    answer = store.resume(SCOPE, "no-such-id").answer
    assert answer is not None
    assert (answer.after, answer.window, answer.epoch, answer.digest, answer.asked) == (None,) * 5


def test_10_no_search_limit_hides_a_recent_id() -> None:
    store, _, ids = filled(20_000, window_events=20_000, window_bytes=64 << 20)
    for back in (1, 100, 19_999):
        verdict = store.resume(SCOPE, ids[-1 - back]).verdict
        assert isinstance(verdict, Resumed)
        assert verdict.missed == back


def test_11_an_unknown_cursor_replays_nothing_of_any_stream() -> None:
    store, _, _ = filled(5)
    call = store.open_call(SCOPE, [1])
    store.append(SCOPE, call, note(1))
    for cursor in ("unknown", "cf1.zzz", "cf9.a.b.c.1.d"):
        nothing_is_read(store.resume(SCOPE, cursor))


def test_12_a_replayed_event_carries_its_id_so_the_next_resume_goes_on_from_it() -> None:
    store, _, ids = filled(10)
    cursor: str | None = ids[2]
    seen = []
    while True:
        reader = store.resume(SCOPE, cursor)
        piece = reader.read(1)
        if not piece:
            break
        (event,) = events_in(piece)
        seen.append(event.data.encode())
        cursor = event.id
    assert seen == [note(n) for n in range(4, 11)]


def test_14_every_verdict_says_what_to_do_next() -> None:
    store, stream, ids = filled(20, window_events=5)
    asked = {
        store.resume(SCOPE, ids[-1]).verdict.next.value,
        store.resume(SCOPE, ids[0]).verdict.next.value,
        store.resume(SCOPE, "foreign").verdict.next.value,
        store.resume(SCOPE, "cf1.bad").verdict.next.value,
    }
    store.end_stream(SCOPE, stream)
    asked.add(store.resume(SCOPE, ids[-1]).verdict.next.value)
    assert asked == {"continue", "reconcile", "stop", "done"}


def test_16_a_stream_whose_last_event_was_sent_is_kept_for_its_grace() -> None:
    clock = Clock()
    store = make_store(clock=clock, grace_s=100)
    stream = store.open_call(SCOPE, [1])
    reader = store.attach(SCOPE, stream)
    ids = store.append_many(SCOPE, stream, [note(1), answer(1)])
    assert data_of(reader) == [note(1), answer(1)]
    reader.close()
    clock.now_s = 99
    assert data_of(store.resume(SCOPE, ids[0])) == [answer(1)]


def test_17_a_cut_before_the_first_event_resumes_from_the_echo_of_zero() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    seen = EventId.parse(store.append(SCOPE, stream, note(1)))
    chain = KEYS.digest_chain(SCOPE, stream=stream, epoch=seen.epoch)
    echo = KEYS.event_id(SCOPE, stream=stream, epoch=seen.epoch, sequence=0, digest=chain.current)
    reader = store.resume(SCOPE, str(echo))
    assert isinstance(reader.verdict, Resumed)
    assert data_of(reader) == [note(1)]


def test_18_what_a_reader_can_see_is_in_the_log_already() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    reader = store.attach(SCOPE, stream)
    for number in range(50):
        store.append(SCOPE, stream, note(number))
        (event,) = events_in(reader.read())
        resumed = store.resume(SCOPE, event.id)
        assert isinstance(resumed.verdict, Resumed)
        assert resumed.verdict.missed == 0
        reader = resumed


def test_19_nothing_depends_on_a_connection_ending_well() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    reader = store.attach(SCOPE, stream)
    ids = store.append_many(SCOPE, stream, [note(1), note(2)])
    reader.read(1)
    # The process serving it vanished: nobody closed, nobody said goodbye.
    assert data_of(store.resume(SCOPE, ids[0])) == [note(2)]


def test_20_after_a_restart_without_the_data_nothing_is_claimed() -> None:
    _, _, ids = filled(5)
    restarted = make_store()
    reader = restarted.resume(SCOPE, ids[2])
    assert isinstance(reader.verdict, Unverifiable)
    assert reader.verdict.why.value == "unknown-stream"
    restarted.append(SCOPE, restarted.open_standalone(SCOPE), note(9))
    nothing_is_read(restarted.resume(SCOPE, ids[2]))


def test_21_two_sides_that_gave_the_same_numbers_are_told_apart_by_the_digest() -> None:
    store, _, ids = filled(10)
    # The other side of the split gave number 10 to another event, so it has another digest there.
    verdict = store.resume(SCOPE, at(ids[9], digest=EventId.parse(ids[8]).digest)).verdict
    assert isinstance(verdict, Other)
    assert verdict.why.value == "diverged"


def test_25_another_principal_reads_nothing_of_a_session() -> None:
    store, stream, ids = filled(5)
    other = Scope(tenant="t", principal="q", session="s")
    with pytest.raises(SessionEnded):
        store.resume(other, ids[0])
    # Not even in a process that never saw the session.
    reader = make_store().resume(other, ids[0])
    assert isinstance(reader.verdict, Forged)
    nothing_is_read(reader)
    assert stream.kind == "standalone"


def test_26_a_cursor_of_another_replica_group_is_of_an_unknown_key() -> None:
    _, _, ids = filled(5)
    elsewhere = make_store(keys=KeyRing.from_secret(b"other region".ljust(32), made_s=0))
    verdict = elsewhere.resume(SCOPE, ids[0]).verdict
    assert isinstance(verdict, Unverifiable)
    assert verdict.why.value == "key"


def test_28_metadata_and_payload_go_together_and_a_tombstone_outlives_both() -> None:
    clock = Clock()
    store = make_store(clock=clock, grace_s=10, tombstone_age_s=100)
    stream = store.open_call(SCOPE, [1])
    ids = store.append_many(SCOPE, stream, [note(1), answer(1)])
    clock.now_s = 50
    store.sweep()
    assert store.statistics().window_bytes == 0
    lost = store.resume(SCOPE, ids[0]).verdict
    assert isinstance(lost, Gap)
    assert lost.request_ids == (1,)
    assert store.resume(SCOPE, ids[1]).verdict.why.value == "ended"
    clock.now_s = 200
    store.sweep()
    assert store.resume(SCOPE, ids[1]).verdict.why.value == "unknown-stream"


def test_29_no_default_attaches_to_what_was_lost() -> None:
    store, _, ids = filled(20, window_events=5)
    for cursor in (ids[3], None, "17", at(ids[-1], epoch="AAAAAAAAAAA"), at(ids[-1], sequence=99)):
        nothing_is_read(store.resume(SCOPE, cursor))


def test_30_of_two_readers_one_wins_and_the_other_is_told() -> None:
    store, stream, ids = filled(5)
    one = store.resume(SCOPE, ids[1], aware=True)
    two = store.resume(SCOPE, ids[1], aware=True)
    with pytest.raises(TakenOver):
        one.read()
    store.append(SCOPE, stream, note(6))
    assert data_of(two) == [note(n) for n in range(3, 7)]


def test_a_held_stream_that_nobody_read_is_new_and_whole() -> None:
    store = make_store()
    store.open_session(SCOPE)
    stream = store.open_standalone(SCOPE)
    store.append(SCOPE, stream, note(1))
    reader = store.resume(SCOPE, None)
    assert isinstance(reader.verdict, New)
    assert data_of(reader) == [note(1)]
