"""Schedules in which a plainer reading of the rules loses, doubles or misleads; each one is settled here."""

from __future__ import annotations

import json

import pytest
from counterfoil import (
    AnswerTooLarge,
    EventId,
    Forged,
    Gap,
    New,
    ReaderTooSlow,
    ReplayStore,
    Resumed,
    Scope,
    SessionEnded,
    StoreFull,
    StreamEnded,
    StreamToken,
    TakenOver,
    UnknownStream,
    Unverifiable,
)
from store_kit import KEYS, SCOPE, Clock, answer, ask, data_of, events_in, make_store, note, read_all


def error(request_id: int | str) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": request_id, "error": {"code": -31001, "message": "lost"}}
    ).encode()


def zero_of(stream: StreamToken, cursor: str) -> str:
    """The cursor before the first event of the same stream and epoch."""
    epoch = EventId.parse(cursor).epoch
    digest = KEYS.digest_chain(SCOPE, stream=stream, epoch=epoch).current
    return str(KEYS.event_id(SCOPE, stream=stream, epoch=epoch, sequence=0, digest=digest))


# --- a refused cursor whose answer is not lost ---


def test_an_error_stored_while_nobody_reads_is_replayed_to_the_client_that_returns() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    cursor = store.append(SCOPE, stream, note(1))
    store.append(SCOPE, stream, error(1))
    reader = store.resume(SCOPE, cursor)
    assert isinstance(reader.verdict, Resumed)
    assert data_of(reader) == [error(1)]


def test_a_stored_answer_is_delivered_behind_every_refused_cursor() -> None:
    store = make_store(window_events=3)
    stream = store.open_call(SCOPE, [1])
    first, *_, last = store.append_many(SCOPE, stream, [*(note(n) for n in range(9)), answer(1)])
    seen = EventId.parse(last)
    for row, changes in (
        (8, {"epoch": "AAAAAAAAAAA"}),
        (9, {"sequence": 99}),
        (10, {"sequence": 1, "digest": EventId.parse(first).digest}),
        (11, {"sequence": 8}),
    ):
        parts = {"epoch": seen.epoch, "sequence": seen.sequence, "digest": seen.digest} | changes
        reader = store.resume(SCOPE, str(KEYS.event_id(SCOPE, stream=stream, **parts)))  # type: ignore[arg-type]
        assert reader.answer is not None
        assert (reader.answer.row, reader.verdict.next.value) == (row, "continue")
        assert data_of(reader) == [answer(1)]


def test_a_call_that_ended_without_answer_gets_one_terminal_error_and_never_a_second() -> None:
    store = make_store(window_events=2)
    stream = store.open_call(SCOPE, [1])
    cursor = store.append_many(SCOPE, stream, [note(n) for n in range(6)])[0]
    store.end_stream(SCOPE, stream, why="cancelled")
    first = store.resume(SCOPE, cursor)
    assert first.answer is not None
    assert (first.answer.settle, first.verdict.next.value, first.is_attached) == (
        "append",
        "reconcile",
        False,
    )
    assert isinstance(first.verdict, Gap)
    assert first.verdict.request_ids == (1,)
    stored = store.settle(SCOPE, stream, error(1))
    assert stored is not None
    assert EventId.parse(stored).sequence == 7
    assert store.settle(SCOPE, stream, error(1)) is None
    assert data_of(store.resume(SCOPE, cursor)) == [error(1)]
    assert store.resume(SCOPE, stored).verdict.why.value == "ended"


def test_a_call_that_ended_without_answer_and_is_a_tombstone_stores_no_error() -> None:
    clock = Clock()
    store = make_store(clock=clock, grace_s=10)
    stream = store.open_call(SCOPE, [1])
    cursor = store.append_many(SCOPE, stream, [note(1), note(2)])[0]
    store.end_stream(SCOPE, stream, why="cancelled")
    clock.now_s = 20
    store.sweep()
    lost = store.resume(SCOPE, cursor).answer
    assert lost is not None
    assert (lost.row, lost.settle) == (10, "write")
    assert store.settle(SCOPE, stream, error(1)) is None


