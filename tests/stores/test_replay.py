"""The synchronous face: keys, clock, forks, threads."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from collections.abc import Sequence

import counterfoil
import pytest
from counterfoil import EventId, KeyRing, Limits, ReaderTooSlow, ReplayStore, Scope, StreamEnded, TakenOver
from store_kit import KEYS, SCOPE, Clock, answer, ask, data_of, events_in, make_store, note, read_all


def test_a_store_without_keys_says_that_its_cursors_die_with_it() -> None:
    with pytest.warns(counterfoil.EphemeralKeyWarning, match="cursor dies"):
        ReplayStore()


def test_an_impossible_bound_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="reserve_bytes"):
        ReplayStore(keys=KEYS, limits=Limits(reserve_bytes=100))
    with pytest.raises(ValueError, match="total_bytes"):
        ReplayStore(keys=KEYS, limits=Limits(total_bytes=1000))


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError):
        ReplayStore(keys=KEYS, limit=Limits())  # type: ignore[call-arg]


def test_a_clock_that_goes_backwards_ages_nothing_twice() -> None:
    clock = Clock()
    store = make_store(clock=clock, window_age_s=100)
    stream = store.open_standalone(SCOPE)
    clock.now_s = 1000
    first = store.append(SCOPE, stream, note(1))
    clock.now_s = 10
    store.append(SCOPE, stream, note(2))
    clock.now_s = 1050
    assert data_of(store.resume(SCOPE, first)) == [note(2)]
    clock.now_s = 1102
    store.append(SCOPE, stream, note(3))
    assert store.statistics().trimmed_age == 2


def test_a_store_used_after_fork_raises() -> None:
    code = """
        import os
        import counterfoil
        keys = counterfoil.KeyRing.from_secret(bytes(32), made_s=0)
        store = counterfoil.ReplayStore(keys=keys)
        scope = counterfoil.Scope(session="s")
        stream = store.open_call(scope, [1])
        reader = store.attach(scope, stream)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: store.append(scope, stream, b"1"), lambda: reader.read(), store.statistics):
                try:
                    call()
                except counterfoil.ForkedHandle:
                    refused += 1
            del reader
            counterfoil.ReplayStore(keys=keys).open_call(scope, [1])
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        store.append(scope, stream, b"1")
        print(os.waitstatus_to_exitcode(status))
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "3"


def test_store_errors_survive_pickling() -> None:
    store = make_store()
    with pytest.raises(counterfoil.UnknownStream) as unknown:
        store.append(Scope(session="z"), store.open_call(SCOPE, [1]), note(1))
    copy = pickle.loads(pickle.dumps(unknown.value))
    assert type(copy) is counterfoil.UnknownStream
    assert str(copy) == str(unknown.value)
    store.open_call(SCOPE, [2])
    limited = make_store(streams=1)
    limited.open_call(SCOPE, [1])
    with pytest.raises(counterfoil.StoreFull) as full:
        limited.open_call(SCOPE, [2])
    copy_of_full = pickle.loads(pickle.dumps(full.value))
    assert (copy_of_full.bound, copy_of_full.limit) == ("streams", 1)


def test_rotation_concerns_new_appends_and_old_frames_keep_their_tag() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    before = store.append(SCOPE, stream, note(1))
    rotated = KEYS.rotated(b"n" * 32, now_s=1)
    store.set_keys(rotated)
    after = store.append(SCOPE, stream, note(2))
    assert before.split(".")[3] != after.split(".")[3]
    assert before.split(".")[2] == after.split(".")[2]
    reader = store.attach(SCOPE, stream)
    text = reader.read().decode()
    assert f"id: {before}\n" in text
    assert f"id: {after}\n" in text
    assert store.resume(SCOPE, before).verdict.why.value == "held"
    assert store.resume(SCOPE, after).verdict.why.value == "held"
    dropped = rotated.without(KEYS.keys[0].id)
    store.set_keys(dropped)
    assert store.resume(SCOPE, before).verdict.why.value == "key"
    assert store.resume(SCOPE, after).verdict.why.value == "held"


def test_two_random_rings_do_not_know_each_other() -> None:
    store = make_store(keys=KeyRing.random())
    stream = store.open_standalone(SCOPE)
    cursor = store.append(SCOPE, stream, note(1))
    assert make_store(keys=KeyRing.random()).resume(SCOPE, cursor).verdict.why.value == "key"


def test_a_clock_may_begin_anywhere() -> None:
    clock = Clock()
    clock.now_s = 1.8e9  # seconds since 1970, more than an event's age has room for
    store = make_store(clock=clock, window_age_s=100)
    stream = store.open_standalone(SCOPE)
    first = store.append(SCOPE, stream, note(1))
    store.append(SCOPE, stream, note(2))
    clock.now_s += 50
    assert data_of(store.resume(SCOPE, first)) == [note(2)]
    clock.now_s += 52
    store.append(SCOPE, stream, note(3))
    assert store.statistics().trimmed_age == 2


