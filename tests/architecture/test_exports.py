"""The public surface is what `__all__` says, and importing it loads nothing optional and starts nothing."""

from __future__ import annotations

import subprocess
import sys

import counterfoil

#: Integrations and servers: imported by those who use them, never by `import counterfoil`.
OPTIONAL = ("trio", "httpx2", "mcp", "uvicorn", "hypercorn", "jwt", "starlette", "pydantic", "sqlite3")


def test_public_names_exist_and_are_sorted() -> None:
    assert counterfoil.__all__ == sorted(counterfoil.__all__)
    for name in counterfoil.__all__:
        assert getattr(counterfoil, name) is not None


def test_import_loads_no_integration_and_starts_no_thread() -> None:
    code = (
        "import sys, threading; before = threading.active_count(); import counterfoil;"
        f"print([m for m in {OPTIONAL!r} if m in sys.modules], threading.active_count() - before)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[] 0"