def test_the_real_answer_wins_over_an_error_that_comes_too_late() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    store.append(SCOPE, stream, answer(1))
    assert store.settle(SCOPE, stream, error(1)) is None
    with pytest.raises(StreamEnded):
        store.append(SCOPE, stream, error(1))
    assert data_of(store.attach(SCOPE, stream)) == [answer(1)]


# --- what a reader was written ---


def test_has_caught_up_speaks_of_this_reader_and_not_of_the_stream() -> None:
    store = make_store(window_events=3)
    stream = store.open_call(SCOPE, [1])
    cursor = store.append_many(SCOPE, stream, [note(n) for n in range(9)])[0]
    for_answer = store.resume(SCOPE, cursor)
    assert for_answer.is_answers_only
    assert for_answer.has_caught_up
    store.append(SCOPE, stream, note(9))
    assert for_answer.has_caught_up
    store.append(SCOPE, stream, answer(1))
    assert not for_answer.has_caught_up


@pytest.mark.parametrize("mode", ["all", "answers"])
def test_the_answer_was_read_when_it_and_all_before_it_was(mode: str) -> None:
    store = make_store(window_events=3)
    stream = store.open_call(SCOPE, [1])
    cursor = store.append_many(SCOPE, stream, [note(n) for n in range(9)])[0]
    reader = store.resume(SCOPE, cursor) if mode == "answers" else store.attach(SCOPE, stream, after=8)
    assert reader.is_answers_only == (mode == "answers")
    assert not reader.has_read_answer
    store.append(SCOPE, stream, answer(1))
    assert not reader.has_read_answer
    while not reader.has_read_answer:
        assert reader.read(max_bytes=1)
    with pytest.raises(StreamEnded):
        reader.read()
    assert reader.has_read_answer


def test_a_stream_that_ends_otherwise_has_no_answer_to_read() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    reader = store.attach(SCOPE, stream)
    store.end_stream(SCOPE, stream, why="cancelled")
    assert not reader.has_read_answer
    with pytest.raises(StreamEnded):
        reader.read()
    assert not reader.has_read_answer


# --- the lost standalone stream ---


def test_a_readers_loss_throws_no_event_away_and_mints_no_epoch() -> None:
    store = make_store(window_events=100)
    stream = store.open_standalone(SCOPE)
    ids = store.append_many(SCOPE, stream, [note(n) for n in range(500)])
    epochs = set()
    for _ in range(50):
        reader = store.resume(SCOPE, ids[9], attach_lost=True)
        assert isinstance(reader.verdict, Gap)
        assert reader.answer is not None
        epochs.add(reader.answer.epoch)
        assert data_of(reader) == [note(n) for n in range(400, 500)]
    assert epochs == {EventId.parse(ids[0]).epoch}


def test_a_cursor_of_an_older_epoch_reads_the_current_one_and_does_not_end_it() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    old = store.append(SCOPE, stream, note(1))
    store.renew_epoch(SCOPE, stream)
    store.append(SCOPE, stream, note(2))
    for _ in range(20):
        reader = store.resume(SCOPE, old, attach_lost=True)
        assert reader.verdict.why.value == "epoch"
        assert data_of(reader) == [note(2)]


def test_a_lost_reader_of_a_standalone_stream_that_ended_is_attached_to_the_one_that_lives() -> None:
    store = make_store(window_events=2)
    old = store.open_standalone(SCOPE)
    cursor = store.append_many(SCOPE, old, [note(n) for n in range(5)])[0]
    store.end_stream(SCOPE, old)
    reader = store.resume(SCOPE, cursor, attach_lost=True)
    assert reader.answer is not None
    assert (reader.answer.row, reader.answer.gap) == (10, (2, 3))
    assert reader.stream is not None
    assert reader.stream != old
    store.append(SCOPE, reader.stream, note(9))
    assert data_of(reader) == [note(9)]


