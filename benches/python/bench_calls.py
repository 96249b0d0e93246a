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
from contextlib import ExitStack
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


def bars(context: Context) -> list[Bar]:
    """CPU of the gateway per call with and without adoption; keyed calls against unkeyed ones."""
    turns, count, many = (9, 150, 400) if context.quick else (24, 150, 1_500)
    with ExitStack() as stack:
        _, source = stack.enter_context(child(str(MIDDLES), "source"))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        gateway = ["-m", "counterfoil.programs.demo.gateway", *OF_USERS]
        gateway += ["--upstream", f"http://127.0.0.1:{source}/mcp"]
        gateways = {
            PLAIN: stack.enter_context(child(*gateway, "--set", "gateway.adopt_s=0")),
            ADOPTS: stack.enter_context(child(*gateway)),
            KEYED: stack.enter_context(child(*gateway, "--ledger", f"{folder}/calls.db")),
        }
        for _, port in gateways.values():
            post(port, HELLO, None)
        calls = Calls()
        unkeyed = {name: gateways[name] for name in (PLAIN, ADOPTS)}
        long = added_cpu(calls, unkeyed, turns * 5 // 2, 1, 1, LONG_EVENTS)
        short = added_cpu(calls, unkeyed, turns, count, 8, EVENTS)
        rates: dict[str, list[float]] = {name: [] for name in (ADOPTS, KEYED)}
        for _ in range(context.rounds + 1):
            for name, each in rates.items():
                took = asyncio.run(calls.run(gateways[name][1], many, AT_ONCE, keyed=name == KEYED))
                each.append(many / took)
    rate = {name: statistics.median(each[1:]) for name, each in rates.items()}
    rate_note = f"keyed {rate[KEYED]:.0f}, unkeyed without a ledger {rate[ADOPTS]:.0f} calls/s"
    return [
        Bar(f"adoption's share of CPU, call of {LONG_EVENTS} events", long[0], 2.0, None, "%", "lower",
            long[1]),
        Bar(f"the same, call of {EVENTS} events", short[0], None, None, "%", "lower", short[1]),
        Bar("keyed calls with a ledger, 64 at once / unkeyed", rate[KEYED] / rate[ADOPTS], 0.8, None, "x",
            "higher", rate_note),
    ]  # fmt: skip


def added_cpu(
    calls: Calls, gateways: dict[str, tuple[int, int]], turns: int, count: int, at_once: int, events: int
) -> tuple[float, str]:
    """Return by how many percent adoption adds to the CPU of a call, and both figures as text."""
    spent: dict[str, list[float]] = {name: [] for name in gateways}
    for turn in range(turns + 1):
        for name in sorted(gateways, reverse=bool(turn % 2)):
            pid, port = gateways[name]
            before = cpu_us(pid)
            asyncio.run(calls.run(port, count, at_once, events=events))
            spent[name].append((cpu_us(pid) - before) / count)
    # The first turn warms up.
    median = {name: statistics.median(each[1:]) for name, each in spent.items()}
    note = ", ".join(f"{name} {value:.0f} µs" for name, value in median.items())
    return (median[ADOPTS] / median[PLAIN] - 1) * 100, note


if __name__ == "__main__":
    raise SystemExit(run_alone(bars))
