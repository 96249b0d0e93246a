"""Makes the programs of this folder importable, and compiles the one that records and breaks writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that stands between SQLite and the disk of a child process."""
    library = tmp_path_factory.mktemp("shim") / "disk_shim.so"
    compiler = os.environ.get("CC", "cc")
    source = HERE / "disk_shim.c"
    subprocess.run(
        [compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library


@pytest.fixture
def fast_folder(tmp_path: Path) -> Path:
    """A folder in memory where there is one: `kill -9` leaves the page cache alone, so no disk is needed."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        return tmp_path
    folder = memory / f"counterfoil-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    return folder