def test_a_new_epoch_ends_an_aware_connection_and_an_unaware_one_goes_on() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    store.append(SCOPE, stream, note(1))
    aware = store.attach(SCOPE, stream, aware=True)
    store.renew_epoch(SCOPE, stream)
    with pytest.raises(StreamEnded) as ended:
        aware.read()
    assert ended.value.why == "epoch"
    unaware = store.attach(SCOPE, stream)
    store.renew_epoch(SCOPE, stream)
    store.append(SCOPE, stream, note(2))
    (event,) = events_in(read_all(unaware))
    assert event.id is not None
    assert EventId.parse(event.id).sequence == 1


def test_a_standalone_stream_of_a_lost_process_is_attached_anew_only_where_asked() -> None:
    old_store, restarted = make_store(), make_store()
    cursor = old_store.append(SCOPE, old_store.open_standalone(SCOPE), note(1))
    refused = restarted.resume(SCOPE, cursor)
    assert isinstance(refused.verdict, Unverifiable)
    assert restarted.statistics().live_streams == 0
    attached = restarted.resume(SCOPE, cursor, attach_lost=True)
    assert attached.verdict.why.value == "unknown-stream"
    assert attached.echo_id == cursor
    restarted.append(SCOPE, restarted.open_standalone(SCOPE), note(2))
    assert data_of(attached) == [note(2)]


def test_a_session_never_seen_here_is_not_one_that_ended() -> None:
    other = make_store()
    cursor = other.append(SCOPE, other.open_call(SCOPE, [1]), note(1))
    verdict = make_store().resume(SCOPE, cursor).verdict
    assert isinstance(verdict, Unverifiable)
    store = make_store()
    store.delete_session(SCOPE)
    with pytest.raises(SessionEnded):
        store.resume(SCOPE, cursor)


# --- takeover ---


@pytest.mark.parametrize("how", ["resumed", "gap", "no-cursor", "wanted", "foreign"])
def test_takeover_comes_with_every_verdict_that_attaches(how: str) -> None:
    store = make_store(window_events=3)
    stream = store.open_standalone(SCOPE)
    ids = store.append_many(SCOPE, stream, [note(n) for n in range(6)])
    older = store.attach(SCOPE, stream, after=6, aware=True)
    cursor = {"resumed": ids[-1], "gap": ids[0], "foreign": "17"}.get(how)
    newer = store.resume(SCOPE, cursor, want_new=how == "wanted", attach_lost=True, aware=True)
    with pytest.raises(TakenOver):
        older.read()
    read_all(newer)
    store.append(SCOPE, stream, note(6))
    assert data_of(newer) == [note(6)]


def test_a_reader_of_answers_takes_over_too() -> None:
    store = make_store(window_events=2)
    stream = store.open_call(SCOPE, [1])
    cursor = store.append_many(SCOPE, stream, [note(n) for n in range(6)])[0]
    older = store.attach(SCOPE, stream, after=6)
    newer = store.resume(SCOPE, cursor)
    with pytest.raises(TakenOver):
        older.read()
    store.append(SCOPE, stream, answer(1))
    assert data_of(newer) == [answer(1)]


def test_two_standalone_connections_of_an_unaware_client_do_not_evict_each_other() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    connections = [store.attach(SCOPE, stream) for _ in range(5)]
    store.append(SCOPE, stream, note(1))
    # The newest reads; two are parked and stay open; older ones are told.
    assert data_of(connections[4]) == [note(1)]
    assert [connection.read() for connection in connections[2:4]] == [b"", b""]
    for connection in connections[:2]:
        with pytest.raises(TakenOver):
            connection.read()


# --- requests of the server in a lost range ---


