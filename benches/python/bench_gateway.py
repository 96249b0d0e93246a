"""The gateway's own CPU per event, against a bare byte pump and a proxy of the SDK's parts.

CPU of the process in the middle (user and system): 2 KB events in bursts of 16, one stream, on uvicorn.
Source and client are other processes.  What it does not show: many streams, trio, TLS.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bars import Bar, Context, run_alone

HERE = Path(__file__).parent
MIDDLES = HERE / "gateway_middles.py"
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def child(*command: str) -> Iterator[tuple[int, int]]:
    """Run a server; yield its process id and port."""
    with subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline().split()[1])
        finally:
            process.stdin.close()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def post(port: int, message: dict[str, object], session: str | None) -> tuple[int, bytes]:
    """Send one request by a bare socket and read its answer to the end; return the body's bytes and head."""
    body = json.dumps(message).encode()
    lines = [
        "POST /mcp HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", "connection: close",
        "accept: application/json, text/event-stream", f"content-length: {len(body)}",
    ]  # fmt: skip
    if session is not None:
        lines += [f"mcp-session-id: {session}", "mcp-protocol-version: 2025-11-25"]
    size, head = 0, b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        while piece := connection.recv(1 << 20):
            head = head or piece
            size += len(piece)
    return size, head


def measure(pid: int, port: int, events: int) -> float:
    """Microseconds of the middle's CPU per event."""
    before = cpu_s(pid)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"events": events}}
    size, _ = post(port, call, "bench")
    assert size > events * 1_800, f"only {size} bytes came through"
    return (cpu_s(pid) - before) / events * 1e6


def bars(context: Context) -> list[Bar]:
    events = 16 * (500 if context.quick else 2_000)
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b"}},
    }
    with ExitStack() as stack:
        _, source = stack.enter_context(child(str(MIDDLES), "source"))
        url = f"http://127.0.0.1:{source}/mcp"
        gateway = ["-m", "counterfoil.programs.demo.gateway", "--upstream", url]
        middles = {
            "ours": stack.enter_context(child(*gateway)),
            "pump": stack.enter_context(child(str(MIDDLES), "pump", url)),
            "stock": stack.enter_context(child(str(MIDDLES), "stock", url)),
        }
        for _, port in middles.values():
            post(port, hello, None)
        costs: dict[str, list[float]] = {name: [] for name in middles}
        for _ in range(context.rounds):
            for name, (pid, port) in middles.items():
                costs[name].append(measure(pid, port, events))
    ours, pump, stock = (statistics.median(costs[name]) for name in ("ours", "pump", "stock"))
    note = f"ours {ours:.1f}, pump {pump:.1f}, stock {stock:.1f} µs"
    return [
        Bar("gateway CPU per event / byte pump", ours / pump, 1.5, 1.2, "x", "lower", note),
        Bar("gateway CPU per event / proxy of SDK parts", ours / stock, 0.2, None, "x", "lower"),
    ]


if __name__ == "__main__":
    raise SystemExit(run_alone(bars))