def test_times_without_end_are_never_reached_and_break_nothing() -> None:
    clock = Clock()
    names = ("window_age_s", "grace_s", "tombstone_age_s", "stream_idle_s", "session_idle_s")
    store = make_store(clock=clock, **dict.fromkeys(names, 1e300))
    store.open_session(SCOPE)
    stream = store.open_call(SCOPE, [1])
    first = store.append(SCOPE, stream, note(1))
    for now_s in (1e6, 1e12, 1e300):
        clock.now_s = now_s
        store.append(SCOPE, stream, note(2))
        store.sweep()
    assert data_of(store.resume(SCOPE, first)) == [note(2)] * 3


@pytest.mark.parametrize("after", [3, 2**63, 2**64 - 1])
def test_no_reader_starts_beyond_the_end_where_it_would_pass_over_events(after: int) -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    store.append_many(SCOPE, stream, [note(1), note(2)])
    with pytest.raises(ValueError, match="no such sequence yet"):
        store.attach(SCOPE, stream, after=after)
    assert store.statistics().readers == 0
    assert store.attach(SCOPE, stream, after=2).read() == b""


def test_resumes_in_a_batch_that_raises_leave_no_reader_behind() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    cursor = store.append(SCOPE, stream, note(1))
    gone = Scope(session="gone")
    store.delete_session(gone)
    with pytest.raises(counterfoil.SessionEnded):
        store.resume_many([(SCOPE, cursor), (gone, cursor)])
    assert store.statistics().readers == 0
    with store.resume(SCOPE, cursor) as reader:
        assert reader.read() == b""
    assert store.statistics().taken_over == 0


def test_what_a_relay_wakes_may_look_at_the_relay() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    relay = store.open_relay(SCOPE, stream)
    seen = []
    core = store.attach(SCOPE, stream).core
    assert core is not None
    assert core.arm(lambda: seen.append((relay.last_event_id, relay.stream)))
    relay.feed(b"id: 7\ndata: " + note(1) + b"\n\n")
    assert seen == [("7", stream)]


def test_the_ids_of_a_batch_are_a_sequence_of_texts_that_are_made_when_looked_at() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    ids = store.append_many(SCOPE, stream, [note(n) for n in range(5)])
    texts = [store.position_id(SCOPE, stream, position) for position in range(1, 6)]
    assert isinstance(ids, Sequence)
    assert (len(ids), list(ids), ids[0], ids[-1]) == (5, texts, texts[0], texts[4])
    assert ids[1:3] == texts[1:3]
    assert ids == texts
    assert ids == tuple(texts)
    assert ids != texts[:4]
    assert ids != store.append_many(SCOPE, stream, [note(9)])
    assert (ids.index(texts[2]), ids.count(texts[2]), texts[3] in ids) == (2, 1, True)
    assert list(reversed(ids)) == texts[::-1]
    for beyond in (5, -6):
        with pytest.raises(IndexError):
            ids[beyond]
    with pytest.raises(TypeError):
        hash(ids)
    assert repr(ids) == f"EventIds({texts!r})"


def test_a_batch_of_every_kind_of_event_is_stored_as_one_by_one() -> None:
    events: list[bytes | str | bytearray] = [
        note(1),
        note(2).decode(),
        bytearray(note(3)),
        ask("e"),
        b'{"jsonrpc":"2.0",\n"method":"two lines"}',
        note(4),
        b"x" * 1500,
        answer(1),
    ]
    batched, single = make_store(event_bytes=1000), make_store(event_bytes=1000)
    streams = [store.open_call(SCOPE, [1]) for store in (batched, single)]
    readers = [store.attach(SCOPE, stream) for store, stream in zip((batched, single), streams, strict=True)]
    at_once = batched.append_many(SCOPE, streams[0], events)
    one_by_one = [single.append(SCOPE, streams[1], event) for event in events]
    assert [EventId.parse(one).sequence for one in at_once] == [
        EventId.parse(one).sequence for one in one_by_one
    ]
    for reader in readers:
        with pytest.raises(ReaderTooSlow):  # what is too large left the window at birth, with all before it
            reader.read()
    left = [
        store.attach(SCOPE, stream, after=7) for store, stream in zip((batched, single), streams, strict=True)
    ]
    assert data_of(left[0]) == data_of(left[1]) == [answer(1)]
    of_each = [store.statistics() for store in (batched, single)]
    assert of_each[0] == of_each[1]


def test_a_batch_that_is_refused_half_way_keeps_what_came_before() -> None:
    store = make_store()
    stream = store.open_call(SCOPE, [1])
    with pytest.raises(StreamEnded):
        store.append_many(SCOPE, stream, [note(1), answer(1), note(2)])
    assert data_of(store.attach(SCOPE, stream)) == [note(1), answer(1)]
    assert store.append_many(SCOPE, stream, []) == []


