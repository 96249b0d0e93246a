"""The official conformance suite judges our client: handshake, calls, questions, and coming back in time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from interop.environments import INTEROP, conformance_command

SCENARIOS = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_check_of_the_scenario_passes(scenario: str, backend: str, tmp_path: Path) -> None:
    client = f"{sys.executable} -W ignore {INTEROP / 'clients' / 'ours.py'} {backend}"
    done = subprocess.run(
        [*conformance_command(), "client", "--command", client, "--scenario", scenario, "-o", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    checks = [
        check
        for file in tmp_path.glob("*/checks.json")
        for check in json.loads(file.read_text())
        if check["status"] != "INFO"
    ]
    assert checks, done.stdout
    assert {check["status"] for check in checks} == {"SUCCESS"}, done.stdout
    assert done.returncode == 0, done.stdout