def test_requests_of_the_server_in_a_lost_range_are_named_once_and_bounded() -> None:
    store = make_store(window_events=2)
    stream = store.open_call(SCOPE, [1])
    cursor = store.append_many(
        SCOPE, stream, [note(0), ask("a"), note(1), ask(2), *(note(n) for n in range(5))]
    )[0]
    lost = store.resume(SCOPE, cursor).answer
    assert lost is not None
    assert lost.lost_requests == ("a", 2)
    for number in range(1000):
        store.append(SCOPE, stream, ask(number))
    bounded = store.resume(SCOPE, cursor).answer
    assert bounded is not None
    assert bounded.lost_requests == tuple(range(1000 - 2 - 64, 1000 - 2))
    store.append_many(SCOPE, stream, [ask("x" * 1024), ask("y" * 1025), note(0), note(1)])
    long = store.resume(SCOPE, cursor).answer
    assert long is not None
    assert long.lost_requests[-2:] == (999, "x" * 1024)


# --- a GET without cursor ---


def test_new_is_never_claimed_without_memory_of_the_session() -> None:
    store = make_store()
    assert isinstance(store.resume(SCOPE, None).verdict, Unverifiable)
    store.open_session(SCOPE)
    stream = store.open_standalone(SCOPE)
    first = store.resume(SCOPE, None)
    assert isinstance(first.verdict, New)
    # Nothing was written yet: another first GET is as good as this one.
    assert isinstance(store.resume(SCOPE, None).verdict, New)
    store.append(SCOPE, stream, note(1))
    again = store.resume(SCOPE, None)
    assert data_of(again) == [note(1)]
    assert isinstance(store.resume(SCOPE, None).verdict, Unverifiable)


def test_new_is_not_claimed_for_what_left_the_window_unread() -> None:
    store = make_store(window_events=3)
    store.open_session(SCOPE)
    stream = store.open_standalone(SCOPE)
    store.append_many(SCOPE, stream, [note(n) for n in range(9)])
    assert isinstance(store.resume(SCOPE, None).verdict, Unverifiable)


def test_new_is_not_claimed_after_the_standalone_stream_ended_or_its_history_broke() -> None:
    for break_it in (ReplayStore.end_stream, ReplayStore.renew_epoch):
        store = make_store()
        store.open_session(SCOPE)
        break_it(store, SCOPE, store.open_standalone(SCOPE))
        assert isinstance(store.resume(SCOPE, None).verdict, Unverifiable)


# --- foreign, forged and newer ids ---


def test_foreign_ids_and_forged_standalone_ids_reach_the_own_standalone_stream_only_where_asked() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    store.append(SCOPE, stream, note(1))
    foreign = make_store()
    elsewhere = Scope(session="other")
    forged = foreign.append(elsewhere, foreign.open_standalone(elsewhere), note(9))
    forged_call = foreign.append(elsewhere, foreign.open_call(elsewhere, [1]), note(9))
    for cursor, kind in (("17", Unverifiable), (forged, Forged), ("cf2.a", Unverifiable)):
        assert not store.resume(SCOPE, cursor).is_attached
        reader = store.resume(SCOPE, cursor, attach_lost=True)
        assert isinstance(reader.verdict, kind)
        assert data_of(reader) == [note(1)]
        # Not an ID of ours, so the echo carries the position attached at.
        assert reader.echo_id == zero_of(stream, store.append(SCOPE, stream, note(2)))
        store = make_store()
        stream = store.open_standalone(SCOPE)
        store.append(SCOPE, stream, note(1))
    assert not store.resume(SCOPE, forged_call, attach_lost=True).is_attached
    assert not store.resume(SCOPE, "cf1.malformed", attach_lost=True).is_attached


# --- what does not fit ---


