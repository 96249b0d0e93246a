"""Starts servers as child processes of a test and ends them with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from interop.environments import BUILD, INTEROP, ROOT, find_everything_server

_END_S = 5


class Server(msgspec.Struct, frozen=True):
    """A child process that serves MCP at `url`."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@contextmanager
def start_server(command: Sequence[str]) -> Iterator[Server]:
    """Run `command` until the block ends; it must print `ready PORT` and end when its input closes."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready = process.stdout.readline().split()
            assert ready[:1] == ["ready"], f"{command} did not start: {ready}"
            yield Server(process, int(ready[1]))
        finally:
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


class Orders(msgspec.Struct, frozen=True):
    """The test server of `servers/orders.py`, and the file that counts its effects."""

    server: Server
    effects: Path

    def count_effects(self, key: str) -> int:
        """Return how often the effect of the call `key` was applied."""
        if not self.effects.exists():
            return 0
        return self.effects.read_text(encoding="utf-8").split("\n").count(key)

    def count_cancellations(self) -> int:
        """Return how many calls clients have cancelled here so far."""
        return self.count_effects("notifications/cancelled")

    def tell(self, key: str) -> None:
        """Let the calls of `order_when_told` under a key come to their end."""
        name = f"told-{sha256(key.encode()).hexdigest()[:32]}"  # as servers/orders.py has it
        self.effects.with_name(name).touch()


@contextmanager
def start_orders(effects: Path, *options: str) -> Iterator[Orders]:
    """Run the test server with `options` (`--store shared`, `--json`)."""
    with start_server(_python("orders.py", "--effects", str(effects), *options)) as server:
        yield Orders(server, effects)


@contextmanager
def start_crowd() -> Iterator[Server]:
    """Run the upstream of `servers/crowd.py`, which bears thousands of sessions."""
    with start_server(_python("crowd.py")) as server:
        yield server


#: The published servers: kit, and the environment that holds it.
KITS = {
    "sdk-1": ("sdk", "sdk1"),
    "sdk-2": ("sdk", "venv"),
    "fastmcp-3": ("fastmcp", "sdk1"),
    "fastmcp-4": ("fastmcp", "sdk2"),
}


@contextmanager
def start_kit(name: str, behind: str, effects: Path, *, backend: str = "asyncio") -> Iterator[Orders]:
    """Run one of `KITS` with what `servers/kits.py` can put behind it; skips where it is not installed."""
    kit, environment = KITS[name]
    options = ["--kit", kit, "--behind", behind, "--effects", str(effects), "--backend", backend]
    with start_server(_python("kits.py", *options, environment=environment)) as server:
        yield Orders(server, effects)


@contextmanager
def start_example(name: str, environment: str) -> Iterator[Server]:
    """Run one of `examples/` with the packages of an environment."""
    with start_server(
        _python("example.py", str(ROOT / "examples" / name), environment=environment)
    ) as server:
        yield server


@contextmanager
def start_everything_server(environment: str = "venv", *, behind: str = "stock-store") -> Iterator[Server]:
    """Run the server that the official conformance suite was written for, of the SDK of an environment."""
    source = str(find_everything_server(environment))
    command = _python("everything.py", source, "--behind", behind, environment=environment)
    with start_server(command) as server:
        yield server


def resident_bytes(server: Server, *, peak: bool = False) -> int:
    """Return the memory that a process has, or had at most."""
    fields = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    name = "VmHWM:" if peak else "VmRSS:"
    return next(int(line.split()[1]) << 10 for line in fields if line.startswith(name))


def _python(program: str, *arguments: str, environment: str = "") -> list[str]:
    python = str(find_python(environment)) if environment else sys.executable
    # Warnings of the SDK about its own older revision are not ours to turn into errors.
    return [python, "-W", "ignore", str(INTEROP / "servers" / program), *arguments]


def find_python(environment: str) -> Path:
    """Return the interpreter of an environment; skips the test where it is not installed."""
    python = BUILD / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"build/{environment} is missing: run `make sdks`")
    return python
