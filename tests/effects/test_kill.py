"""Real processes, really killed: what each handler kind promises, and what naive ways lose and double."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


def run(folder: Path, mode: str, kills: int) -> dict[str, Any]:
    own = folder / mode
    own.mkdir(parents=True)
    out = subprocess.run(
        [sys.executable, str(HERE / "kill_loop.py"), str(own), mode, str(kills), "1"],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    shutil.rmtree(folder, ignore_errors=True)
    assert out.returncode == 0, out.stderr[-2000:]
    found: dict[str, Any] = json.loads(out.stdout)
    assert found["kills"] == kills
    assert found["events"] > kills / 4, "the workers were killed before they did anything"
    return found


def kills_of(scaled: Callable[[int, int], int], share: int) -> int:
    """A third of all kills, or of those that `make crash N=…` asks for."""
    asked = os.environ.get("COUNTERFOIL_KILLS")
    return int(asked) // share if asked else scaled(40, 2_001 // share)


@pytest.mark.slow
def test_transactional_loses_nothing_and_doubles_nothing(
    fast_folder: Path, scaled: Callable[[int, int], int]
) -> None:
    """P8: effect, outcome and cursor commit together."""
    found = run(fast_folder, "transactional", kills_of(scaled, 3))
    assert (found["lost"], found["doubled"], found["reported"], found["broken_proofs"]) == (0, 0, 0, 0)


@pytest.mark.slow
def test_idempotent_is_once_as_observed_at_the_sink(
    fast_folder: Path, scaled: Callable[[int, int], int]
) -> None:
    """P8: the same key, whatever process sends it."""
    found = run(fast_folder, "idempotent", kills_of(scaled, 3))
    assert (found["lost"], found["doubled"], found["reported"], found["broken_proofs"]) == (0, 0, 0, 0)


@pytest.mark.slow
def test_at_most_once_doubles_nothing_and_reports_every_doubt(
    fast_folder: Path, scaled: Callable[[int, int], int]
) -> None:
    """P8: whatever has no effect is among the reported ones."""
    found = run(fast_folder, "at_most_once", kills_of(scaled, 3))
    assert (found["lost"], found["doubled"], found["broken_proofs"]) == (0, 0, 0)
    assert found["reported"] > 0, "no kill hit a running handler: this proves nothing"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "fault"),
    [("cursor-before", "lost"), ("cursor-after", "doubled"), ("no-intent-check", "doubled")],
)
def test_the_naive_ways_do_lose_and_double(
    fast_folder: Path, scaled: Callable[[int, int], int], mode: str, fault: str
) -> None:
    """Without these the harness could be too gentle to prove anything."""
    found = run(fast_folder, mode, scaled(40, 200))
    assert found[fault] > 0
