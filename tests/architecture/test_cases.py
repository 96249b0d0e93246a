"""Every kind of fault that a finished roadmap item claims has a test, and the test exists."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = tomllib.loads((ROOT / "tests" / "cases.toml").read_text())
#: Roadmap items whose rows must all have a test by now.
FINISHED = {"1a", "1b", "2", "3a", "3b", "3c", "4"}


def test_all_108_rows_are_listed() -> None:
    assert len(CASES) == 108
    assert all(set(row) <= {"kind", "items", "tests", "not_applicable"} for row in CASES.values())


@pytest.mark.parametrize("number", [n for n, row in CASES.items() if FINISHED & set(row["items"])])
def test_row_of_a_finished_item_has_a_test(number: str) -> None:
    row = CASES[number]
    assert row["tests"] or row.get("not_applicable"), (
        f"{number} ({row['kind']}) is claimed but no test is named"
    )


@pytest.mark.parametrize("number", [n for n, row in CASES.items() if row["tests"]])
def test_named_tests_exist(number: str) -> None:
    for reference in CASES[number]["tests"]:
        path, _, name = reference.partition("::")
        file = ROOT / path
        assert file.is_file(), f"{number}: no file {path}"
        # A function or class in source, or the name of a case in a vector file.
        needle = f'"{name}"' if file.suffix == ".json" else name.split("::")[-1].split("[")[0]
        assert needle in file.read_text(), f"{number}: {path} has no {name}"
