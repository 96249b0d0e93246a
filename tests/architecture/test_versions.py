"""Cargo, the extension and the package agree on the version."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import counterfoil

ROOT = Path(__file__).resolve().parents[2]


def test_one_version_everywhere() -> None:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert counterfoil.__version__ == cargo == importlib.metadata.version("counterfoil")


def test_changelog_names_the_version() -> None:
    assert f"## {counterfoil.__version__}" in (ROOT / "CHANGELOG.md").read_text()