def test_events_read_as_values_are_what_the_frames_say() -> None:
    store = make_store(reserve_bytes=4096, window_bytes=4 << 20)
    stream = store.open_call(SCOPE, [1])
    store.append_many(SCOPE, stream, [note(1), b'{"two":\n"lines"}', ask("e"), note(2, size=700)])
    store.append(SCOPE, stream, b'{"typed":1}', event="other")
    store.append(SCOPE, stream, b'{"typed":\n2}', event="another")
    store.set_keys(KEYS.rotated(b"r" * 32, now_s=1))
    other = store.open_standalone(SCOPE)
    for number in range(40):  # pages of both streams lie in between each other
        store.append(SCOPE, stream, note(number, size=number * 40))
        store.append(SCOPE, other, note(number, size=300))
    store.append(SCOPE, stream, answer(1))
    frames = events_in(read_all(store.attach(SCOPE, stream)))
    expected = [(event.id, event.event, event.data.encode()) for event in frames]
    for most in (1, 7, None):
        reader = store.attach(SCOPE, stream)
        found = []
        while len(found) < len(expected):
            events = reader.read_events(5000, max_events=most)
            assert 1 <= len(events) <= (most or len(expected))
            assert list(events) == list(zip(events.ids, events.events, events.data, strict=True))
            found += events
        assert found == expected
        with pytest.raises(StreamEnded, match="ended"):
            reader.read_events()
    assert len({event_id.rsplit(".", 2)[0] for event_id, _, _ in found}) == 2


def test_events_read_as_values_are_a_sequence() -> None:
    store = make_store()
    stream = store.open_standalone(SCOPE)
    ids = store.append_many(SCOPE, stream, [note(n) for n in range(5)])
    events = store.attach(SCOPE, stream).read_events()
    expected = [(event_id, "message", note(n)) for n, event_id in enumerate(ids)]
    assert isinstance(events, Sequence)
    assert (len(events), list(events), events[0], events[-1]) == (5, expected, expected[0], expected[4])
    assert events.ids == ids
    assert events[1:3] == expected[1:3]
    assert (events.index(expected[2]), events.count(expected[2]), expected[3] in events) == (2, 1, True)
    assert list(reversed(events)) == expected[::-1]
    assert repr(events) == "<StoredEvents: 5>"  # no payload in what may be logged
    for beyond in (5, -6):
        with pytest.raises(IndexError):
            events[beyond]


def test_a_read_of_events_gives_large_ones_whole_and_moves_as_a_read_of_frames() -> None:
    store = make_store(window_bytes=4 << 20, reserve_bytes=4096)
    stream = store.open_standalone(SCOPE)
    sent = [note(1), note(2, size=600_000), note(3)]
    store.append_many(SCOPE, stream, sent)
    reader = store.attach(SCOPE, stream)
    assert len(events_in(reader.read(1))) == 1
    assert len(reader.read()) == 256 << 10  # a part of the large one
    assert reader.position == 1
    assert reader.read_events().data == (sent[1],)
    assert reader.position == 2
    assert [event.data.encode() for event in events_in(reader.read())] == sent[2:]
    assert (len(reader.read_events()), reader.has_caught_up) == (0, True)


def test_a_reader_of_answers_reads_only_those_as_values() -> None:
    store = make_store(window_events=3)
    stream = store.open_call(SCOPE, ["a", "b"])
    first = store.append_many(SCOPE, stream, [note(0), answer("a"), *(note(n) for n in range(9))])[0]
    reader = store.resume(SCOPE, first)
    assert reader.is_answers_only
    store.append_many(SCOPE, stream, [note(10), answer("b"), note(11)][:2])
    assert reader.read_events(max_events=1).data == (answer("a"),)
    events = reader.read_events()
    assert events.data == (answer("b"),)
    assert [int(event_id.split(".")[4]) for event_id in events.ids] == [13]


def test_a_read_of_events_ends_as_a_read_of_frames() -> None:
    store = make_store(window_events=3)
    stream = store.open_standalone(SCOPE)
    ids = store.append_many(SCOPE, stream, [note(n) for n in range(3)])
    slow, nothing = store.attach(SCOPE, stream), store.resume(SCOPE, "foreign")
    store.append_many(SCOPE, stream, [note(n) for n in range(2)])
    with pytest.raises(ReaderTooSlow) as lost:
        slow.read_events()
    assert (lost.value.first, lost.value.last) == (1, 2)
    with pytest.raises(StreamEnded):
        nothing.read_events()
    older, newer = store.attach(SCOPE, stream, after=3, aware=True), store.resume(SCOPE, ids[2])
    with pytest.raises(TakenOver):
        older.read_events()
    assert len(newer.read_events()) == 2
