"""What every test shares: both async backends, scaled counts, and hypothesis profiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

#: Set by `make proof`: every count of the issues in full.
FULL = os.environ.get("COUNTERFOIL_FULL") == "1"

_TOLERATED = [HealthCheck.too_slow]
settings.register_profile(
    "small", max_examples=60, deadline=None, derandomize=True, suppress_health_check=_TOLERATED
)
settings.register_profile(
    "full", max_examples=2_000, deadline=None, derandomize=True, suppress_health_check=_TOLERATED
)
settings.load_profile("full" if FULL else "small")


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run every async test on trio, the reference, and on asyncio."""
    return str(request.param)


@pytest.fixture
def scaled() -> Callable[[int, int], int]:
    """Choose between a count that fits `make test` and the full one of `make proof`."""
    return lambda small, full: full if FULL else small


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """With CI=true a skip is a failure: what a test needs, CI can have."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although CI=true: {report.longrepr}"
    return report
