"""One idea, one word: identifiers that the glossary replaces do not come back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "counterfoil"
#: word -> the one to use
BANNED = {
    "message_id": "event_id, or request_id for JSON-RPC",
    "generation": "epoch (identity) or fence (order)",
    "offset": "sequence, or position for a place in bytes",
    "unknown_outcome": "indeterminate",
    "dedup_id": "idempotency_key",
    "side_effect": "effect",
    "redeliver": "replay",
    "backlog": "replay window",
}
#: The cards' functions keep the cards' parameter names (design, section 9).
EXEMPT = {"resumption.py"}

FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name not in EXEMPT]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_identifiers_use_the_glossary(path: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    found = {name: BANNED[name] for name in names & set(BANNED)}
    assert not found, f"use {found}"
