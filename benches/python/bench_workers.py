"""What several processes cost: events through two workers against one, a resume passed on or not.

CPU of all processes of the gateway, user and system, the supervisor's too.  The resume is passed on over TCP
with its seal.  What it does not show: wall-clock time, which needs a core for each process.
"""

from __future__ import annotations

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
from bench_gateway import HELLO, MIDDLES, child, counted_call, cpu_s, field_of, post, resume
from counterfoil import EventId

#: Calls at once; more than there are workers, so that each has some.
CALLS = 8
#: Streams that every worker must have had for a round to count: the kernel may give one worker all of them.
FEWEST = 2
#: Rounds that may be thrown away for that.
SPARE_ROUNDS = 20


@contextmanager
def gateway(url: str, *options: str) -> Iterator[tuple[int, int]]:
    """Run the program; yield its process id and port."""
    command = [sys.executable, "-W", "ignore", "-m", "counterfoil", "gateway", "--upstream", url]
    command += ["--listen", "127.0.0.1:0", "--set", "limits.window_events=2000", *options]
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


def cpu_of_all(pid: int) -> float:
    """CPU of a process and of those that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_s(pid) + sum(cpu_s(int(each)) for each in children)


def measure(pid: int, port: int, events: int) -> tuple[float, list[int]]:
    """Microseconds of the gateway's CPU per event of `CALLS` streams, and how many each worker had."""

    def call(number: int) -> int:
        params = {"events": events // CALLS}
        message: dict[str, object] = {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": params,
        }
        size, head = post(port, message, "bench")
        assert size > events // CALLS * 1_800, f"only {size} bytes came through"
        return EventId.parse(field_of(head, b"id:")).stream.owner

    before = cpu_of_all(pid)
    with ThreadPoolExecutor(CALLS) as pool:
        owners = Counter(pool.map(call, range(1, CALLS + 1)))
    return (cpu_of_all(pid) - before) / events * 1e6, sorted(owners.values())


def measure_spread(pid: int, port: int, events: int, workers: int) -> tuple[float, list[int]]:
    """Measure until every worker has had its streams: rounds of one worker alone say nothing of several."""
    for _ in range(SPARE_ROUNDS):
        cost, streams = measure(pid, port, events)
        if len(streams) == workers and streams[0] >= FEWEST:
            return cost, streams
    raise AssertionError(f"in none of {SPARE_ROUNDS} rounds did {workers} workers share {CALLS} streams")


def bars_of_events(context: Context) -> list[Bar]:
    events = 16 * CALLS * (100 if context.quick else 400)
    with ExitStack() as stack:
        _, source = stack.enter_context(child(str(MIDDLES), "source"))
        url = f"http://127.0.0.1:{source}/mcp"
        gateways = {count: stack.enter_context(gateway(url, "--workers", str(count))) for count in (1, 2)}
        for _, port in gateways.values():
            post(port, HELLO, None)
        costs: dict[int, list[float]] = {count: [] for count in gateways}
        spread: list[str] = []
        for _ in range(context.rounds):
            for count, (pid, port) in gateways.items():
                cost, streams = measure_spread(pid, port, events, count)
                costs[count].append(cost)
                spread += ["+".join(map(str, streams))] if count == 2 else []
    one, two = (statistics.median(costs[count]) for count in (1, 2))
    note = f"one {one:.1f}, two {two:.1f} µs; streams of the two {', '.join(spread)}"
    return [Bar("events per CPU second, two workers / one", one / two, 0.85, 1, "x", "higher", note)]


def bars_of_resumes(context: Context) -> list[Bar]:
    events, times = 1_000, 100 if context.quick else 200
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
                before = sum(map(cpu_s, pids))
                for _ in range(times):
                    resume(port, *begun, events)
                costs[name].append((sum(map(cpu_s, pids)) - before) / times * 1e3)
    local, passed_on = (statistics.median(costs[name]) for name in ("a", "b"))
    note = f"local {local:.2f}, passed on {passed_on:.2f} ms"
    return [Bar("resume of 1000 events, passed on / local", passed_on / local, 2, None, "x", "lower", note)]


def bars(context: Context) -> list[Bar]:
    """Every bar of several processes."""
    return [*bars_of_events(context), *bars_of_resumes(context)]


if __name__ == "__main__":
    raise SystemExit(run_alone(bars))
