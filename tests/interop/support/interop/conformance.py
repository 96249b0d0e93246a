"""Runs the official conformance suite against a server and reads its verdict on every check."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

from interop.environments import conformance_command

_TIME_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")

#: How often a scenario's check ended with a status; observations that the suite does not judge are left out.
Checks = Counter[tuple[str, str, str]]


def run_conformance(url: str, results: Path) -> Checks:
    """Run every scenario (`--suite all`); each check counts under its scenario, its name and its status."""
    subprocess.run(
        [*conformance_command(), "server", "--url", url, "--suite", "all", "-o", str(results)],
        check=False,  # the checks say what failed
        capture_output=True,
        timeout=120,
    )
    checks: Checks = Counter()
    for file in results.glob("*/checks.json"):
        scenario = _TIME_STAMP.sub("", file.parent.name)
        for check in json.loads(file.read_text()):
            if check["status"] != "INFO":
                checks[scenario, check["id"], check["status"]] += 1
    return checks


def count_passed(checks: Checks) -> int:
    return sum(count for (_, _, status), count in checks.items() if status == "SUCCESS")
