"""Floods: a million bad cursors that cost nothing, and millions of appends that leave nothing behind."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable

import pytest
from counterfoil import EventId, KeyRing, Scope
from store_kit import KEYS, Clock, make_store, note

Scaled = Callable[[int, int], int]


@pytest.mark.slow
def test_bad_cursors_of_a_hundred_scopes_read_nothing(scaled: Scaled) -> None:
    chooser = random.Random(1)
    store = make_store(window_events=8, sessions=1000)
    stranger = make_store(keys=KeyRing.from_secret(b"s" * 32, made_s=0))
    scopes = [Scope(tenant=f"t{n % 7}", principal=f"p{n}", session=f"s{n}") for n in range(100)]
    good: list[EventId] = []
    foreign_keys = []
    for scope in scopes:
        stream = store.open_standalone(scope)
        ids = store.append_many(scope, stream, [note(n) for n in range(20)])
        good.append(EventId.parse(ids[-1]))
        other = stranger.open_standalone(scope)
        foreign_keys.append(stranger.append(scope, other, note(1)))
    before = store.statistics()
    expected_lookups = 0
    kinds = ("foreign", "version", "malformed", "key", "forged", "other-scope", "stale", "future", "digest")
    for number in range(scaled(30_000, 1_000_000)):
        place = number % 100
        seen, scope = good[place], scopes[place]
        kind = kinds[number % len(kinds)]
        if kind == "foreign":
            cursor = str(chooser.randrange(1 << 64))
        elif kind == "version":
            cursor = f"cf{chooser.randrange(2, 99)}.whatever"
        elif kind == "malformed":
            cursor = str(seen)[: chooser.randrange(4, 60)]
        elif kind == "key":
            cursor = foreign_keys[place]
        elif kind == "forged":
            tag = seen.tag[:6] + ("B" if seen.tag[6] != "B" else "C") + seen.tag[7:]
            cursor = str(seen).replace(seen.tag, tag)
        elif kind == "other-scope":
            cursor = str(good[(place + 1 + chooser.randrange(99)) % 100])
        else:
            changes = {
                "stale": {"sequence": chooser.randrange(12)},
                "future": {"sequence": 21 + chooser.randrange(1 << 40)},
                "digest": {"digest": "AAAAAAAAAAA"},
            }[kind]
            parts = {"epoch": seen.epoch, "sequence": seen.sequence, "digest": seen.digest} | changes
            cursor = str(KEYS.event_id(scope, stream=seen.stream, **parts))  # type: ignore[arg-type]
            expected_lookups += 1
        reader = store.resume(scope, cursor)
        assert not reader.is_attached
        assert reader.verdict.next.value in {"stop", "reconcile"}
    after = store.statistics()
    assert after.lookups - before.lookups == expected_lookups
    assert (after.readers, after.live_streams, after.charged_bytes) == (0, 100, before.charged_bytes)


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_memory_returns_to_where_it_was(scaled: Scaled) -> None:
    clock = Clock()
    store = make_store(
        clock=clock,
        # What a minute's streams may hold together fits the budget.
        window_bytes=128 << 10,
        total_bytes=256 << 20,
        sessions=20_000,
        stream_idle_s=60,
        grace_s=10,
        tombstone_age_s=10,
        session_idle_s=30,
    )
    payloads = [note(n, size=400) for n in range(1000)]

    def rush(appends: int, streams: int) -> None:
        """Streams are opened, filled and abandoned; nobody ends or deletes one."""
        per_stream = appends // streams
        for number in range(streams):
            scope = Scope(session=f"{clock.now_s}-{number}")
            stream = store.open_call(scope, [1])
            for start in range(0, per_stream, 1000):
                store.append_many(scope, stream, payloads[: min(1000, per_stream - start)])
            clock.now_s += 0.05
        for _ in range(40):
            clock.now_s += 10
            store.sweep()

    rush(20_000, 200)
    gc.collect()
    before = resident_bytes()
    rush(scaled(200_000, 10_000_000), scaled(1_000, 10_000))
    gc.collect()
    counts = store.statistics()
    assert (counts.live_streams, counts.tombstones, counts.window_bytes, counts.charged_bytes) == (0, 0, 0, 0)
    assert counts.sessions == 0
    assert counts.held_bytes <= 1 << 20
    assert resident_bytes() - before < 16 << 20
