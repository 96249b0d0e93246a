"""Power loss: whatever of the unsynced writes the disk kept, nothing told is lost and nothing is torn."""

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

PROGRAM = Path(__file__).resolve().parent / "power_loss.py"


def run(*words: str | Path, **environment: str) -> str:
    out = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=1800,
        check=False,
    )
    assert out.returncode == 0, out.stderr[-2000:]
    return out.stdout


def crash(folder: Path, shim: Path, action: str, images: int, seed: int) -> dict[str, Any]:
    own = folder / f"{action}-{seed}"
    own.mkdir(parents=True)
    log = str(own / "log")
    run(action, own, str(seed), LD_PRELOAD=str(shim), SHIM_MATCH="shop.db", SHIM_LOG=log)
    found: dict[str, Any] = json.loads(run("images", own, str(images), str(seed)))
    shutil.rmtree(folder, ignore_errors=True)
    return found


@pytest.mark.slow
def test_no_crash_image_has_lost_or_torn_anything_that_was_acknowledged(
    fast_folder: Path, shim: Path, scaled: Callable[[int, int], int]
) -> None:
    """P8 through power loss: effects, outcomes and cursors agree, and reach at least what was told."""
    for seed in range(scaled(2, 6)):
        found = crash(fast_folder, shim, "record", scaled(40, 260), seed)
        assert found["wrong"] == []
        assert found["unsynced"] > found["images"], "the disk had nothing to lose: this proves nothing"
        assert found["syncs"] > 50


@pytest.mark.slow
def test_without_syncing_the_same_images_do_lose(fast_folder: Path, shim: Path) -> None:
    """The harness bites: with `synchronous = OFF` acknowledged events are missing."""
    found = crash(fast_folder, shim, "sloppy", 60, 1)
    assert any("was acknowledged" in problem or "torn" in problem for problem in found["wrong"])
