"""Starts `counterfoil gateway` as a child process in front of a test server, as its users do."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from interop.processes import Server

_START_S = 20
_END_S = 10
_COUNTERFOIL = [sys.executable, "-m", "counterfoil"]


class Gateway(Server, frozen=True):
    """A running gateway and what it wrote to its log."""

    log: list[str]
    tolerates: str | None = None

    def complaints(self) -> list[str]:
        """Return the lines of the log that are no structured event: tracebacks, warnings of libraries."""
        return [line for line in self.log if not line.startswith("{") and line != self.tolerates]


@contextmanager
def start_gateway(
    upstream: Server, backend: str, *options: str, tolerates: str | None = None
) -> Iterator[Gateway]:
    """Run the gateway with `retry: 50` before `upstream`; fails if its log has a traceback in the end.

    `tolerates` is a line that a test makes a library write.
    """
    command = [*_COUNTERFOIL, "gateway", "--upstream", upstream.url, "--listen", "127.0.0.1:0"]
    command += ["--backend", backend, "--retry-ms", "50", "--set", "serve.drain_s=0.2", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        log: list[str] = []
        ports: queue.Queue[int] = queue.Queue()
        collector = threading.Thread(target=_collect_log, args=(process, log, ports), daemon=True)
        collector.start()
        try:
            port = ports.get(timeout=_START_S)
            assert port, f"the gateway did not start: {log}"
            gateway = Gateway(process, port, log, tolerates)
            yield gateway
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            collector.join()
        assert not gateway.complaints(), "\n".join(gateway.complaints())


def _collect_log(process: subprocess.Popen[str], log: list[str], ports: queue.Queue[int]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        log.append(line.rstrip("\n"))
        if '"listening"' in line:
            ports.put(msgspec.convert(json.loads(line)["port"], int))
    ports.put(0)


def make_keys(file: Path) -> list[str]:
    """Make a key file; return the option that gives it to a gateway, so that several sign alike."""
    subprocess.run([*_COUNTERFOIL, "keys", "new", str(file)], check=True, capture_output=True)
    return ["--keys", str(file)]
