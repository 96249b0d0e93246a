"""What a middle adds to the time of an event and of a call, against what a bare byte pump adds.

One stream, 2 KB events far apart, on loopback; median over events, then the calmest of the rounds, which are
taken in turns: time passes while others run, too.  The clock is the machine's one monotonic clock, read by
the source just before it sends and by the client just after it received.  No busy gateway is shown.
"""

from __future__ import annotations

import http.client
import json
import re
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bars import Bar, Context, run_alone
from bench_gateway import HELLO, MIDDLES, child

STAMP = re.compile(rb'"sent": (\d+)')
PAUSE_MS = 2


class Caller:
    """One connection with one session; what it measures is microseconds."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._fields = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        self._calls = 0
        answer = self._post(HELLO)
        answer.read()
        self._fields |= {"mcp-session-id": "bench", "mcp-protocol-version": "2025-11-25"}

    def _post(self, message: dict[str, object]) -> http.client.HTTPResponse:
        self._connection.request("POST", "/mcp", json.dumps(message), self._fields)
        return self._connection.getresponse()

    def _call(self, **arguments: object) -> http.client.HTTPResponse:
        self._calls += 1
        params = {"name": "bench", "arguments": {"n": self._calls, **arguments}}
        return self._post({"jsonrpc": "2.0", "id": self._calls, "method": "tools/call", "params": params})

    def time_events(self, events: int) -> float:
        """Median time of one event from the source to here."""
        answer = self._call(events=events, pause_ms=PAUSE_MS)
        times: list[float] = []
        while piece := answer.read1(1 << 20):
            now = time.monotonic_ns()
            times += [(now - int(sent)) / 1e3 for sent in STAMP.findall(piece)]
        assert len(times) == events, f"{len(times)} of {events} events came through"
        return statistics.median(times)

    def time_calls(self, calls: int) -> float:
        """Median time of a call that is answered at once, by a stream with nothing but its answer."""
        times: list[float] = []
        for _ in range(calls):
            began = time.monotonic_ns()
            body = self._call(events=0).read()
            times.append((time.monotonic_ns() - began) / 1e3)
            assert b'"result"' in body
        return statistics.median(times)


@contextmanager
def callers() -> Iterator[dict[str, Caller]]:
    with ExitStack() as stack:
        _, source = stack.enter_context(child(str(MIDDLES), "source"))
        url = f"http://127.0.0.1:{source}/mcp"
        gateway = ["-m", "counterfoil.programs.demo.gateway", "--upstream", url]
        ports = {
            "none": source,
            "ours": stack.enter_context(child(*gateway))[1],
            "pump": stack.enter_context(child(str(MIDDLES), "pump", url))[1],
        }
        yield {name: Caller(port) for name, port in ports.items()}


def added(medians: dict[str, list[float]], name: str) -> float:
    """What a middle adds."""
    return min(medians[name]) - min(medians["none"])


def bars(context: Context) -> list[Bar]:
    """Both times, as ratios of what ours adds to what the pump adds."""
    each, rounds = 100, 3 * context.rounds
    events: dict[str, list[float]] = {"none": [], "ours": [], "pump": []}
    calls: dict[str, list[float]] = {"none": [], "ours": [], "pump": []}
    with callers() as by_name:
        for caller in by_name.values():
            caller.time_calls(50)
        for _ in range(rounds):
            for name, caller in by_name.items():
                events[name].append(caller.time_events(each))
                calls[name].append(caller.time_calls(each))
    return [
        _bar("gateway added p50 per event / byte pump", events, 2),
        _bar("gateway added p50 per call / byte pump", calls, 2),
    ]


def _bar(name: str, medians: dict[str, list[float]], must: float) -> Bar:
    ours, pump = added(medians, "ours"), added(medians, "pump")
    note = f"added {ours:.0f} and {pump:.0f} µs to {min(medians['none']):.0f}"
    return Bar(name, ours / pump, must, None, "x", "lower", note)


if __name__ == "__main__":
    raise SystemExit(run_alone(bars))
