"""Makes the kits of the gateway's tests and of this folder importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "adapters" / "gateway"))
sys.path.insert(0, str(Path(__file__).parent.parent / "adapters" / "peers"))


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for sockets: its path is short, and nobody else may enter it."""
    path = tmp_path_factory.mktemp("w")
    path.chmod(0o700)
    return path
