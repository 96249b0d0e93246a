"""The client over HTTP/1.1 loopback, against httpx2's own SSE reader on the same bytes, on both backends.

CPU of the reading process per event, server in another one.  Ours judges, counts, and delivers; the reader
beside it parses and does no more.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import counterfoil
import httpx2
from bars import Bar, Context, take_turns

SIZES = (300, 2_048)
BACKENDS = ("asyncio", "trio")
#: Made once, and for nothing: httpx2 would read all certificates for each client, ours not for a plain URL.
TLS = ssl.create_default_context()


@contextmanager
def serving(events: int, size: int) -> Iterator[str]:
    program = Path(__file__).with_name("client_server.py")
    command = [sys.executable, str(program), str(events), str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
        finally:
            server.stdin.close()


async def read_ours(url: str, events: int, *, decodes: bool) -> None:
    """Events with their verdicts and JSON-RPC envelopes; with `decodes` their parameters too."""
    async with counterfoil.connect(url) as connection, connection.deliveries() as deliveries:
        seen = 0
        async for arrival in deliveries:
            assert arrival.method == "notifications/progress"
            if decodes:
                assert arrival.params["progressToken"] == "bench"
            seen += 1
            if seen == events:
                break


async def read_httpx2(url: str, events: int, *, decodes: bool) -> None:
    async with httpx2.AsyncClient(verify=TLS) as client, client.sse(url, timeout=None) as source:
        seen = 0
        async for event in source:
            if decodes:
                assert json.loads(event.data)["params"]["progressToken"] == "bench"
            seen += 1
            if seen == events:
                break


def bars(context: Context) -> Sequence[Bar]:
    """CPU of ours over that of httpx2's reader: at most 1.0 with envelopes, 0.7 with full decoding."""
    measured = []
    for size in SIZES:
        events = 4_000 if context.quick else 12_000
        with serving(events, size) as url:
            for backend in BACKENDS:
                runs: dict[str, Callable[[], object]] = {}
                for decodes in (False, True):
                    ours = partial(read_ours, url, events, decodes=decodes)
                    theirs = partial(read_httpx2, url, events, decodes=decodes)
                    runs[f"ours {decodes}"] = partial(anyio.run, ours, backend=backend)
                    runs[f"httpx2 {decodes}"] = partial(anyio.run, theirs, backend=backend)
                for run in runs.values():
                    run()  # imports, and the first connection
                times = take_turns(runs, context.rounds)
                for decodes, must in ((False, 1.0), (True, 0.7)):
                    ours_s, theirs_s = times[f"ours {decodes}"], times[f"httpx2 {decodes}"]
                    ratios = sorted(own / their for own, their in zip(ours_s, theirs_s, strict=True))
                    what = "decoded" if decodes else "envelope"
                    own_us = min(ours_s) / events * 1e6
                    measured.append(
                        Bar(
                            f"client, {size} B, {what}, {backend}, of httpx2's reader",
                            ratios[len(ratios) // 2],
                            must,
                            None,
                            "x",
                            better="lower",
                            note=f"{own_us:.1f} µs an event",
                        )
                    )
    return measured


if __name__ == "__main__":
    from bars import run_alone

    sys.exit(run_alone(bars))
