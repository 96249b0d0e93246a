"""The Python-visible parser and the encoder against peers and, where given, the C floor."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import peers
from bars import Bar, Context, Times, take_turns, times_as_fast
from counterfoil import SseParser, encode_event
from counterfoil.testing.streams import KINDS, StreamKind, digest_events
from pure_parser import PureParser
from streams_for_benches import cut, stream_file, whole_events

#: Times as fast as httpx-sse, httpx2 (async) and the pure-Python parser: must, aim.
ROWS: list[tuple[StreamKind, int, tuple[float, float, float], tuple[float, float, float]]] = [
    ("tokens", 16_384, (8, 12, 3.5), (11, 17, 5)),
    ("mcp", 16_384, (5, 8, 3), (7, 12, 4)),
    ("crlf", 16_384, (8, 10, 5), (11, 14, 8)),
    ("large", 16_384, (2, 4, 1.7), (3, 6, 2.5)),
    ("large", 1024, (4, 7, 2), (6, 11, 3)),
    ("multiline", 16_384, (15, 20, 6), (28, 35, 11)),
    ("utf8", 16_384, (1.8, 3, 1.2), (2.4, 4, 1.5)),
    ("keepalive", 16_384, (30, 12, 14), (55, 20, 24)),
]
PEER_NAMES = ("httpx-sse", "httpx2 async", "pure Python")
#: Slow peers read this much of a stream; the ratios do not depend on it.
PEER_BYTES = 2 << 20


def load_floor(context: Context) -> ModuleType | None:
    path = context.compiled("floor.c", shared=True)
    if path is None:
        return None
    spec = importlib.util.spec_from_file_location("sse_floor", path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_answers(chunks: list[bytes], readers: dict[str, Callable[[list[bytes]], Any]]) -> None:
    """A fast wrong answer is none: every reader must give the same events."""
    digests = {name: digest_events(peers.collect(read, chunks)) for name, read in readers.items()}
    if len(set(digests.values())) != 1:
        raise SystemExit(f"the readers disagree: {digests}")


def object_bars(context: Context, floor: ModuleType | None) -> list[Bar]:
    bars = []
    for kind, size, musts, aims in ROWS:
        chunks = cut(
            whole_events(stream_file(context, kind), PEER_BYTES * (4 if kind == "large" else 1)), size
        )
        check_answers(
            chunks, {"ours": peers.read_ours, "pure": peers.read_pure, "httpx2": peers.read_httpx2_async}
        )
        runs: dict[str, Callable[[], object]] = {
            "ours": partial(peers.drain_feeds, SseParser, chunks),
            "httpx-sse": partial(peers.drain, peers.read_httpx_sse, chunks),
            "httpx2 async": partial(peers.drain_async, peers.read_httpx2_async, chunks),
            "pure Python": partial(peers.drain_feeds, PureParser, chunks),
        }
        times = take_turns(runs, context.rounds)
        label = f"{kind}, {size // 1024} KiB"
        for peer, must, aim in zip(PEER_NAMES, musts, aims, strict=True):
            bars.append(
                Bar(f"objects, {label}, vs {peer}", times_as_fast(times, "ours", peer), must, aim, "x")
            )
    return bars + [floor_bar(context, floor, kind) for kind in KINDS]


def floor_bar(context: Context, floor: ModuleType | None, kind: StreamKind) -> Bar:
    name = f"objects in a for loop, {kind}, of the C floor"
    if floor is None:
        return Bar(name, None, 0.55, 0.8, "x", note="needs FLOORS=DIR")
    chunks = cut(stream_file(context, kind), 16_384)
    runs: dict[str, Callable[[], object]] = {
        "ours": partial(peers.drain_feeds, SseParser, chunks),
        "floor": partial(peers.drain_feeds, partial(floor.Parser, "eager"), chunks),
    }
    times = take_turns(runs, context.rounds)
    return Bar(name, times_as_fast(times, "ours", "floor"), 0.55, 0.8, "x")


def other_form_bars(context: Context, floor: ModuleType | None) -> list[Bar]:
    undecoded = partial(SseParser, data="bytes")
    utf8 = cut(whole_events(stream_file(context, "utf8"), PEER_BYTES), 16_384)
    times = take_turns(
        {
            "ours": partial(peers.drain_feeds, undecoded, utf8),
            "httpx-sse": partial(peers.drain, peers.read_httpx_sse, utf8),
            "httpx2 async": partial(peers.drain_async, peers.read_httpx2_async, utf8),
            "pure Python": partial(peers.drain_feeds, PureParser, utf8),
        },
        context.rounds,
    )
    bars = [
        Bar(f"data as bytes, utf8, vs {peer}", times_as_fast(times, "ours", peer), must, aim, "x")
        for peer, must, aim in zip(PEER_NAMES, (8, 14, 5), (13, 21, 8), strict=True)
    ]
    tokens = cut(whole_events(stream_file(context, "tokens"), PEER_BYTES), 16_384)
    times = take_turns(
        {
            "bytes": partial(peers.drain_data, tokens),
            "batch": partial(peers.drain_batches, tokens),
            "async": partial(peers.drain_async, peers.read_ours_async, tokens),
            "httpx-sse": partial(peers.drain, peers.read_httpx_sse, tokens),
            "httpx2 async": partial(peers.drain_async, peers.read_httpx2_async, tokens),
        },
        context.rounds,
    )
    bars.append(
        Bar("data as bytes, tokens, vs httpx-sse", times_as_fast(times, "bytes", "httpx-sse"), 15, 20, "x")
    )
    bars.append(Bar("batch, tokens, vs httpx-sse", times_as_fast(times, "batch", "httpx-sse"), 25, 40, "x"))
    bars.append(
        Bar("async for, tokens, vs httpx2 async", times_as_fast(times, "async", "httpx2 async"), 7, 10, "x")
    )
    return bars + tiny_bars(context)


def tiny_bars(context: Context) -> list[Bar]:
    raw = whole_events(stream_file(context, "tokens"), 100_000)
    chunks = cut(raw, 1)
    times = take_turns(
        {
            "ours": partial(peers.drain_feeds, SseParser, chunks),
            "httpx2 async": partial(peers.drain_async, peers.read_httpx2_async, chunks),
        },
        context.rounds,
    )
    each_us = min(times["ours"]) / len(chunks) * 1e6
    return [
        Bar("one byte per feed", each_us, 0.15, 0.08, "us", better="lower"),
        Bar("one byte per feed, vs httpx2 async", times_as_fast(times, "ours", "httpx2 async"), 10, 20, "x"),
    ]


def one_line(mebibytes: int, size: int) -> list[bytes]:
    return cut(b"id: 1\ndata: " + b"x" * ((mebibytes << 20) - 100) + b"\n\n", size)


def linear_bars(context: Context, floor: ModuleType | None) -> list[Bar]:
    """Both lengths are beyond what an allocator keeps, so that both pay for fresh pages."""
    long = one_line(16, 1024)
    runs: dict[str, Callable[[], object]] = {
        "4": partial(peers.drain_feeds, SseParser, one_line(4, 1024)),
        "16": partial(peers.drain_feeds, SseParser, long),
    }
    if floor is not None:
        runs["floor"] = partial(peers.drain_feeds, partial(floor.Parser, "eager"), long)
    times: Times = take_turns(runs, context.rounds)
    growth = times_as_fast(times, "4", "16")
    name = "one line in 1 KiB chunks"
    bars = [Bar(f"{name}, t(16 MiB) / t(4 MiB)", growth, 5, 4.5, "x", better="lower")]
    note = "" if floor is not None else "needs FLOORS=DIR"
    slower = times_as_fast(times, "floor", "16")
    bars.append(Bar(f"{name}, time of the C floor", slower, 3, 1.5, "x", better="lower", note=note))
    return bars


def encoder_bars(context: Context) -> list[Bar]:
    from sse_starlette import ServerSentEvent

    bars = []
    for kind, must, aim in (("mcp", 12, 20), ("large", 15, 30)):
        raw = whole_events(stream_file(context, kind), PEER_BYTES)  # type: ignore[arg-type]
        events = [(e.event, e.id or "", e.data) for e in SseParser().feed(raw)]
        undecoded = [(event.encode(), own.encode(), data.encode()) for event, own, data in events]

        def ours(fields: list[tuple[bytes, bytes, bytes]] = undecoded) -> None:
            for event, own, data in fields:
                encode_event(data, event=event, id=own)

        def starlette(fields: list[tuple[str, str, str]] = events) -> None:
            for event, own, data in fields:
                ServerSentEvent(data, event=event, id=own).encode()

        def f_string(fields: list[tuple[str, str, str]] = events) -> None:
            for event, own, data in fields:
                f"event: {event}\nid: {own}\ndata: {data}\n\n".encode()

        times = take_turns({"ours": ours, "sse-starlette": starlette, "f-string": f_string}, context.rounds)
        bars.append(
            Bar(
                f"encoder, {kind}, vs sse-starlette",
                times_as_fast(times, "ours", "sse-starlette"),
                must,
                aim,
                "x",
            )
        )
        slower = times_as_fast(times, "f-string", "ours")
        bars.append(Bar(f"encoder, {kind}, time of the f-string", slower, 1.5, 1.0, "x", better="lower"))
    return bars


def bars(context: Context) -> list[Bar]:
    floor = load_floor(context)
    return [
        *object_bars(context, floor),
        *other_form_bars(context, floor),
        *linear_bars(context, floor),
        *encoder_bars(context),
    ]
