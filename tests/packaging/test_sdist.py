"""The source distribution is complete: a wheel builds again from nothing but what is in it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MATURIN = Path(sys.executable).parent / "maturin"


def run_maturin(*arguments: str, cwd: Path) -> None:
    environment = os.environ | {"CARGO_TARGET_DIR": str(ROOT / "build" / "cargo")}
    subprocess.run([str(MATURIN), *arguments], cwd=cwd, env=environment, check=True, capture_output=True)


@pytest.mark.slow
def test_wheel_builds_again_from_the_sdist(tmp_path: Path) -> None:
    run_maturin("sdist", "--out", str(tmp_path), cwd=ROOT)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert (source / "Cargo.lock").is_file()
    assert (source / "LICENSE").is_file()
    run_maturin(
        "build", "--release", "--quiet", "--out", str(tmp_path), "--interpreter", sys.executable, cwd=source
    )
    (wheel,) = tmp_path.glob("*.whl")
    ours = sorted(path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python").rglob("*.py*"))
    packed = set(zipfile.ZipFile(wheel).namelist())
    missing = [
        name
        for name in ours
        if "__pycache__" not in name and not name.endswith(".pyc") and name not in packed
    ]
    assert not missing
