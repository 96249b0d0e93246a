"""A tiny interpreter for the tables in tests/vectors: first row whose every condition holds.

It shares no code with the decision functions, so that an error would have to be made twice, in two forms.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


class Table:
    """A specification: rows of `when` and what they lead to."""

    def __init__(self, path: str) -> None:
        self.rows: list[dict[str, Any]] = tomllib.loads((VECTORS / path).read_text())["row"]
        self.used: set[str] = set()

    def first_match(self, facts: Mapping[str, str]) -> dict[str, Any]:
        for row in self.rows:
            if all(facts[name] in allowed for name, allowed in row.get("when", {}).items()):
                self.used.add(row["name"])
                return row
        raise AssertionError(f"no row for {facts}")


@pytest.fixture
def table() -> Callable[[str], Table]:
    """Read a specification by its path below tests/vectors."""
    return Table


@pytest.fixture
def every() -> Callable[..., Iterator[dict[str, StrEnum]]]:
    """All combinations of the members of some enums, by field name."""

    def combinations(**fields: type[StrEnum]) -> Iterator[dict[str, StrEnum]]:
        for values in product(*fields.values()):
            yield dict(zip(fields, values, strict=True))

    return combinations
