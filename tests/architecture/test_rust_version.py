"""Every crate of the lock file builds on the Rust that we say is enough."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def parts_of(version: str) -> tuple[int, ...]:
    numbers = [int(number) for number in version.split(".")]
    return (*numbers, *[0] * (3 - len(numbers)))


def test_no_dependency_needs_a_newer_rust() -> None:
    promised = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    newer = {
        package["name"]: package["rust_version"]
        for package in json.loads(run.stdout)["packages"]
        if package["rust_version"] and parts_of(package["rust_version"]) > parts_of(promised)
    }
    assert not newer, f"these need more than Rust {promised}; run `cargo update` and choose older ones"
