"""What the front adds to a server's work: its CPU per event of 2 KB, bare and behind `resumable_app`.

The server is the official SDK's on uvicorn, in a process of its own; the reader only counts bytes.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bars import Bar, Context, run_alone

EVENTS = 3_000
#: Short and many, as what else the machine does lasts for longer than one of them.
ROUNDS_EACH = 4
BYTES_EACH = 2_048
SERVER = Path(__file__).with_name("front_server.py")
REVISION = "2025-11-25"


class Client:
    """Calls the tool and reads its stream; one connection, one session."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        params = {
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        answer = self._post({"id": 0, "method": "initialize", "params": params})
        answer.read()
        self._headers |= {
            "mcp-session-id": answer.headers["mcp-session-id"],
            "mcp-protocol-version": REVISION,
        }
        self._post({"method": "notifications/initialized"}).read()
        self._calls = 0

    def cpu_s(self) -> float:
        self._connection.request("GET", "/cpu")
        return float(self._connection.getresponse().read())

    def flood(self) -> float:
        """Return the server's CPU seconds for one call."""
        self._calls += 1
        before = self.cpu_s()
        params = {
            "name": "flood",
            "arguments": {"events": EVENTS, "bytes_each": BYTES_EACH},
            "_meta": {"progressToken": self._calls},
        }
        body = self._post({"id": self._calls, "method": "tools/call", "params": params}).read()
        assert body.count(b"notifications/progress") == EVENTS
        assert b"flooded" in body
        return self.cpu_s() - before

    def _post(self, message: dict[str, object]) -> http.client.HTTPResponse:
        body = json.dumps({"jsonrpc": "2.0", **message})
        self._connection.request("POST", "/mcp", body, self._headers)
        return self._connection.getresponse()


@contextmanager
def serving(kind: str) -> Iterator[Client]:
    command = [sys.executable, "-W", "ignore", str(SERVER), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Client(int(process.stdout.readline().split()[1]))
        finally:
            process.stdin.close()


def bars(context: Context) -> Sequence[Bar]:
    """Both servers run at once and take turns."""
    added, each_us = [], {"bare": [], "front": []}
    with ExitStack() as stack:
        clients = {kind: stack.enter_context(serving(kind)) for kind in each_us}
        for client in clients.values():
            client.flood()  # warm up
        turns = list(clients.items())
        for _ in range(context.rounds * ROUNDS_EACH):
            turns.reverse()
            spent = {kind: client.flood() for kind, client in turns}
            added.append(spent["front"] / spent["bare"] - 1)
            for kind, seconds in spent.items():
                each_us[kind].append(seconds / EVENTS * 1e6)
    note = ", ".join(f"{kind} {statistics.median(values):.0f} µs" for kind, values in each_us.items())
    return [
        Bar(
            "front, CPU added per event of 2 KB, over the bare app",
            statistics.median(added) * 100,
            10,
            5,
            "%",
            better="lower",
            note=f"per event: {note}",
        )
    ]


if __name__ == "__main__":
    raise SystemExit(run_alone(bars))