def test_a_notification_without_room_is_a_gap_and_an_answer_without_room_is_refused() -> None:
    store = make_store(event_bytes=5_000)
    stream = store.open_call(SCOPE, [1])
    ids = store.append_many(SCOPE, stream, [note(1), note(2, size=10_000), note(3)])
    reader = store.resume(SCOPE, ids[0])
    assert isinstance(reader.verdict, Gap)
    assert (reader.verdict.first, reader.verdict.last) == (2, 2)
    with pytest.raises(AnswerTooLarge) as refused:
        store.append(SCOPE, stream, answer(1, size=10_000))
    assert (refused.value.bound, refused.value.limit) == ("event_bytes", 5_000)
    assert EventId.parse(store.append(SCOPE, stream, error(1))).sequence == 4
    assert data_of(reader) == [error(1)]


@pytest.mark.parametrize("bounds", [{"event_bytes": 5_000}, {"total_bytes": 20_000}])
def test_an_answer_without_room_costs_no_event_that_was_stored(bounds: dict[str, int]) -> None:
    store = make_store(reserve_bytes=4096, **bounds)
    stream = store.open_call(SCOPE, [1])
    first = store.append_many(SCOPE, stream, [note(1), note(2), note(3)])[0]
    with pytest.raises(AnswerTooLarge):
        store.append(SCOPE, stream, answer(1, size=30_000))
    store.append(SCOPE, stream, error(1))
    assert data_of(store.resume(SCOPE, first)) == [note(2), note(3), error(1)]


def test_an_event_above_the_window_is_kept_alone_while_the_total_allows() -> None:
    store = make_store(window_bytes=10_000, total_bytes=1 << 20)
    stream = store.open_call(SCOPE, [1])
    cursor = store.append(SCOPE, stream, note(1))
    big = store.append(SCOPE, stream, note(2, size=100_000))
    assert isinstance(store.resume(SCOPE, cursor).verdict, Resumed)
    reader = store.attach(SCOPE, stream, after=1)
    assert data_of(reader) == [note(2, size=100_000)]
    huge = store.append(SCOPE, stream, note(3, size=2 << 20))
    assert isinstance(store.resume(SCOPE, big).verdict, Gap)
    assert isinstance(store.resume(SCOPE, huge).verdict, Resumed)
    assert store.statistics().trimmed_at_birth == 1
    # The answer of an effect that happened still has its reserved part.
    store.append(SCOPE, stream, answer(1))
    assert data_of(store.resume(SCOPE, huge)) == [answer(1)]


# --- DELETE ---


def test_delete_lets_kept_calls_finish_and_nothing_of_them_is_reached_by_id() -> None:
    clock = Clock()
    store = make_store(clock=clock, grace_s=10)
    kept = store.open_call(SCOPE, [1])
    cursor = store.append(SCOPE, kept, note(1))
    gone = store.open_call(SCOPE, [2])
    reader = store.attach(SCOPE, kept)
    assert set(store.delete_session(SCOPE, keep=[kept])) == {kept, gone}
    assert store.delete_session(SCOPE) == []
    with pytest.raises(StreamEnded) as ended:
        reader.read()
    assert ended.value.why == "session"
    store.append(SCOPE, kept, answer(1))
    with pytest.raises(SessionEnded):
        store.resume(SCOPE, cursor)
    assert data_of(store.attach(SCOPE, kept)) == [note(1), answer(1)]
    clock.now_s = 20
    store.sweep()
    with pytest.raises(UnknownStream):
        store.attach(SCOPE, kept)
    assert store.statistics().window_bytes == 0


# --- batches ---


