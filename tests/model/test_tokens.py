"""The words of the wire are legal tokens, and stay what they are."""

from __future__ import annotations

import re
from enum import StrEnum

import pytest
from counterfoil.model import tokens

ENUMS = [
    value
    for value in vars(tokens).values()
    if isinstance(value, type) and issubclass(value, StrEnum) and value is not StrEnum
]
#: An RFC 9651 token: a letter first, then letters, digits and a few marks.
TOKEN = re.compile(r"[a-z][a-z0-9_-]*")


@pytest.mark.parametrize("enum", ENUMS, ids=lambda e: e.__name__)
def test_each_value_is_a_token(enum: type[StrEnum]) -> None:
    assert enum.__members__
    for member in enum:
        assert TOKEN.fullmatch(member.value)


def test_words_of_the_wire_are_frozen() -> None:
    assert [str(v) for v in tokens.VerdictToken] == [
        "resumed",
        "new",
        "unverifiable",
        "gap",
        "reoriginated",
        "forged",
    ]
    assert {str(v) for v in tokens.Next} == {"continue", "reconcile", "retry", "stop", "done"}
    assert {str(v) for v in tokens.Executed} == {"no", "yes", "unknown"}
    assert {str(v) for v in tokens.OutcomeToken} == {"completed", "failed", "not_applied", "indeterminate"}
    assert {str(v) for v in tokens.HandlerKind} == {"transactional", "idempotent", "at_most_once"}
