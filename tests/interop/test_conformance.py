"""The official conformance suite judges a server directly and through the gateway alike, check by check."""

from __future__ import annotations

from pathlib import Path

from interop.conformance import count_passed, run_conformance
from interop.processes import start_everything_server

#: What `--suite all` of the pinned version has; fewer would mean that scenarios were not run.
CHECKS = 44


def test_the_server_passes_every_check_directly(tmp_path: Path) -> None:
    with start_everything_server() as server:
        checks = run_conformance(server.url, tmp_path)
    assert count_passed(checks) == CHECKS
    assert not [check for check in checks if check[2] == "FAILURE"]
