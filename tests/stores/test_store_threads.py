"""Append while resuming, in several threads: nothing lost, nothing doubled, nothing of another stream."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from counterfoil import EventId, ReaderTooSlow, ReplayStore, Resumed, StreamEnded, StreamToken, TakenOver
from store_kit import SCOPE, answer, events_in, make_store, note

Scaled = Callable[[int, int], int]


@pytest.fixture
def often_switching() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def follow(store: ReplayStore, stream: StreamToken, seed: int, got: list[int], taken: list[int]) -> None:
    """Read a stream over many connections, each cut at a random point, until it ends."""
    chooser = random.Random(seed)
    reader = store.attach(SCOPE, stream)
    cursor: str | None = None
    while True:
        try:
            piece = reader.read(chooser.choice([1, 400, 4000]))
        except StreamEnded:
            return
        except TakenOver:
            taken.append(1)
            piece = b""
        for event in events_in(piece):
            assert event.id is not None
            cursor = event.id
            got.append(EventId.parse(cursor).sequence)
        if cursor is not None and chooser.random() < 0.5:
            reader.close()
            reader = store.resume(SCOPE, cursor)
            assert isinstance(reader.verdict, Resumed)
            if not reader.is_attached:
                return


@pytest.mark.usefixtures("often_switching")
def test_append_while_resuming_loses_and_doubles_nothing(scaled: Scaled) -> None:
    for round_number in range(scaled(20, 400)):
        store = make_store(session_streams=100)
        streams = [store.open_call(SCOPE, [number]) for number in range(4)]
        got: dict[int, list[int]] = {number: [] for number in range(4)}
        failures: list[BaseException] = []

        def guarded(work: Callable[[], None], failures: list[BaseException] = failures) -> threading.Thread:
            def run() -> None:
                try:
                    work()
                except BaseException as error:
                    failures.append(error)

            return threading.Thread(target=run)

        def write(number: int, store: ReplayStore = store, streams: list[StreamToken] = streams) -> None:
            for n in range(60):
                store.append(SCOPE, streams[number], note(n))
            store.append(SCOPE, streams[number], answer(number))

        def read(
            number: int,
            store: ReplayStore = store,
            streams: list[StreamToken] = streams,
            got: dict[int, list[int]] = got,
            seed: int = round_number,
        ) -> None:
            follow(store, streams[number], seed * 10 + number, got[number], [])

        threads = [guarded(lambda n=number: write(n)) for number in range(4)]  # type: ignore[misc]
        threads += [guarded(lambda n=number: read(n)) for number in range(4)]  # type: ignore[misc]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert all(sequences == list(range(1, 62)) for sequences in got.values())


@pytest.mark.usefixtures("often_switching")
def test_many_threads_use_one_store_without_an_untyped_error(scaled: Scaled) -> None:
    store = make_store(window_events=20, total_bytes=1 << 20, session_streams=64)
    stream = store.open_standalone(SCOPE)
    cursors = [store.append(SCOPE, stream, note(0))]
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        chooser = random.Random(seed)
        try:
            for _ in range(scaled(300, 5_000)):
                match chooser.randrange(5):
                    case 0:
                        cursors[0] = store.append(SCOPE, stream, note(1, size=chooser.randrange(800)))
                    case 1:
                        with suppress(TakenOver, ReaderTooSlow):
                            store.resume(SCOPE, cursors[0], attach_lost=True).read()
                    case 2:
                        call = store.open_call(SCOPE, [seed])
                        store.append(SCOPE, call, answer(seed))
                    case 3:
                        store.statistics()
                    case _:
                        store.sweep()
        except BaseException as error:
            if type(error).__name__ != "StoreFull":
                failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
