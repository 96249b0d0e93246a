"""The official conformance suite judges the everything-server of both majors alike with one line of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from interop.conformance import Checks, count_passed, run_conformance
from interop.processes import start_everything_server

ENVIRONMENTS = ("venv", "sdk1")


@pytest.fixture(scope="module")
def directly(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checks]:
    """Return a function that gives the checks of a server as the SDK's own example sets it up."""
    known: dict[str, Checks] = {}

    def judge(environment: str) -> Checks:
        if environment not in known:
            with start_everything_server(environment) as server:
                known[environment] = run_conformance(server.url, tmp_path_factory.mktemp(environment))
        return known[environment]

    return judge


@pytest.mark.parametrize("behind", ["front", "our-store"])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_check_ends_otherwise_than_with_the_examples_store(
    environment: str, behind: str, directly: Callable[[str], Checks], tmp_path: Path
) -> None:
    stock = directly(environment)
    assert count_passed(stock) > 30, "the suite ran"
    with start_everything_server(environment, behind=behind) as server:
        assert run_conformance(server.url, tmp_path) == stock