def test_a_batch_ends_with_its_last_answer_and_no_answer_is_ever_in_a_lost_range() -> None:
    store = make_store(window_events=3)
    stream = store.open_call(SCOPE, [1, "two", 3])
    assert stream.request_id is None
    cursor = store.append(SCOPE, stream, note(0))
    store.append(SCOPE, stream, answer("two"))
    store.append_many(SCOPE, stream, [note(n) for n in range(1, 9)])
    store.append(SCOPE, stream, answer(1))
    reader = store.resume(SCOPE, cursor)
    assert isinstance(reader.verdict, Gap)
    assert reader.verdict.request_ids == ()
    assert data_of(reader) == [answer("two"), answer(1)]
    store.append_many(SCOPE, stream, [note(n) for n in range(9, 14)])
    store.append(SCOPE, stream, answer(3))
    assert data_of(reader) == [answer(3)]
    assert data_of(store.resume(SCOPE, cursor)) == [answer("two"), answer(1), answer(3)]
    with pytest.raises(StreamEnded):
        store.append(SCOPE, stream, note(99))


def test_an_event_that_holds_several_answers_settles_them_all() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1, 2])
    store.append(SCOPE, stream, b"[" + answer(2) + b"," + answer(1) + b"]")
    with pytest.raises(StreamEnded):
        store.append(SCOPE, stream, note(1))


def test_the_ids_of_a_batch_count_against_the_budget_and_leave_with_the_stream() -> None:
    clock = Clock()
    store = make_store(clock=clock, total_bytes=1 << 20, grace_s=10)
    long = ["x" * 100_000, *(f"{number}" * 100_000 for number in range(3))]
    with store.attach(SCOPE, store.open_call(SCOPE, long)):
        assert store.statistics().charged_bytes > 800_000
        with pytest.raises(StoreFull):
            store.open_call(SCOPE, long)
        small = store.open_call(SCOPE, [1])
        store.append(SCOPE, small, answer(1))
    store.delete_session(SCOPE)
    assert store.statistics().charged_bytes == 0


def test_a_tombstone_names_requests_that_are_short() -> None:
    clock = Clock()
    store = make_store(clock=clock, grace_s=10)
    cursors = []
    for ids in ([1, "b"], ["c", "d" * 1000]):
        stream = store.open_call(SCOPE, ids)
        cursors.append(store.append_many(SCOPE, stream, [note(1), *(answer(each) for each in ids)])[0])
    clock.now_s = 20
    store.sweep()
    assert store.statistics().charged_bytes == 0
    named = [store.resume(SCOPE, cursor).answer for cursor in cursors]
    assert [each.request_ids for each in named if each is not None] == [(1, "b"), ()]


def test_typed_ids_are_not_mixed_up() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, ["1"])
    store.append(SCOPE, stream, answer(1))
    store.append(SCOPE, stream, b'{"jsonrpc":"2.0","id":1.0,"result":{}}')
    store.append(SCOPE, stream, answer("1"))
    with pytest.raises(StreamEnded):
        store.append(SCOPE, stream, note(1))


def test_a_request_id_without_room_in_an_id_is_settled_all_the_same() -> None:
    store = make_store()
    long_id = "x" * 300
    stream = store.open_call(SCOPE, [long_id])
    assert stream.request_id is None
    store.append(SCOPE, stream, answer(long_id))
    with pytest.raises(StreamEnded):
        store.append(SCOPE, stream, note(1))


# --- the end of a grace ---


def test_a_reader_in_mid_replay_at_the_end_of_the_grace_gets_a_typed_end_not_an_end_of_stream() -> None:
    clock = Clock()
    store = make_store(clock=clock, grace_s=10, tombstone_age_s=10)
    stream = store.open_call(SCOPE, [1])
    store.append_many(SCOPE, stream, [note(1), note(2), answer(1)])
    reader = store.attach(SCOPE, stream)
    assert len(events_in(reader.read(1))) == 1
    clock.now_s = 11
    store.sweep()
    with pytest.raises(ReaderTooSlow) as slow:
        reader.read()
    assert (slow.value.first, slow.value.last) == (2, 3)
    of_a_tombstone = store.attach(SCOPE, stream)
    clock.now_s = 30
    store.sweep()
    with pytest.raises(ReaderTooSlow):
        of_a_tombstone.read()
