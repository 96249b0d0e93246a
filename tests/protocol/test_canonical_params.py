"""Equal JSON has one canonical text, different JSON has different ones, ambiguous JSON has none."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from counterfoil.errors import AmbiguousJson
from counterfoil.protocol.canonical_params import (
    MAX_DEPTH,
    MAX_DIGITS,
    join_members,
    read_members,
    write_canonical,
)
from hypothesis import given
from hypothesis import strategies as st

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/canonical/json.json").read_text())

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def canonical(text: str) -> str:
    return write_canonical(text.encode("utf-8", "surrogatepass")).decode("ascii")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vector(vector: dict[str, Any]) -> None:
    for text in vector["given"]:
        if vector["expect"] is None:
            with pytest.raises(AmbiguousJson):
                canonical(text)
        else:
            assert canonical(text) == vector["expect"], text


def test_vectors_that_are_told_apart_differ() -> None:
    texts = [vector["expect"] for vector in VECTORS if vector["expect"] is not None]
    assert len(set(texts)) == len(texts)


@given(value=VALUES, other=VALUES)
def test_two_values_have_equal_texts_just_when_they_are_equal(value: Any, other: Any) -> None:
    # `repr` of what `json` reads back tells 1 from True, which Python's == does not.
    ours = [canonical(json.dumps(each, ensure_ascii=False)) for each in (value, other)]
    theirs = [repr(json.loads(json.dumps(each, sort_keys=True))) for each in (value, other)]
    assert (ours[0] == ours[1]) == (theirs[0] == theirs[1])


@given(value=VALUES)
def test_canonical_text_is_json_of_the_same_value_and_its_own_canonical_text(value: Any) -> None:
    text = canonical(json.dumps(value))
    assert json.loads(text, parse_float=lambda number: int(Decimal(number))) == value
    assert canonical(text) == text
    assert text.isascii()


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6), st.integers(-20, 20))
def test_a_number_keeps_its_exact_value_however_it_is_written(number: Decimal, shift: int) -> None:
    written = f"{number:f}"
    assert Decimal(canonical(written)) == number
    assert canonical(f"{number.scaleb(shift):f}e{-shift}") == canonical(written)


def test_depth_and_digits_are_bounded_and_a_hostile_text_ends_soon() -> None:
    assert canonical("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    for text in (
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "[" * 200_000,
        "9" * (MAX_DIGITS + 1),
        "9" * 5_000,
    ):
        with pytest.raises(AmbiguousJson):
            canonical(text)


@pytest.mark.parametrize("text", [b"\xff", b'"\xed\xa0\x80"', "[1]".encode("utf-16")])
def test_only_utf_8_is_read(text: bytes) -> None:
    with pytest.raises(AmbiguousJson):
        write_canonical(text)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_the_members_of_an_object_joined_again_are_its_canonical_text(value: dict[str, Any]) -> None:
    text = json.dumps(value).encode()
    members = read_members(text)
    assert members is not None
    assert join_members(members.items()) == write_canonical(text)


@pytest.mark.parametrize("text", [b"[]", b"1", b'"{}"', b"null"])
def test_what_is_no_object_has_no_members(text: bytes) -> None:
    assert read_members(text) is None
