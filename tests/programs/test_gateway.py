"""`counterfoil gateway`: checks its configuration, serves on both backends, drains when it is told to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

COMMAND = [sys.executable, "-m", "counterfoil", "gateway"]
UPSTREAM = ["--upstream", "http://127.0.0.1:9/mcp"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_check_prints_the_effective_configuration() -> None:
    result = run(*UPSTREAM, "--check", "--set", "gateway.beat_s=5", "--retry-ms", "70")
    assert result.returncode == 0
    assert "beat_s = 5" in result.stdout
    assert "retry_ms = 70" in result.stdout
    assert 'url = "http://127.0.0.1:9/mcp"' in result.stdout


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ([], "upstream"),
        ([*UPSTREAM, "--set", "gateway.nope=1"], "nope"),
        ([*UPSTREAM, "--set", "beat"], "--set"),
        ([*UPSTREAM, "--principal", "jwt:sub"], "serve.principal"),
        (["--upstream", "ftp://x"], "upstream.url"),
        ([*UPSTREAM, "--keys", "/nowhere/keys"], "keys"),
    ],
)
def test_a_bad_configuration_is_exit_2_and_names_the_key(arguments: list[str], key: str) -> None:
    result = run(*arguments, "--check")
    assert result.returncode == 2
    assert key in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_it_serves_and_sigterm_drains_it(backend: str) -> None:
    arguments = [*COMMAND, *UPSTREAM, "--listen", "127.0.0.1:0", "--backend", backend]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        facts = next(line for line in map(json.loads, lines) if line["event"] == "listening")
        assert facts["backend"] == backend
        answer = httpx2.post(f"http://127.0.0.1:{facts['port']}/mcp", json={})
        assert answer.status_code == 502
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert any('"draining"' in line for line in lines)


def test_without_a_key_file_it_says_that_cursors_die_with_it(tmp_path: Path) -> None:
    assert "ephemeral-key" in run(*UPSTREAM, "--check").stderr
    keys = tmp_path / "keys"
    assert subprocess.run([*COMMAND[:3], "keys", "new", str(keys)], check=True, capture_output=True)
    assert "ephemeral-key" not in run(*UPSTREAM, "--check", "--keys", str(keys)).stderr


def test_status_is_asked_over_the_admin_socket_only(tmp_path: Path) -> None:
    admin = f"unix:{tmp_path}/admin.sock"
    arguments = [*COMMAND, *UPSTREAM, "--listen", "127.0.0.1:0", "--admin", admin]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        facts = next(line for line in map(json.loads, lines) if line["event"] == "listening")
        deadline = time.monotonic() + 10
        while not (tmp_path / "admin.sock").exists():
            assert time.monotonic() < deadline
        status = run("--status", "--admin", admin, "--json")
        assert json.loads(status.stdout)["ready"] is True
        assert "live_streams" in run("--status", "--admin", admin).stdout
        public = httpx2.get(f"http://127.0.0.1:{facts['port']}/metrics")
        assert public.status_code == 404
        assert (tmp_path / "admin.sock").stat().st_mode & 0o077 == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert run("--status", "--admin", admin).returncode == 1
    assert run(*UPSTREAM, "--check", "--admin", "0.0.0.0:9").returncode == 2
