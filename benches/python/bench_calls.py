"""What a call costs that may be adopted, and one under a key: CPU per call, and calls per second.

The process in the middle is `counterfoil gateway`; source and client are other processes.  Short calls answer
at once with one burst of notes, on connections that stay open; the long one is that of the gateway's own
figure per event.  What it does not show: trio, TLS, a slow disk.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bars import Bar, Context, run_alone
from bench_gateway import HELLO, MIDDLES, child, post

AT_ONCE = 64
EVENTS = 16
#: A call as `bench_gateway` takes its figure per event from; shorter, so that more of them take turns.
LONG_EVENTS = 8_000
OF_USERS = ["--principal", "header:x-user", "--trusted-proxy", "127.0.0.1"]
PLAIN, ADOPTS, KEYED = "plain", "may be adopted", "keyed"


def cpu_us(pid: int) -> float:
    """Microseconds of CPU of a process so far, of all its threads; finer than the kernel's ticks."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e3


class Calls:
    """Makes calls on connections that stay open; each is like no other."""

    def __init__(self) -> None:
        self._number = 0

    def _request(self, port: int, events: int, *, keyed: bool) -> bytes:
        self._number += 1
        arguments = {"events": events, "order": f"order {self._number}", "note": "with a text of some length"}
        params: dict[str, object] = {"name": "order", "arguments": arguments}
        if keyed:
            params["_meta"] = {"io.counterfoil/call": {"v": 1, "key": f"order-{self._number}"}}
        message = {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}
        body = json.dumps(message).encode()
        lines = [
            "POST /mcp HTTP/1.1", f"host: 127.0.0.1:{port}", "content-type: application/json",
            "accept: application/json, text/event-stream", f"content-length: {len(body)}",
            f"mcp-session-id: bench-{self._number % AT_ONCE}", "mcp-protocol-version: 2025-11-25",
            "x-user: alice",
        ]  # fmt: skip
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    async def run(
        self, port: int, count: int, at_once: int, *, keyed: bool = False, events: int = EVENTS
    ) -> float:
        """Return the seconds that `count` calls took."""
        began = time.perf_counter()
        left = iter(range(count))

        async def work() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in left:
                writer.write(self._request(port, events, keyed=keyed))
                head = await reader.readuntil(b"\r\n\r\n")
                assert b" 200 " in head, head
                while (size := int(await reader.readline(), 16)) > 0:
                    await reader.readexactly(size + 2)
                await reader.readline()
            writer.close()

        await asyncio.gather(*(work() for _ in range(at_once)))
        return time.perf_counter() - began


class Gateways:
    """Gateways of each kind before one source; a life of them is as good as another's only in the middle."""

    def __init__(self, folder: str, source: int) -> None:
        common = ["-m", "counterfoil.programs.demo.gateway", *OF_USERS]
        common += ["--upstream", f"http://127.0.0.1:{source}/mcp"]
        self._commands = {
            PLAIN: [*common, "--set", "gateway.adopt_s=0"],
            ADOPTS: common,
            KEYED: [*common, "--ledger", f"{folder}/calls.db"],
        }

    @contextmanager
    def life(self, *kinds: str) -> Iterator[dict[str, tuple[int, int]]]:
        """Run one gateway of each kind, started anew."""
        with ExitStack() as stack:
            running = {kind: stack.enter_context(child(*self._commands[kind])) for kind in kinds}
            for _, port in running.values():
                post(port, HELLO, None)
            yield running


def bars(context: Context) -> list[Bar]:
    """CPU of the gateway per call with and without adoption; keyed calls against unkeyed ones."""
    lives, turns = (4, 6) if context.quick else (10, 10)
    calls = Calls()
    with ExitStack() as stack:
        _, source = stack.enter_context(child(str(MIDDLES), "source"))
        gateways = Gateways(stack.enter_context(tempfile.TemporaryDirectory()), source)
        long = added_cpu(calls, gateways, lives, turns, 1, 1, LONG_EVENTS)
        short = added_cpu(calls, gateways, lives, turns, 100, 8, EVENTS)
        keyed = keyed_rate(calls, gateways, lives // 2, turns // 2, 300 if context.quick else 600)
    return [
        Bar(f"adoption's share of CPU, call of {LONG_EVENTS} events", long[0], 2.0, None, "%", "lower",
            long[1]),
        Bar(f"the same, call of {EVENTS} events", short[0], None, None, "%", "lower", short[1]),
        Bar("keyed calls with a ledger, 64 at once / unkeyed", keyed[0], 0.8, None, "x", "higher", keyed[1]),
    ]  # fmt: skip


def added_cpu(
    calls: Calls, gateways: Gateways, lives: int, turns: int, count: int, at_once: int, events: int
) -> tuple[float, str]:
    """Return by how many percent adoption adds to the CPU of a call, and both figures as text.

    Two processes of the same program differ by some percent for as long as they live, so that each figure is
    the middle one of many pairs of them; the spread is that of their middle half.
    """
    added: list[float] = []
    spent: dict[str, list[float]] = {PLAIN: [], ADOPTS: []}
    for life in range(lives):
        kinds = (PLAIN, ADOPTS) if life % 2 else (ADOPTS, PLAIN)
        with gateways.life(*kinds) as running:
            mine: dict[str, list[float]] = {kind: [] for kind in kinds}
            for turn in range(turns + 1):
                for kind in kinds if turn % 2 else kinds[::-1]:
                    pid, port = running[kind]
                    before = cpu_us(pid)
                    asyncio.run(calls.run(port, count, at_once, events=events))
                    mine[kind].append((cpu_us(pid) - before) / count)
        # The first turn warms up.
        middle = {kind: statistics.median(each[1:]) for kind, each in mine.items()}
        added.append((middle[ADOPTS] / middle[PLAIN] - 1) * 100)
        for kind, value in middle.items():
            spent[kind].append(value)
    low, _, high = statistics.quantiles(added, n=4)
    figures = ", ".join(f"{kind} {statistics.median(each):.0f} µs" for kind, each in spent.items())
    return statistics.median(added), f"{figures}; {low:.1f} to {high:.1f} %"


def keyed_rate(calls: Calls, gateways: Gateways, lives: int, pairs: int, many: int) -> tuple[float, str]:
    """Return the rate of keyed calls with a ledger over that of unkeyed ones without, and both as text."""
    rates: dict[str, list[float]] = {ADOPTS: [], KEYED: []}
    for _ in range(lives):  # a life is short: what is kept of its calls is bounded
        with gateways.life(*rates) as running:
            for pair in range(pairs + 1):
                for kind in sorted(rates, reverse=bool(pair % 2)):
                    took = asyncio.run(calls.run(running[kind][1], many, AT_ONCE, keyed=kind == KEYED))
                    if pair:  # the first one warms up
                        rates[kind].append(many / took)
    ratios = [keyed / plain for keyed, plain in zip(rates[KEYED], rates[ADOPTS], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    middle = {kind: statistics.median(each) for kind, each in rates.items()}
    figures = f"keyed {middle[KEYED]:.0f}, unkeyed without a ledger {middle[ADOPTS]:.0f} calls/s"
    return statistics.median(ratios), f"{figures}; {low:.2f} to {high:.2f}"


if __name__ == "__main__":
    raise SystemExit(run_alone(bars))
