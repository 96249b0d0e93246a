"""Answers of a ledger are a closed union without a truth value."""

from __future__ import annotations

from typing import get_args

import pytest
from counterfoil.model.ledger_verdicts import ClaimAnswer, Expired, Known


def test_an_answer_has_no_truth_value() -> None:
    for answer in (Known(key=b"k", row=None), Expired(key=b"k", until=1.0)):
        with pytest.raises(TypeError, match="match on its class"):
            bool(answer)


def test_every_answer_names_its_key_and_is_frozen() -> None:
    for member in get_args(ClaimAnswer):
        assert "key" in member.__struct_fields__
        assert member.__struct_config__.frozen
