"""Event IDs and the digest chain, timed in Rust: what they add to the append of a small event."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bars import ROOT, Bar, Context, run_alone


def measure(context: Context) -> dict[str, float]:
    """Run the Rust bench once; nanoseconds by name."""
    command = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "counterfoil-bench", "--", "ids"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(context.build / "cargo")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return {name: value for name, value in json.loads(done.stdout).items() if name != "bench"}


def bars(context: Context) -> list[Bar]:
    found = measure(context)
    added = found["append_with_digest_120_ns"] - found["append_120_ns"]
    ratio = found["append_with_digest_120_ns"] / found["append_120_ns"]
    of_hash = added / found["digest_120_ns"]
    large = found["digest_65536_ns"] / 65_536
    return [
        Bar("digest added to the append of 120 bytes", added, 40, 20, "ns", "lower"),
        Bar("the same, of the digest alone", of_hash, 1.3, 1.1, "x", "lower"),
        Bar("the same append with / without digest", ratio, 1.5, 1.25, "x", "lower", "append = id + frame"),
        Bar("digest of 64 KiB, per byte", large, None, 0.1, "ns", "lower"),
        Bar("write an id", found["write_id_ns"], None, 30, "ns", "lower"),
        Bar("parse an id", found["parse_id_ns"], None, 200, "ns", "lower", "once per resume"),
        Bar("check an id's MAC", found["check_ns"], None, 1000, "ns", "lower", "once per resume"),
    ]


if __name__ == "__main__":
    sys.exit(run_alone(bars))
