"""What a call costs that may be adopted, and one under a key: CPU per call, and calls per second.

The process in the middle is `counterfoil gateway`; source and client are other processes.  Calls answer at
once with one burst of notes, on connections that stay open.  What it does not show: trio, TLS, a slow disk.
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
from bench_gateway import HELLO, MIDDLES, child, cpu_s, post

AT_ONCE = 64
EVENTS = 16
OF_USERS = ["--principal", "header:x-user", "--trusted-proxy", "127.0.0.1"]
ADOPTS, KEYED = "may be adopted", "keyed"


class Calls:
    """Makes calls on connections that stay open; each is like no other."""

    def __init__(self) -> None:
        self._number = 0

    def _request(self, port: int, *, keyed: bool) -> bytes:
        self._number += 1
        arguments = {"events": EVENTS, "order": f"order {self._number}", "note": "with a text of some length"}
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

    async def run(self, port: int, count: int, at_once: int, *, keyed: bool) -> float:
        """Return the seconds that `count` calls took."""
        began = time.perf_counter()
        left = iter(range(count))

        async def work() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in left:
                writer.write(self._request(port, keyed=keyed))
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
    count = 400 if context.quick else 1_500
    with ExitStack() as stack:
        _, source = stack.enter_context(child(str(MIDDLES), "source"))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        gateway = ["-m", "counterfoil.programs.demo.gateway", *OF_USERS]
        gateway += ["--upstream", f"http://127.0.0.1:{source}/mcp"]
        gateways = {
            "plain": stack.enter_context(child(*gateway, "--set", "gateway.adopt_s=0")),
            ADOPTS: stack.enter_context(child(*gateway)),
            KEYED: stack.enter_context(child(*gateway, "--ledger", f"{folder}/calls.db")),
        }
        calls = Calls()
        cpu: dict[str, list[float]] = {name: [] for name in gateways}
        rates: dict[str, list[float]] = {name: [] for name in gateways}
        for _ in range(context.rounds + 1):
            for name, (pid, port) in gateways.items():
                post(port, HELLO, None)
                is_keyed = name == KEYED
                before = cpu_s(pid)
                asyncio.run(calls.run(port, count, 8, keyed=is_keyed))
                cpu[name].append((cpu_s(pid) - before) / count * 1e6)
                rates[name].append(count / asyncio.run(calls.run(port, count, AT_ONCE, keyed=is_keyed)))
    # The first round warms up.
    spent = {name: statistics.median(each[1:]) for name, each in cpu.items()}
    rate = {name: statistics.median(each[1:]) for name, each in rates.items()}
    spent_note = ", ".join(f"{name} {value:.0f} µs" for name, value in spent.items())
    rate_note = f"keyed {rate[KEYED]:.0f}, unkeyed without a ledger {rate[ADOPTS]:.0f} calls/s"
    added = (spent[ADOPTS] / spent["plain"] - 1) * 100
    return [
        Bar("adoption's share of a call's CPU", added, 2.0, None, "%", "lower", spent_note),
        Bar("keyed calls with a ledger, 64 at once / unkeyed", rate[KEYED] / rate[ADOPTS], 0.8, None, "x",
            "higher", rate_note),
    ]  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(run_alone(bars))
