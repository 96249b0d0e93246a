"""Each module answers to a test file of its own, so that a newcomer finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "counterfoil"
#: Nothing to test but re-exports, or covered by running the command.
UNPAIRED = {"__init__.py", "__main__.py"}
#: Its folders are rooms: what a room promises is seen at the wire, and the tests of it are in its own folder.
ROOMS = Path("adapters/gateway")

MODULES = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")) if path.name not in UNPAIRED]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_module_has_a_test_file(module: Path) -> None:
    own = ROOT / "tests" / module.parent / f"test_{module.name}"
    # A package of small files may share one test file named after the folder.
    shared = ROOT / "tests" / module.parent.parent / f"test_{module.parent.name}.py"
    in_room = module.parent.parent == ROOMS and any(own.parent.glob("test_*.py"))
    assert own.is_file() or in_room or (len(module.parts) > 1 and shared.is_file()), (
        f"{module} has neither {own} nor {shared}"
    )
