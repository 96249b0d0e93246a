"""The replay store and the relay step: appends, replays, memory and verdicts, against peers and the C floors.

All our figures include the digest, the tag and the whole store; the peers have none of them.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from bars import ROOT, Bar, Context, run_alone, take_turns
from counterfoil import KeyRing, Limits, ReplayStore, Scope, StreamToken
from store_peers import DequeStore, ListStore, PureRing

KEYS = KeyRing.from_secret(b"b" * 32, made_s=0)
SCOPE = Scope(tenant="tenant", principal="principal", session="session")
PAYLOAD_BYTES = 500
#: The window that is full, and what one run appends to it.
WINDOW, RUN = 10_000, 5_000


def payload(number: int, size: int = PAYLOAD_BYTES) -> bytes:
    """A JSON-RPC notification of exactly `size` bytes, another one for each number."""
    start = (
        f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"tok-{number:08}",'
        f'"progress":{number % 1000},"total":1000000,"message":"'
    )
    return (start + "x" * (size - len(start) - 3) + '"}}').encode()


def message(raw: bytes) -> Any:
    from mcp_types import jsonrpc_message_adapter

    return jsonrpc_message_adapter.validate_json(raw)


def make_store(events: int, size: int = PAYLOAD_BYTES) -> ReplayStore:
    room = events * (size + 200) + (64 << 20)
    limits = Limits(window_events=events, window_bytes=min(room, 512 << 20), total_bytes=room + (64 << 20))
    return ReplayStore(keys=KEYS, limits=limits)


# --- append ---


def append_bars(context: Context, rust: dict[str, float]) -> list[Bar]:
    raws = [payload(number) for number in range(RUN)]
    messages = [message(raw) for raw in raws]
    store = make_store(WINDOW)
    stream = store.open_standalone(SCOPE)
    pure, deques = PureRing(WINDOW), DequeStore(WINDOW)

    def ours() -> None:
        append = store.append
        for raw in raws:
            append(SCOPE, stream, raw)

    batches = [raws[start : start + 16] for start in range(0, RUN, 16)]

    def ours_in_batches() -> None:
        append_many = store.append_many
        for batch in batches:
            append_many(SCOPE, stream, batch)

    def ours_in_batches_with_ids() -> None:
        append_many = store.append_many
        for batch in batches:
            list(append_many(SCOPE, stream, batch))

    def ring() -> None:
        append = pure.append
        for raw in raws:
            append("stream", raw)

    async def fill() -> None:
        for one in messages:
            await deques.store_event("stream", one)

    for run in (ours, ring, lambda: asyncio.run(fill())):
        for _ in range(WINDOW // RUN + 1):
            run()
    runs: dict[str, Callable[[], object]] = {
        "ours": ours,
        "batches": ours_in_batches,
        "batches with ids": ours_in_batches_with_ids,
        "ring": ring,
        "deque": lambda: asyncio.run(fill()),
    }
    times = take_turns(runs, 5 * context.rounds)
    digest = rust["digest_500_ns"]
    single = min(times["ours"]) / RUN * 1e9
    without = single - digest
    batched = min(times["batches"]) / RUN * 1e9
    with_ids = min(times["batches with ids"]) / RUN * 1e9
    deque_ns, ring_ns = min(times["deque"]) / RUN * 1e9, min(times["ring"]) / RUN * 1e9
    return [
        Bar("append, full window, of a pure-Python ring", without / ring_ns, 1, 0.85, "x", "lower",
            f"{single:.0f} ns less {digest:.0f} of digest, ring {ring_ns:.0f}"),
        Bar("the same with the digest", single / ring_ns, None, 1, "x", "lower"),
        Bar("append, full window, vs a deque store", deque_ns / without, 12, 20, "x", note="less the digest"),
        Bar("the same with the digest", deque_ns / single, 8, 20, "x"),
        Bar("append in batches of 16, of a single append", (batched - digest) / without, 0.5, 0.35,
            "x", "lower", f"{batched:.0f} ns, both less the digest; {with_ids:.0f} with every ID looked at"),
        Bar("digest of 500 bytes", digest, 40, 30, "ns", "lower", "in Rust"),
    ]  # fmt: skip


# --- replay ---


def last_event_us(depth: int) -> float:
    """The best time of resuming one event before the end of a window of `depth` events, read included."""
    store = make_store(depth, 120)
    stream = store.open_standalone(SCOPE)
    raws = [payload(number, 160) for number in range(1000)]
    ids: list[str] = []
    for _ in range(depth // 1000):
        ids = store.append_many(SCOPE, stream, raws)
    readers = [store.attach(SCOPE, stream, after=depth - 1) for _ in range(2)]
    best = float("inf")
    for _ in range(300):
        readers[0] = store.attach(SCOPE, stream, after=depth - 1)
        start = time.perf_counter()
        frames = readers[0].read()
        best = min(best, time.perf_counter() - start)
        assert frames.count(b"\n\n") == 1
    assert ids
    return best * 1e6


def replay_bars(context: Context) -> list[Bar]:
    deepest = 100_000 if context.quick else 1_000_000
    shallow, deep = last_event_us(1_000), last_event_us(deepest)
    raws = [payload(number) for number in range(1_000)]
    store, listed = make_store(WINDOW), ListStore()
    stream = store.open_standalone(SCOPE)
    store.append_many(SCOPE, stream, raws)
    sent: list[str] = []

    async def fill() -> None:
        for raw in raws:
            await listed.store_event("stream", message(raw))

    async def send(one: Any) -> None:
        sent.append(one.event_id)

    async def replay(after: str, times: int) -> None:
        for _ in range(times):
            await listed.replay_events_after(after, send)

    asyncio.run(fill())

    def read_100() -> float:
        """Seconds of one read of 100 ready frames, without the attaching."""
        reader = store.attach(SCOPE, stream, after=900)
        start = time.perf_counter()
        frames = reader.read()
        spent = time.perf_counter() - start
        assert len(frames) > 50_000
        return spent

    times = take_turns({"list": lambda: asyncio.run(replay("900", 100))}, 5 * context.rounds)
    list_us, ours_us = min(times["list"]) * 1e4, min(read_100() for _ in range(500)) * 1e6
    return [
        Bar(f"replay of the last event, depth {deepest:,} over 1,000", deep / shallow, 2, 1.5, "x", "lower"),
        Bar("the same, in time", deep, 2, 1, "us", "lower"),
        Bar("ready frames of 100 events, vs a list store", list_us / ours_us, 8, 14, "x",
            note=f"{ours_us:.1f} us against {list_us:.0f}; the list hands out objects"),
    ]  # fmt: skip


# --- memory, each in a process of its own ---

MEMORY = """
import os, sys, gc
sys.path.insert(0, {folder!r})
from bench_store import KEYS, payload
from counterfoil import Limits, ReplayStore, Scope

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

