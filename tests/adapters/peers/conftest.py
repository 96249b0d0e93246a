"""Makes the kit of this folder importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for sockets, whose path is short."""
    path = tmp_path_factory.mktemp("p")
    path.chmod(0o700)
    return path
