"""An outcome is one of four, and only one of them frees the key."""

from __future__ import annotations

import pickle

import pytest
from counterfoil.model.outcomes import Outcome
from counterfoil.model.tokens import OutcomeToken, Why


@pytest.mark.parametrize("token", OutcomeToken)
def test_only_not_applied_frees_the_key(token: OutcomeToken) -> None:
    assert Outcome(token=token, why=Why.BUDGET).frees_key is (token == "not_applied")


def test_an_outcome_is_a_value() -> None:
    outcome = Outcome(token=OutcomeToken.COMPLETED, body=b"{}")
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    assert hash(outcome) == hash(Outcome(token=OutcomeToken.COMPLETED, body=b"{}"))