sessions, streams, events, size = {sessions}, {streams}, {events}, {size}
limits = Limits(window_events=max(events, 1), window_bytes=512 << 20, total_bytes=1 << 40,
                reserve_bytes=2048, streams=1 << 24, session_streams=1 << 20, sessions=1 << 20)
store = ReplayStore(keys=KEYS, limits=limits)
scopes = [Scope(tenant="t", principal="p", session=f"s{{n}}") for n in range(sessions)]
warm = store.open_call(scopes[0], [0])
store.append(scopes[0], warm, payload(0, 300))
gc.collect()
before = resident()
for number in range(streams):
    scope = scopes[number % sessions]
    stream = store.open_call(scope, [number])
    for event in range(events):
        store.append(scope, stream, b'{{"jsonrpc":"2.0","method":"%s"}}' % (b"x" * (size - 29)))
gc.collect()
print(resident() - before)
"""


def resident_bytes(context: Context, *, sessions: int, streams: int, events: int, size: int) -> int:
    folder = str(Path(__file__).parent)
    code = MEMORY.format(folder=folder, sessions=sessions, streams=streams, events=events, size=size)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def memory_bars(context: Context) -> list[Bar]:
    many = 20_000 if context.quick else 100_000
    idle = 100_000 if context.quick else 1_000_000
    one = resident_bytes(context, sessions=1, streams=1, events=many, size=500) / many
    crowd = resident_bytes(context, sessions=many // 32, streams=many, events=10, size=500)

    def over_payload(size: int) -> float:
        found = resident_bytes(context, sessions=many // 64, streams=many // 2, events=10, size=size)
        return found * 2 / many - 10 * size

    sizes = (100, 120, 160, 200)
    small = sum(map(over_payload, sizes)) / len(sizes)
    idles = resident_bytes(context, sessions=idle // 32, streams=idle, events=0, size=0)
    return [
        Bar("memory per event, one stream", one / 500, 1.4, 1.25, "x payload", "lower"),
        Bar(f"memory per event, {many:,} streams x 10", crowd / many / 5000, 1.5, 1.25, "x payload", "lower",
            f"{crowd / 1e6:.0f} MB in all"),
        Bar("a stream of ten small events, over its payload", small, 1024, 768, "B", "lower",
            "mean of 100, 120, 160 and 200 bytes each"),
        Bar(f"an idle stream, of {idle:,}", idles / idle, 512, 400, "B", "lower",
            f"{idles / 1e6:.0f} MB in all"),
    ]  # fmt: skip


# --- many streams ---


def crowd_bars(context: Context) -> list[Bar]:
    count = 10_000 if context.quick else 100_000
    limits = Limits(
        window_events=100, total_bytes=1 << 40, streams=1 << 24, session_streams=1 << 20, reserve_bytes=2048
    )
    store = ReplayStore(keys=KEYS, limits=limits)
    streams = [store.open_call(SCOPE, [number]) for number in range(count)]
    raws = [payload(number) for number in range(100)]
    # Both grow: fresh memory costs the same on either side.
    growing = Limits(window_events=count * 4, window_bytes=512 << 20, total_bytes=1 << 40)
    lone = ReplayStore(keys=KEYS, limits=growing)
    alone = lone.open_standalone(SCOPE)
    started = time.process_time()
    for number in range(count * 2):
        lone.append(SCOPE, alone, raws[number % 100])
    single = time.process_time() - started
    started = time.process_time()
    for round_number in range(2):
        for stream in streams:
            store.append(SCOPE, stream, raws[round_number])
    spread = time.process_time() - started

    def read_us(of: ReplayStore, picked: list[StreamToken]) -> float:
        readers = [of.attach(SCOPE, stream, after=1) for stream in picked]
        started = time.process_time()
        for reader in readers:
            reader.read(700)
        return (time.process_time() - started) / len(picked) * 1e6

    read_us(store, streams[:1000])
    one_of_many = min(read_us(store, streams[start :: count // 500]) for start in range(5))
    for_one = min(read_us_of_one(lone, alone) for _ in range(5))
    return [
        Bar(f"append over {count:,} streams, of one stream", spread / single, 3, 2, "x", "lower"),
        Bar(f"replay of one of {count:,} streams, of one alone", one_of_many / for_one, 2, 1.5, "x", "lower",
            f"{one_of_many:.2f} us with cold caches"),
    ]  # fmt: skip


def read_us_of_one(store: ReplayStore, stream: StreamToken) -> float:
    spent = 0.0
    for _ in range(500):
        reader = store.resume(SCOPE, None, want_new=True)
        store.append(SCOPE, stream, b'{"jsonrpc":"2.0","method":"' + b"x" * 470 + b'"}')
        started = time.process_time()
        reader.read(700)
        spent += time.process_time() - started
    return spent / 500 * 1e6


# --- verdicts ---


def verdict_bars(context: Context) -> list[Bar]:
    store = ReplayStore(keys=KEYS, limits=Limits(session_streams=1000))
    asks = []
    for number in range(200):
        stream = store.open_call(SCOPE, [number])
        asks.append((SCOPE, store.append(SCOPE, stream, payload(number, 200))))
        store.append(SCOPE, stream, payload(number, 200))
    key, text = b"k" * 32, b"m" * 100
    runs: dict[str, Callable[[], object]] = {
        "hmac": lambda: [hmac.digest(key, text, "sha256") for _ in asks],
        "one by one": lambda: [store.resume(scope, cursor).verdict for scope, cursor in asks],
        "batches": lambda: [reader.answer.why for reader in store.resume_many(asks)],  # type: ignore[union-attr]
        "whole": lambda: [reader.verdict for reader in store.resume_many(asks)],
    }
    times = take_turns(runs, 20 * context.rounds)
    best = {name: min(spent) for name, spent in times.items()}
    each = best["one by one"] / len(asks) * 1e6
    return [
        Bar("resume verdicts in batches, of hmac.digest", best["hmac"] / best["batches"], 1, 2, "x",
            note=f"{best['hmac'] / best['whole']:.2f} x with each verdict as an object"),
        Bar("resume verdicts one by one, of hmac.digest", best["hmac"] / best["one by one"], 0.3, 1, "x",
            note=f"{each:.2f} us each, reader attached"),
    ]  # fmt: skip


# --- relay ---


def rust_bench(context: Context, *arguments: str) -> list[dict[str, Any]]:
    command = [
        "cargo",
        "run",
        "--quiet",
        "--release",
        "--locked",
        "-p",
        "counterfoil-bench",
        "--",
        *arguments,
    ]
    environment = os.environ | {"CARGO_TARGET_DIR": str(context.build / "cargo")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def relay_bars(context: Context) -> list[Bar]:
    from streams_for_benches import stream_files

    kinds = ("tokens", "mcp", "large")
    stream_files(context)
    paths = {kind: context.corpus / f"{kind}.sse" for kind in kinds}
    files = [str(path) for path in paths.values()]
    floor = context.compiled("limit.c")
    ours: dict[str, dict[str, float]] = {kind: {} for kind in kinds}
    theirs: dict[str, float] = {}
    # Both print medians; on a busy machine the best of some turns is what either can do.
    for _ in range(1 if context.quick else 3):
        for row in rust_bench(context, "relay", *files):
            best = ours[Path(row["file"]).stem]
            for figure in ("mb_s", "without_digest_mb_s", "bare_mb_s"):
                best[figure] = max(best.get(figure, 0.0), row[figure])
        if floor is None:
            continue
        done = subprocess.run([str(floor), *files], capture_output=True, text=True, check=True)
        for row in map(json.loads, done.stdout.splitlines()):
            if row["what"] == "splitter" and row["chunk"] == 16_384:
                kind = Path(row["file"]).stem
                theirs[kind] = max(theirs.get(kind, 0.0), row["relay_mb_s"])
    bars = []
    for kind in kinds:

        def ratio(figure: str, kind: str = kind) -> float | None:
            return ours[kind][figure] / theirs[kind] if kind in theirs else None

        bars += [
            Bar(f"relay, {kind}: parse, store and frame, of the C relay", ratio("bare_mb_s"), 0.4, 0.7, "x",
                note=f"{ours[kind]['bare_mb_s']:.0f} MB/s" if theirs else "needs FLOORS=DIR"),
            Bar("the same with every envelope read", ratio("without_digest_mb_s"), None, 0.7, "x"),
            Bar("the same with the digest as well", ratio("mb_s"), None, None, "x",
                note=f"{ours[kind]['mb_s']:.0f} MB/s"),
        ]  # fmt: skip
    return bars


def bars(context: Context) -> list[Bar]:
    rust = {row["what"]: float(row["value"]) for row in rust_bench(context, "append")}
    return [
        *append_bars(context, rust),
        *replay_bars(context),
        *memory_bars(context),
        *crowd_bars(context),
        *verdict_bars(context),
        *relay_bars(context),
    ]


if __name__ == "__main__":
    sys.exit(run_alone(bars))
