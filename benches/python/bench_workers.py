"""What several processes cost: events and keyed calls through two workers, a resume passed on or not.

CPU of all processes of the gateway, user and system, the supervisor's too, by the scheduler's clock.  The
resume is passed on over TCP with its seal.  What it does not show: wall-clock time, which needs a core for
each process.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from bars import Bar, Context, run_alone
from bench_calls import AT_ONCE, OF_USERS, Calls
from bench_gateway import HELLO, MIDDLES, child, counted_call, field_of, post, resume
from counterfoil import EventId

Gateways = list[tuple[int, int]]

#: Streams at once.  With few of them a process has one event in a turn of its loop, and pays a turn for each:
#: then two processes cost more than one because they are idle more often, workers of one gateway or not.
MANY, FEW = 32, 8
#: The part of the streams that every worker must have had for a round to count: the kernel gives one worker
#: all of them now and then.
FEWEST = 0.3
#: Rounds that may be thrown away for that.
SPARE_ROUNDS = 20


@contextmanager
def gateway(url: str, *options: str) -> Iterator[tuple[int, int]]:
    """Run the program; yield its process id and port."""
    command = [sys.executable, "-W", "ignore", "-m", "counterfoil", "gateway", "--upstream", url]
    command += ["--listen", "127.0.0.1:0", "--set", "limits.window_events=2000"]
    command += ["--set", "limits.session_streams=256", *options]
    # To a file: a pipe that nobody reads would stop it when it is full.
    with (
        NamedTemporaryFile("r") as log,
        Path(log.name).open("w") as writing,
        subprocess.Popen(command, stderr=writing) as process,
    ):
        try:
            while '"listening"' not in (line := log.readline()):
                assert line or process.poll() is None, "the gateway did not start"
                time.sleep(0 if line else 0.02)
            yield process.pid, int(json.loads(line)["port"])
        finally:
            process.terminate()


def cpu_ns(pid: int) -> int:
    """CPU of the threads that a process has now; ticks of 10 ms are too coarse for what is compared here."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def cpu_of_all(pid: int) -> float:
    """CPU seconds of a process and of those that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(cpu_ns, (pid, *map(int, children)))) / 1e9


def measure(gateways: Gateways, streams: int, events: int) -> tuple[float, list[int]]:
    """Microseconds of CPU per event of all gateways, and how many streams each process had."""

    def call(number: int) -> int:
        _, port = gateways[number % len(gateways)]
        params = {"events": events // streams}
        message: dict[str, object] = {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": params,
        }
        size, head = post(port, message, "bench")
        assert size > events // streams * 1_800, f"only {size} bytes came through: {head[-300:]!r}"
        return EventId.parse(field_of(head, b"id:")).stream.owner

    before = sum(cpu_of_all(pid) for pid, _ in gateways)
    with ThreadPoolExecutor(streams) as pool:
        owners = Counter(pool.map(call, range(1, streams + 1)))
    return (sum(cpu_of_all(pid) for pid, _ in gateways) - before) / events * 1e6, sorted(owners.values())


def measure_spread(gateways: Gateways, streams: int, events: int, processes: int) -> tuple[float, list[int]]:
    """Measure until every process has had its streams: rounds of one worker alone say nothing of several."""
    for _ in range(SPARE_ROUNDS):
        cost, had = measure(gateways, streams, events)
        if len(had) == processes and had[0] >= streams * FEWEST:
            return cost, had
    raise AssertionError(f"in none of {SPARE_ROUNDS} rounds did {processes} workers share {streams} streams")


def bars_of_events(context: Context) -> list[Bar]:
    events = 16 * MANY * (50 if context.quick else 100)
    costs: dict[tuple[str, int], list[float]] = {}
    spread: dict[int, list[str]] = {MANY: [], FEW: []}
    with ExitStack() as stack:
        _, source = stack.enter_context(child(str(MIDDLES), "source"))
        url = f"http://127.0.0.1:{source}/mcp"

        def start(workers: int) -> tuple[int, int]:
            # What was read is not kept: the rounds together are more than a store holds.
            briefly = ("--set", "limits.grace_s=5", "--set", "gateway.adopt_s=5")
            found = stack.enter_context(gateway(url, "--workers", str(workers), *briefly))
            post(found[1], HELLO, None)
            return found

        # Two gateways of one worker, each with half of the streams, have nothing to say to each other.
        kinds = {"one": [start(1)], "two": [start(2)], "apart": [start(1), start(1)]}
        for _ in range(context.rounds):
            for streams in (MANY, FEW):
                for kind, gateways in kinds.items():
                    processes = 2 if kind == "two" else 1  # streams of those apart have no owner
                    cost, had = measure_spread(gateways, streams, events, processes)
                    costs.setdefault((kind, streams), []).append(cost)
                    spread[streams] += ["+".join(map(str, had))] if kind == "two" else []
    found = {key: statistics.median(cost) for key, cost in costs.items()}

    def compare(name: str, other: str, streams: int, must: float | None, aim: float | None) -> Bar:
        own, its = found["two", streams], found[other, streams]
        note = f"{other} {its:.1f}, two {own:.1f} µs; streams of the two {', '.join(spread[streams])}"
        return Bar(name, its / own, must, aim, "x", "higher", note)

    return [
        compare(f"events per CPU second, two workers / one, {MANY} streams", "one", MANY, 0.85, 1),
        compare(f"the same, {FEW} streams", "one", FEW, None, None),
        compare(f"two workers / two gateways apart, {MANY} streams", "apart", MANY, None, None),
        compare(f"the same, {FEW} streams", "apart", FEW, None, None),
    ]


def bars_of_resumes(context: Context) -> list[Bar]:
    events, times = 1_000, 100 if context.quick else 300
    server = ["-m", "counterfoil.programs.demo.server", "--effects", "/dev/null"]
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        keys = f"{folder}/keys"
        subprocess.run(
            [sys.executable, "-m", "counterfoil", "keys", "new", keys], check=True, capture_output=True
        )
        _, plain = stack.enter_context(child(*server))
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            listen = {name: own.getsockname()[1] for name, own in (("a", one), ("b", two))}
        peers = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in listen.items())
        both = {
            name: stack.enter_context(
                gateway(
                    f"http://127.0.0.1:{plain}/mcp",
                    *("--keys", keys, "--self", name, "--peers", peers),
                    *("--peer-listen", f"127.0.0.1:{port}"),
                )
            )
            for name, port in listen.items()
        }
        pids = [pid for pid, _ in both.values()]
        begun = counted_call(both["a"][1], events)
        costs: dict[str, list[float]] = {name: [] for name in both}
        for _ in range(context.rounds):
            for name, (_, port) in both.items():
                before = sum(map(cpu_ns, pids))
                for _ in range(times):
                    resume(port, *begun, events)
                costs[name].append((sum(map(cpu_ns, pids)) - before) / times / 1e6)
    local, passed_on = (statistics.median(costs[name]) for name in ("a", "b"))
    note = f"local {local:.2f}, passed on {passed_on:.2f} ms"
    return [Bar("resume of 1000 events, passed on / local", passed_on / local, 2, None, "x", "lower", note)]


def bars_of_keyed_calls(context: Context) -> list[Bar]:
    """Calls under a key over one ledger: one of two workers owns it, the other one asks it."""
    many = 600 if context.quick else 1_500
    calls = Calls()
    rates: dict[int, list[float]] = {1: [], 2: []}
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        _, source = stack.enter_context(child(str(MIDDLES), "source"))

        def start(workers: int) -> tuple[int, int]:
            options = ["--workers", str(workers), "--ledger", f"{folder}/{workers}.db", *OF_USERS]
            found = stack.enter_context(gateway(f"http://127.0.0.1:{source}/mcp", *options))
            post(found[1], HELLO, None)
            return found

        running = {workers: start(workers) for workers in rates}
        for turn in range(context.rounds + 1):
            for workers in sorted(rates, reverse=bool(turn % 2)):
                pid, port = running[workers]
                before = cpu_of_all(pid)
                asyncio.run(calls.run(port, many, AT_ONCE, keyed=True))
                rates[workers].append(many / (cpu_of_all(pid) - before))
    # The first turn warms up.
    one, two = (statistics.median(rates[workers][1:]) for workers in (1, 2))
    note = f"one {one:.0f}, two {two:.0f} calls per CPU second"
    return [Bar("keyed calls per CPU second, two workers / one", two / one, None, None, "x", "higher", note)]


def bars(context: Context) -> list[Bar]:
    """Every bar of several processes."""
    return [*bars_of_events(context), *bars_of_resumes(context), *bars_of_keyed_calls(context)]


if __name__ == "__main__":
    raise SystemExit(run_alone(bars))
