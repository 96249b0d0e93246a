"""What every backend of the replay log promises; a later backend is added to `BACKENDS`."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from counterfoil import (
    AnswerTooLarge,
    Gap,
    Limits,
    New,
    ReaderBusy,
    ReaderTooSlow,
    Resumed,
    Scope,
    SessionEnded,
    StoreFull,
    StreamEnded,
    TakenOver,
    UnknownStream,
    Unverifiable,
)
from counterfoil.stores.interface import ReplayLog
from counterfoil.stores.memory import MemoryReplayLog
from store_kit import SCOPE, Clock, answer, ask, data_of, events_in, make_store, note, read_all

pytestmark = pytest.mark.anyio

#: Makes an empty log with these limits and this clock.
MakeLog = Callable[..., ReplayLog]


def memory_log(*, clock: Clock | None = None, **limits: int | float) -> ReplayLog:
    return MemoryReplayLog(make_store(clock=clock, **limits))


BACKENDS: dict[str, MakeLog] = {"memory": memory_log}


@pytest.fixture(params=sorted(BACKENDS))
def make_log(request: pytest.FixtureRequest) -> MakeLog:
    return BACKENDS[request.param]


async def test_append_gives_dense_ids_and_a_reader_gets_every_frame(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    reader = await log.attach(SCOPE, stream)
    sent = [note(n) for n in range(10)]
    ids = await log.append(SCOPE, stream, sent)
    events = events_in(read_all(reader))
    assert [event.id for event in events] == ids
    assert [event.data.encode() for event in events] == sent
    assert [int(event_id.split(".")[4]) for event_id in ids] == list(range(1, 11))


async def test_resume_gives_all_missed_events_in_order(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    sent = [note(n) for n in range(10)]
    ids = await log.append(SCOPE, stream, sent)
    for number, event_id in enumerate(ids, start=1):
        reader = await log.resume(SCOPE, event_id)
        assert isinstance(reader.verdict, Resumed)
        assert (reader.verdict.after, reader.verdict.missed) == (number, 10 - number)
        assert data_of(reader) == sent[number:]


async def test_no_piece_is_larger_than_asked_but_for_one_event(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    await log.append(SCOPE, stream, [note(n, size=300) for n in range(50)])
    reader = await log.attach(SCOPE, stream)
    pieces = []
    while piece := reader.read(2000):
        pieces.append(piece)
    assert all(len(piece) <= 2000 for piece in pieces)
    assert len(events_in(b"".join(pieces))) == 50
    small = await log.attach(SCOPE, stream)
    assert len(events_in(small.read(1))) == 1


async def test_a_trimmed_cursor_gets_a_gap_with_its_range(make_log: MakeLog) -> None:
    log = make_log(window_events=5)
    stream = await log.open_standalone(SCOPE)
    ids = await log.append(SCOPE, stream, [note(n) for n in range(20)])
    reader = await log.resume(SCOPE, ids[3])
    assert isinstance(reader.verdict, Gap)
    assert (reader.verdict.first, reader.verdict.last) == (5, 15)
    assert not reader.is_attached
    with pytest.raises(StreamEnded):
        reader.read()


async def test_a_call_behind_a_gap_still_gets_its_answer_and_later_requests(make_log: MakeLog) -> None:
    log = make_log(window_events=3)
    stream = await log.open_call(SCOPE, ["call"])
    ids = await log.append(SCOPE, stream, [ask(90), *(note(n) for n in range(9))])
    reader = await log.resume(SCOPE, ids[0].replace(".1.", ".1."))
    assert isinstance(reader.verdict, Gap)
    assert reader.verdict.next.value == "continue"
    assert reader.is_answers_only
    await log.append(SCOPE, stream, [note(100), ask(91), note(101), answer("call")])
    assert data_of(reader) == [ask(91), answer("call")]


async def test_the_answer_ends_the_stream(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [7])
    reader = await log.attach(SCOPE, stream)
    await log.append(SCOPE, stream, [answer("7"), answer(7)])
    assert data_of(reader) == [answer("7"), answer(7)]
    with pytest.raises(StreamEnded) as ended:
        reader.read()
    assert ended.value.why == "ended"
    with pytest.raises(StreamEnded):
        await log.append(SCOPE, stream, [note(1)])


async def test_the_answer_outlives_every_bound_until_its_grace_ends(make_log: MakeLog) -> None:
    clock = Clock()
    log = make_log(clock=clock, window_events=2, window_age_s=10, grace_s=60)
    stream = await log.open_call(SCOPE, [7])
    ids = await log.append(SCOPE, stream, [note(1), answer(7)])
    clock.now_s = 59
    assert data_of(await log.resume(SCOPE, ids[0])) == [answer(7)]
    clock.now_s = 61
    late = await log.resume(SCOPE, ids[0])
    assert isinstance(late.verdict, Gap)
    assert late.verdict.request_ids == (7,)
    assert late.answer is not None
    assert late.answer.settle == "write"
    assert not late.is_attached


async def test_the_newest_reader_wins_and_the_older_one_is_told(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    older = await log.attach(SCOPE, stream)
    ids = await log.append(SCOPE, stream, [note(0)])
    newer = await log.resume(SCOPE, ids[0])
    with pytest.raises(TakenOver):
        older.read()
    await log.append(SCOPE, stream, [note(1)])
    assert data_of(newer) == [note(1)]


async def test_who_comes_back_too_often_for_nothing_is_to_be_held_longer_and_longer(
    make_log: MakeLog,
) -> None:
    clock = Clock()
    log = make_log(clock=clock)
    stream = await log.open_standalone(SCOPE)
    (event_id,) = await log.append(SCOPE, stream, [note(0)])

    async def hold_s(after: str | None = event_id) -> float:
        reader = await log.resume(SCOPE, after)
        assert reader.answer is not None
        return reader.answer.hold_s

    assert [await hold_s() for _ in range(10)] == [0, 0, 0, 0.5, 1, 2, 4, 8, 15, 15]
    clock.now_s = 10.5  # all of them are older than ten seconds
    assert [await hold_s() for _ in range(4)] == [0, 0, 0, 0.5]


async def test_nobody_is_held_with_data_to_replay_and_data_makes_good_what_was(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    ids = await log.append(SCOPE, stream, [note(0), note(1)])
    for _ in range(5):
        empty = await log.resume(SCOPE, ids[1])
    assert empty.answer is not None
    assert empty.answer.hold_s == 1
    behind = await log.resume(SCOPE, ids[0])
    assert behind.answer is not None
    assert behind.answer.hold_s == 0
    assert data_of(behind) == [note(1)]
    for expected in (0, 0, 0, 0.5):
        again = await log.resume(SCOPE, ids[1])
        assert again.answer is not None
        assert again.answer.hold_s == expected
    other = await log.open_call(SCOPE, [2])
    elsewhere = await log.resume(SCOPE, (await log.append(SCOPE, other, [note(0)]))[0])
    assert elsewhere.answer is not None
    assert elsewhere.answer.hold_s == 0


async def test_one_newcomer_is_held_at_a_time_and_a_newer_one_ends_its_wait(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    (event_id,) = await log.append(SCOPE, stream, [note(0)])
    for _ in range(4):
        held = await log.resume(SCOPE, event_id)
    assert held.answer is not None
    assert held.answer.hold_s > 0
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.wait)
            await anyio.wait_all_tasks_blocked()
            newer = await log.resume(SCOPE, event_id)
    with pytest.raises(TakenOver):
        held.read()
    await log.append(SCOPE, stream, [note(1)])
    with anyio.fail_after(5):
        await newer.wait()
    assert data_of(newer) == [note(1)]


@pytest.mark.parametrize("cursor", ["held", "trimmed", "none", "wanted", "foreign", "lost-epoch"])
async def test_every_verdict_that_attaches_takes_over_in_the_same_step(
    make_log: MakeLog, cursor: str
) -> None:
    log = make_log(window_events=3)
    stream = await log.open_standalone(SCOPE)
    (first,) = await log.append(SCOPE, stream, [note(0)])
    if cursor == "lost-epoch":
        await log.renew_epoch(SCOPE, stream)
    ids = await log.append(SCOPE, stream, [note(n) for n in range(1, 9)])
    older = await log.attach(SCOPE, stream, after=8, aware=True)
    asked = {"held": ids[-1], "trimmed": first, "lost-epoch": first, "foreign": "17"}.get(cursor)
    newer = await log.resume(SCOPE, asked, aware=True, attach_lost=True, want_new=cursor == "wanted")
    assert newer.is_attached
    with pytest.raises(TakenOver):
        older.read()
    data_of(newer)
    await log.append(SCOPE, stream, [note(9)])
    assert data_of(newer) == [note(9)]


async def test_unaware_standalone_readers_are_parked_at_most_two_of_them(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_standalone(SCOPE)
    readers = [await log.attach(SCOPE, stream) for _ in range(4)]
    await log.append(SCOPE, stream, [note(1)])
    assert [reader.is_parked for reader in readers[1:]] == [True, True, False]
    with pytest.raises(TakenOver):
        readers[0].read()
    assert [reader.read() for reader in readers[1:3]] == [b"", b""]
    assert data_of(readers[3]) == [note(1)]


async def test_a_reader_out_of_the_window_gets_a_typed_end(make_log: MakeLog) -> None:
    log = make_log(window_events=4)
    stream = await log.open_standalone(SCOPE)
    reader = await log.attach(SCOPE, stream)
    await log.append(SCOPE, stream, [note(0), note(1)])
    assert len(events_in(reader.read())) == 2
    await log.append(SCOPE, stream, [note(n) for n in range(2, 9)])
    with pytest.raises(ReaderTooSlow) as slow:
        reader.read()
    assert (slow.value.first, slow.value.last) == (3, 5)


async def test_wait_returns_at_once_when_there_is_something(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    reader = await log.attach(SCOPE, stream)
    await log.append(SCOPE, stream, [note(1)])
    with anyio.fail_after(5):
        await reader.wait()


async def test_wait_is_woken_once_for_a_batch_and_by_the_end(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    reader = await log.attach(SCOPE, stream)
    seen: list[int] = []

    async def follow() -> None:
        while True:
            await reader.wait()
            try:
                seen.append(len(events_in(reader.read())))
            except StreamEnded:
                return

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            await log.append(SCOPE, stream, [note(n) for n in range(10)])
            await anyio.wait_all_tasks_blocked()
            await log.append(SCOPE, stream, [answer(1)])
    assert seen == [10, 1]


async def test_a_cancelled_wait_loses_nothing(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    reader = await log.attach(SCOPE, stream)
    with anyio.move_on_after(0) as scope:
        await reader.wait()
    assert scope.cancelled_caught
    await log.append(SCOPE, stream, [note(1)])
    with anyio.fail_after(5):
        await reader.wait()
    assert data_of(reader) == [note(1)]


async def test_a_second_waiter_is_refused(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    reader = await log.attach(SCOPE, stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.wait)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ReaderBusy):
            await reader.wait()
        tasks.cancel_scope.cancel()


async def test_a_waiter_is_woken_from_another_thread(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    reader = await log.attach(SCOPE, stream)

    def append_there() -> None:
        anyio.run(log.append, SCOPE, stream, [note(1)])

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, append_there)
            await reader.wait()
    assert data_of(reader) == [note(1)]


async def test_another_scope_reads_nothing_and_appends_nothing(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    ids = await log.append(SCOPE, stream, [note(1), note(2)])
    for other in (
        Scope(tenant="u", principal="p", session="s"),
        Scope(tenant="t", principal="p", session="z"),
        Scope(tenant="t", principal="p"),
    ):
        reader = await log.resume(other, ids[0])
        assert reader.verdict.why.value == "mac"
        assert not reader.is_attached
        with pytest.raises(UnknownStream):
            await log.append(other, stream, [note(3)])
        with pytest.raises(UnknownStream):
            await log.attach(other, stream)
    with pytest.raises(SessionEnded):
        await log.resume(Scope(tenant="t", principal="q", session="s"), ids[0])


async def test_deleting_a_session_ends_readers_purges_and_refuses(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [1])
    kept = await log.open_call(SCOPE, [2])
    ids = await log.append(SCOPE, stream, [note(1)])
    reader = await log.attach(SCOPE, stream)
    assert set(await log.delete_session(SCOPE, keep=[kept])) == {stream, kept}
    with pytest.raises(StreamEnded) as ended:
        reader.read()
    assert ended.value.why == "session"
    with pytest.raises(SessionEnded):
        await log.resume(SCOPE, ids[0])
    with pytest.raises(SessionEnded):
        await log.open_call(SCOPE, [3])
    with pytest.raises(UnknownStream):
        await log.append(SCOPE, stream, [note(2)])
    await log.append(SCOPE, kept, [answer(2)])
    assert data_of(await log.attach(SCOPE, kept)) == [answer(2)]


async def test_at_the_budget_new_streams_are_refused_and_old_ones_go_on(make_log: MakeLog) -> None:
    log = make_log(total_bytes=64 << 10, reserve_bytes=8 << 10, session_streams=100)
    scope = Scope(session="s")  # no principal: whoever it is may use all that there is
    streams = [await log.open_call(scope, [number]) for number in range(7)]
    with pytest.raises(StoreFull) as full:
        await log.open_call(scope, [7])
    assert full.value.bound == "total_bytes"
    for number, stream in enumerate(streams):
        reader = await log.attach(scope, stream)
        for n in range(40):
            await log.append(scope, stream, [note(n, size=500)])
        await log.append(scope, stream, [answer(number)])
        with pytest.raises(ReaderTooSlow):
            reader.read()
        assert data_of(await log.attach(scope, stream, after=35))[-1] == answer(number)


async def open_calls(log: ReplayLog, scope: Scope, count: int) -> None:
    for number in range(count):
        await log.open_call(scope, [number])


async def test_a_principal_that_fills_the_store_leaves_room_for_the_others(make_log: MakeLog) -> None:
    total = 4 << 20
    log = make_log(total_bytes=total, reserve_bytes=4096, session_streams=1000, window_events=10_000)
    hog = [Scope(tenant="t", principal="hog", session=f"h{number}") for number in range(8)]
    streams = [(scope, await log.open_call(scope, [1])) for scope in hog]
    for _ in range(20):
        for scope, stream in streams:
            await log.append(scope, stream, [note(n, size=1000) for n in range(50)])
    held = (await log.statistics()).charged_bytes
    assert total * 0.87 < held <= total * 8 // 9  # nearly everything, while nobody else asks
    with pytest.raises(StoreFull) as full:
        await open_calls(log, hog[0], 200)
    assert (full.value.bound, full.value.limit) == ("principal_share", 8)
    # Its streams go on with what they have, and an answer may have what nobody else has taken.
    before = (await log.statistics()).charged_bytes
    await log.append(*streams[0], [note(n, size=1000) for n in range(500)])
    assert (await log.statistics()).charged_bytes <= before
    await log.append(*streams[1], [answer(1, size=100_000)])
    # Others find room: of the same tenant, of another one, and whoever is told apart by sessions only.
    for scope in (
        Scope(tenant="t", principal="other", session="o"),
        Scope(tenant="u", principal="hog", session="u"),
        Scope(session="nobody"),
    ):
        mine = await log.open_call(scope, [1])
        sent = [note(n, size=1000) for n in range(20)]
        await log.append(scope, mine, sent)
        assert data_of(await log.attach(scope, mine)) == sent
    # What ends gives its share back.
    for scope in hog:
        await log.delete_session(scope)
    again = Scope(tenant="t", principal="hog", session="again")
    await open_calls(log, again, 100)


async def test_standalone_without_cursor_is_new_only_when_held_and_never_written(make_log: MakeLog) -> None:
    log = make_log()
    await log.open_session(SCOPE)
    stream = await log.open_standalone(SCOPE)
    await log.append(SCOPE, stream, [note(1)])
    first = await log.resume(SCOPE, None)
    assert isinstance(first.verdict, New)
    assert data_of(first) == [note(1)]
    await log.append(SCOPE, stream, [note(2)])
    again = await log.resume(SCOPE, None)
    assert isinstance(again.verdict, Unverifiable)
    assert again.verdict.why.value == "no-cursor"
    assert not again.is_attached
    lost = await log.resume(SCOPE, None, attach_lost=True)
    assert isinstance(lost.verdict, Unverifiable)
    assert data_of(lost) == [note(2)]
    wanted = await log.resume(SCOPE, None, want_new=True)
    assert isinstance(wanted.verdict, New)
    assert data_of(wanted) == []


async def test_the_relay_appends_a_chunk_under_our_ids_and_says_what_it_saw(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [7])
    reader = await log.attach(SCOPE, stream)
    relay = await log.open_relay(SCOPE, stream)
    upstream = b"".join(
        [
            b"id: u1\ndata:\n\n",
            b": hello\n\n",
            b"retry: 250\nid: u2\ndata: " + note(1) + b"\n\n",
            b"event: prime\nid: u3\ndata: x\n\n",
            b"id: u4\ndata: {}\n\n",
            b"id: u5\ndata: " + ask("e1") + b"\n\n",
            b"id: u6\ndata: " + answer(7) + b"\n\n",
        ]
    )
    batches = [await relay.feed(upstream[at : at + 9]) for at in range(0, len(upstream), 9)]
    seen = [
        (seen.what, seen.kind, seen.id, seen.method, seen.text) for batch in batches for seen in batch.seen
    ]
    assert seen == [
        ("echo", "invalid", None, None, "u1"),
        ("comment", "invalid", None, None, "hello"),
        ("appended", "notification", None, "notifications/note", None),
        ("dropped", "invalid", None, None, "prime"),
        ("dropped", "invalid", None, None, None),
        ("appended", "request", "e1", "elicitation/create", None),
        ("appended", "result", 7, None, None),
    ]
    assert relay.last_event_id == "u6"
    assert [batch.retry_ms for batch in batches if batch.retry_ms is not None] == [250]
    assert batches[-1].has_ended
    assert data_of(reader) == [note(1), ask("e1"), answer(7)]
    assert not relay.end()


async def test_the_relay_stops_before_what_is_no_json_rpc(make_log: MakeLog) -> None:
    log = make_log()
    stream = await log.open_call(SCOPE, [7])
    relay = await log.open_relay(SCOPE, stream, last_event_id="u0")
    chunk = b"id: u1\ndata: " + note(1) + b"\n\nid: u2\ndata: <html>\n\nid: u3\ndata: " + answer(7) + b"\n\n"
    batch = await relay.feed(chunk)
    assert [seen.what for seen in batch.seen] == ["appended", "invalid"]
    assert relay.last_event_id == "u1"
    assert data_of(await log.attach(SCOPE, stream)) == [note(1)]


async def test_the_relay_reports_an_answer_that_has_no_room(make_log: MakeLog) -> None:
    log = make_log(event_bytes=1000)
    stream = await log.open_call(SCOPE, [7])
    relay = await log.open_relay(SCOPE, stream, limits=Limits())
    batch = await relay.feed(b"data: " + answer(7, size=2000) + b"\n\n")
    assert [(seen.what, seen.id) for seen in batch.seen] == [("refused", 7)]
    assert isinstance(batch.refused, AnswerTooLarge)
    error = b'{"jsonrpc":"2.0","id":7,"error":{"code":-31000,"message":"too large"}}'
    await log.append(SCOPE, stream, [error])
    assert data_of(await log.attach(SCOPE, stream)) == [error]


async def test_an_event_above_a_piece_comes_in_several_and_is_whole_again(make_log: MakeLog) -> None:
    log = make_log(window_bytes=8 << 20)
    stream = await log.open_call(SCOPE, [1])
    reader = await log.attach(SCOPE, stream)
    sent = [note(1), note(2, size=1 << 20), note(3), note(4, size=300_000), answer(1)]
    ids = await log.append(SCOPE, stream, sent)
    pieces = []
    while True:
        try:
            piece = reader.read()
        except StreamEnded:
            break
        assert 0 < len(piece) <= 256 << 10
        pieces.append(piece)
    assert [event.data.encode() for event in events_in(b"".join(pieces))] == sent
    # Cut in the middle of the large one, the next connection begins with it again.
    cut = await log.resume(SCOPE, ids[0])
    cut.read()
    assert cut.position == 1
    assert data_of(await log.resume(SCOPE, ids[0])) == sent[1:]


@pytest.mark.parametrize("is_pinned", [False, True], ids=["in the window", "pinned"])
async def test_a_large_answer_alone_comes_in_pieces_as_well(make_log: MakeLog, is_pinned: bool) -> None:
    log = make_log(window_events=4, window_bytes=8 << 20)
    stream = await log.open_call(SCOPE, ["a", "b"])
    ids = await log.append(SCOPE, stream, [note(n) for n in range(9)])
    reader = await log.resume(SCOPE, ids[0])
    assert reader.is_answers_only
    answers = [answer("a", size=700_000), answer("b", size=300_000)]
    await log.append(SCOPE, stream, [answers[0], ask("small"), ask("large" + "x" * 300_000)])
    if is_pinned:
        await log.append(SCOPE, stream, [note(n) for n in range(3)])
    pieces = [reader.read()]
    # Between two pieces it may leave the window, but not its place.
    await log.append(SCOPE, stream, [note(9), note(10), answers[1]])
    while True:
        try:
            pieces.append(reader.read(100_000))
        except StreamEnded:
            break
    assert all(0 < len(piece) <= 256 << 10 for piece in pieces)
    found = [event.data.encode() for event in events_in(b"".join(pieces))]
    assert [one for one in found if one in answers] == answers


async def test_a_large_request_that_leaves_the_window_between_two_pieces_ends_its_reader(
    make_log: MakeLog,
) -> None:
    log = make_log(window_events=4, window_bytes=8 << 20)
    stream = await log.open_call(SCOPE, ["a"])
    ids = await log.append(SCOPE, stream, [note(n) for n in range(9)])
    reader = await log.resume(SCOPE, ids[0])
    await log.append(SCOPE, stream, [ask("x" * 300_000)])
    assert len(reader.read()) == 256 << 10
    await log.append(SCOPE, stream, [note(n) for n in range(9)])
    with pytest.raises(ReaderTooSlow) as slow:
        reader.read()
    assert (slow.value.first, slow.value.last) == (10, 10)


async def test_a_flood_of_sessions_pushes_out_its_own_and_refuses_nobody(make_log: MakeLog) -> None:
    clock = Clock()
    log = make_log(clock=clock, sessions=20)
    quiet = [Scope(tenant="t", principal="quiet", session=f"q{n}") for n in range(3)]
    for scope in quiet:
        await log.open_session(scope)
    busy = Scope(tenant="t", principal="flood", session="busy")
    stream = await log.open_call(busy, [1])
    (event_id,) = await log.append(busy, stream, [note(0)])
    for number in range(200):
        clock.now_s += 1
        await log.open_session(Scope(tenant="t", principal="flood", session=f"f{number}"))
    late = Scope(tenant="t", principal="late", session="l")
    await log.open_session(late)
    for scope in (*quiet, late):
        assert isinstance((await log.resume(scope, None)).verdict, New)
    assert isinstance((await log.resume(busy, event_id)).verdict, Resumed)
    counts = await log.statistics()
    assert (counts.sessions, counts.refused) == (20, 0)
    assert counts.forgotten_sessions == 205 - 20
    # What is forgotten is no session that has ended: its first GET is only not known to be its first.
    forgotten = await log.resume(Scope(tenant="t", principal="flood", session="f0"), None)
    assert isinstance(forgotten.verdict, Unverifiable)


async def test_among_many_with_one_session_each_the_least_recently_used_goes(make_log: MakeLog) -> None:
    clock = Clock()
    log = make_log(clock=clock, sessions=3)
    scopes = [Scope(tenant="t", principal=f"p{n}", session=f"s{n}") for n in range(4)]
    for scope in scopes[:3]:
        clock.now_s += 1
        await log.open_session(scope)
    clock.now_s += 1
    await log.open_session(scopes[0])  # used again
    await log.open_session(scopes[3])
    kept = [isinstance((await log.resume(scopes[n], None)).verdict, New) for n in (0, 2, 3)]
    assert kept == [True, True, True]


async def test_sessions_with_streams_are_never_forgotten_for_others(make_log: MakeLog) -> None:
    clock = Clock()
    log = make_log(clock=clock, sessions=2, grace_s=60, tombstone_age_s=600)
    scopes = [Scope(session=f"s{n}") for n in range(4)]
    streams = [await log.open_call(scope, [1]) for scope in scopes[:2]]
    with pytest.raises(StoreFull) as full:
        await log.open_session(scopes[2])
    assert full.value.bound == "sessions"
    await log.append(scopes[0], streams[0], [answer(1)])
    with pytest.raises(StoreFull):
        await log.open_session(scopes[2])  # in its grace the answer can still be read
    clock.now_s = 61
    await log.open_session(scopes[2])
    with pytest.raises(UnknownStream):
        await log.append(scopes[0], streams[0], [note(1)])
    await log.append(scopes[1], streams[1], [answer(1)])


async def test_nobody_is_refused_for_what_is_over_and_only_not_swept_yet(make_log: MakeLog) -> None:
    clock = Clock()
    log = make_log(
        clock=clock, total_bytes=100 * (512 + (8 << 10)), reserve_bytes=8 << 10, stream_idle_s=5, grace_s=5
    )
    for number in range(100):
        await log.open_call(Scope(session=f"s{number}"), [1])
    late = Scope(session="late")
    with pytest.raises(StoreFull):
        await log.open_call(late, [1])
    clock.now_s = 6  # all of them are idle: they end, and then their grace begins
    await log.open_call(late, [1])
