"""What each revision can do, as the specification has it, and that nobody else names one."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest
from counterfoil.protocol import revisions
from counterfoil.protocol.revisions import REVISIONS, capabilities_of, is_at_most

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "counterfoil"
DATE = re.compile(r"20\d\d-\d\d-\d\d")


def names_a_revision(path: Path) -> list[str]:
    """Strings of the code that are a date; what a docstring or a help text explains is not code."""
    return [
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and DATE.fullmatch(node.value)
    ]


def test_no_other_module_names_a_revision() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names_a_revision(path)
        for path in PACKAGE.rglob("*.py")
        if names_a_revision(path)
    }
    assert set(found) == {"protocol/revisions.py"}


def test_known_revisions_in_order() -> None:
    assert list(REVISIONS) == ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
    assert all(capabilities_of(name) is known and known.revision == name for name, known in REVISIONS.items())


@pytest.mark.parametrize(
    ("capability", "revisions_that_have_it"),
    [
        ("has_sessions", ["2025-03-26", "2025-06-18", "2025-11-25"]),
        ("has_resumption", ["2025-03-26", "2025-06-18", "2025-11-25"]),
        ("has_priming", ["2025-11-25"]),
        ("has_retry", ["2025-11-25"]),
        ("has_batches", ["2025-03-26"]),
        ("has_revision_header", ["2025-06-18", "2025-11-25", "2026-07-28"]),
        ("has_input_rounds", ["2026-07-28"]),
        ("disconnect_cancels", ["2026-07-28"]),
    ],
)
def test_capability(capability: str, revisions_that_have_it: list[str]) -> None:
    assert [name for name, known in REVISIONS.items() if getattr(known, capability)] == revisions_that_have_it


def test_no_header_means_the_first_revision() -> None:
    assert capabilities_of(None) is revisions.FIRST_WITH_STREAMABLE_HTTP


@pytest.mark.parametrize("name", ["2024-11-05", "2027-01-01", "", "latest"])
def test_unknown_revision_has_no_capabilities(name: str) -> None:
    assert capabilities_of(name) is None


def test_order_of_revisions() -> None:
    names = list(REVISIONS)
    for older, newer in itertools.pairwise(names):
        assert is_at_most(older, limit=newer)
        assert is_at_most(older, limit=older)
        assert not is_at_most(newer, limit=older)
