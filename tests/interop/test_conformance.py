"""The official conformance suite judges a server directly and through the gateway alike, check by check."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop.conformance import Checks, count_passed, run_conformance
from interop.gateways import start_gateway
from interop.processes import start_everything_server

#: What `--suite all` of the pinned version has; fewer would mean that scenarios were not run.
CHECKS = 44


@pytest.fixture(scope="module")
def directly(tmp_path_factory: pytest.TempPathFactory) -> Checks:
    with start_everything_server() as server:
        return run_conformance(server.url, tmp_path_factory.mktemp("directly"))


def test_the_server_passes_every_check_directly(directly: Checks) -> None:
    assert count_passed(directly) == CHECKS
    assert not [check for check in directly if check[2] == "FAILURE"]


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("asyncio", ()),
        ("trio", ()),
        ("asyncio", ("--max-revision", "2025-11-25")),
        ("asyncio", ("--set", "gateway.resume_grace_s=10")),
    ],
    ids=["asyncio", "trio", "max-revision", "resume-grace"],
)
def test_the_gateway_changes_the_result_of_no_check(
    directly: Checks, backend: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    with start_everything_server() as server, start_gateway(server, backend, *options) as gateway:
        assert run_conformance(gateway.url, tmp_path) == directly
