"""The dictionary subset of RFC 9651: read strictly, written in one form."""

from __future__ import annotations

import pytest
from counterfoil.errors import ContinuityError
from counterfoil.protocol.dictionary import (
    MAX_CHARS,
    MAX_INTEGER,
    MAX_MEMBERS,
    MAX_STRING_CHARS,
    Quoted,
    Token,
    read_dictionary,
    write_dictionary,
)
from hypothesis import given
from hypothesis import strategies as st

keys = st.from_regex(r"[a-z*][a-z0-9_.*-]{0,9}", fullmatch=True)
tokens = st.from_regex(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]{0,9}", fullmatch=True).map(Token)
strings = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20).map(Quoted)
values = st.integers(0, MAX_INTEGER) | tokens | strings | st.lists(tokens, max_size=3).map(tuple)


@given(st.dictionaries(keys, values, max_size=8))
def test_what_is_written_is_read_back_with_its_types(members: dict[str, int | Quoted | Token]) -> None:
    read = read_dictionary(write_dictionary(members))
    assert read == members
    assert {key: type(value) for key, value in read.items()} == {k: type(v) for k, v in members.items()}
    assert list(read) == list(members)


@given(st.text(st.sampled_from('ab1=,;"\\()?:@. \t-*'), max_size=40))
def test_any_text_is_a_dictionary_or_a_typed_error(text: str) -> None:
    try:
        read_dictionary(text)
    except ContinuityError as error:
        position = error.position
    else:
        position = len(text)
    assert 0 <= position <= len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": 1}),
        ("  a=1,\tb=-2 , c=x  ", {"a": 1, "b": -2, "c": "x"}),
        ('a="x\\"\\\\y"', {"a": 'x"\\y'}),
        ("a=(x  y ), b=( )", {"a": ("x", "y"), "b": ()}),
        ('a=x;q=1;r; s="t", b=1', {"a": "x", "b": 1}),
        ("a=(x;q=1 y);z, b=1", {"a": ("x", "y"), "b": 1}),
        # Kinds that no member of ours has are read, so that a format that grows is not refused.
        ('a, b=?1, c=1.5, d=:aGk=:, e=@99, f=(1 "x"), g=1', {**dict.fromkeys("abcdef"), "g": 1}),
    ],
)
def test_legal_forms(text: str, expected: dict[str, object]) -> None:
    assert read_dictionary(text) == expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a=1,", 4),
        ("a=1 b=2", 3),
        ("A=1", 0),
        ("=1", 0),
        ("a=", 2),
        ("a= 1", 2),
        ('a="x', 2),
        ('a="\\x"', 2),
        ('a="é"', 2),
        ("a=(x", 4),
        ("a=(x,y)", 4),
        ("a=((x))", 3),
        ('a=(x"y")', 4),
        ("a=1234567890123456", 2),
        ("a=1;", 4),
        ("a=1;q=(x)", 6),
        ("a=1\r\nb=2", 3),
        ("a=1, a=1", 5),
        ("\ta=1", 0),
        ("a=1\n", 3),
        ("a=1\t", 3),
    ],
)
def test_illegal_forms_say_where(text: str, position: int) -> None:
    with pytest.raises(ContinuityError) as raised:
        read_dictionary(text)
    assert raised.value.position == position


def test_everything_is_bounded() -> None:
    for text in (
        "a" * (MAX_CHARS + 1),
        ",".join(f"a{number}=1" for number in range(MAX_MEMBERS + 1)),
        f'a="{"x" * (MAX_STRING_CHARS + 1)}"',
    ):
        with pytest.raises(ContinuityError, match="more than"):
            read_dictionary(text)
    assert read_dictionary(f'a="{"x" * MAX_STRING_CHARS}"') == {"a": "x" * MAX_STRING_CHARS}


@pytest.mark.parametrize(
    "value", [-1, MAX_INTEGER + 1, Quoted("é"), Quoted("x\n"), Quoted("x" * (MAX_STRING_CHARS + 1))]
)
def test_what_cannot_travel_is_not_written(value: int | Quoted) -> None:
    with pytest.raises(ContinuityError):
        write_dictionary({"a": value})
