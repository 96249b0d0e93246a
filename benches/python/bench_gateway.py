"""The gateway's own CPU per event, against a bare byte pump and a proxy of the SDK's parts.

CPU of the process in the middle (user and system): 2 KB events in bursts of 16, one stream, on uvicorn.
Source and client are other processes.  Ticks of the kernel are coarse: short runs say little.  What it does
not show: many streams, trio, TLS.
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
FASTMCP = HERE / "fastmcp_server.py"
TICKS = os.sysconf("SC_CLK_TCK")
HELLO: dict[str, object] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "b", "version": "1"},
    },
}


@contextmanager
def child(*command: str, python: str = sys.executable) -> Iterator[tuple[int, int]]:
    """Run a server; yield its process id and port."""
    with subprocess.Popen(
        [python, "-W", "ignore", *command],
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
    """Send one request by a bare socket and read its answer to the end; return its size and beginning."""
    body = json.dumps(message).encode()
    lines = [
        "POST /mcp HTTP/1.1", f"host: 127.0.0.1:{port}", "connection: close",
        "content-type: application/json",
        "accept: application/json, text/event-stream", f"content-length: {len(body)}",
    ]  # fmt: skip
    if session is not None:
        lines += [f"mcp-session-id: {session}", "mcp-protocol-version: 2025-11-25"]
    size, head = 0, b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        while piece := connection.recv(1 << 20):
            head += piece if len(head) < 1 << 16 else b""
            size += len(piece)
    return size, head


def measure(pid: int, port: int, events: int) -> float:
    """Microseconds of the middle's CPU per event."""
    before = cpu_s(pid)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"events": events}}
    size, _ = post(port, call, "bench")
    assert size > events * 1_800, f"only {size} bytes came through"
    return (cpu_s(pid) - before) / events * 1e6


def resume(port: int, session: str, cursor: str, events: int) -> None:
    """Ask for what follows `cursor` and read until `events` events with data have come."""
    lines = [
        "GET /mcp HTTP/1.1", f"host: 127.0.0.1:{port}", "accept: text/event-stream", "connection: close",
        f"mcp-session-id: {session}", "mcp-protocol-version: 2025-11-25", f"last-event-id: {cursor}",
    ]  # fmt: skip
    seen, rest = 0, b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        while seen < events:
            piece = connection.recv(1 << 20)
            assert piece, f"only {seen} of {events} events were replayed"
            block = rest + piece
            seen += block.count(b"data: {")
            rest = block[-6:] if not block.endswith(b"data: {") else b""


def measure_resume(pid: int, port: int, session: str, cursor: str, events: int, times: int) -> float:
    """Milliseconds of the server's CPU for one resume."""
    before = cpu_s(pid)
    for _ in range(times):
        resume(port, session, cursor, events)
    return (cpu_s(pid) - before) / times * 1e3


def counted_call(port: int, events: int) -> tuple[str, str]:
    """Let the demo's server count up; return the session and the first event ID of the call."""
    _, head = post(port, HELLO, None)
    session = field_of(head, b"mcp-session-id:")
    post(port, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    arguments = {"call": "bench", "numbers": events - 1}
    params = {"name": "count_up", "arguments": arguments, "_meta": {"progressToken": 1}}
    _, head = post(port, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, session)
    return session, field_of(head, b"id:")


def field_of(text: bytes, name: bytes) -> str:
    line = next(line for line in text.splitlines() if line.lower().startswith(name))
    return line[len(name) :].strip().decode()


def bars_of_resumes(context: Context) -> list[Bar]:
    """A resume of 1 000 missed events: ours against the SDK's example store and FastMCP's own."""
    events = 1_000
    times = {"ours": 200, "stock": 4 if context.quick else 10, "fastmcp": 4}  # enough ticks on each side
    server = ["-m", "counterfoil.programs.demo.server", "--effects", os.devnull]
    fastmcp = context.build / "sdk2" / "bin" / "python"
    with ExitStack() as stack:
        _, plain = stack.enter_context(child(*server))
        gateway = ["-m", "counterfoil.programs.demo.gateway", "--set", "limits.window_events=2000"]
        upstream = ["--upstream", f"http://127.0.0.1:{plain}/mcp"]
        servers = {
            "ours": stack.enter_context(child(*gateway, *upstream)),
            "stock": stack.enter_context(child(*server, "--store", "example")),
        }
        if fastmcp.exists():
            servers["fastmcp"] = stack.enter_context(child(str(FASTMCP), python=str(fastmcp)))
        costs: dict[str, list[float]] = {name: [] for name in servers}
        begun = {name: counted_call(port, events) for name, (_, port) in servers.items()}
        for _ in range(context.rounds):
            for name, (pid, port) in servers.items():
                costs[name].append(measure_resume(pid, port, *begun[name], events, times[name]))
    medians = {name: statistics.median(cost) for name, cost in costs.items()}
    own, stock = medians["ours"], medians["stock"]
    note = f"ours {own:.2f}, stock {stock:.2f} ms"
    bar = Bar("resume of 1000 events / SDK's example store", stock / own, 20, None, "x", "higher", note)
    if "fastmcp" not in medians:
        return [bar]
    theirs = medians["fastmcp"]
    note = f"FastMCP {theirs:.0f} ms"
    return [
        bar,
        Bar("resume of 1000 events / FastMCP's store", theirs / own, None, None, "x", "higher", note),
    ]


def bars(context: Context) -> list[Bar]:
    """Every bar of the gateway."""
    return [*bars_of_events(context), *bars_of_resumes(context)]


def bars_of_events(context: Context) -> list[Bar]:
    """Events on their way through."""
    events = 16 * (500 if context.quick else 2_000)
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
            post(port, HELLO, None)
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
