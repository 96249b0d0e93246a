"""Verdicts on identical calls are values: no truth value, no change, and the evidence stays with them."""

from __future__ import annotations

import pickle

import pytest
from counterfoil.model.adoption import (
    Adopt,
    AdoptionEvidence,
    Caller,
    Delivery,
    Eligible,
    Patience,
    RunAnew,
    Tell,
    Wait,
    Work,
)
from counterfoil.model.tokens import Next, Why

EVIDENCE = AdoptionEvidence(
    eligible=Eligible.YES,
    patience=Patience.FRESH,
    work=Work.RUNNING,
    delivery=Delivery.NONE,
    caller=Caller.GONE,
)


@pytest.mark.parametrize("kind", [Adopt, Wait, Tell, RunAnew])
def test_a_verdict_keeps_its_evidence_and_has_no_truth_value(kind: type[Adopt]) -> None:
    verdict = kind(evidence=EVIDENCE, why=Why.ADOPTED, next=Next.CONTINUE)
    assert pickle.loads(pickle.dumps(verdict)) == verdict
    assert verdict.evidence == EVIDENCE
    with pytest.raises(TypeError, match="no truth value"):
        bool(verdict)
    with pytest.raises(AttributeError):
        verdict.why = Why.ENDED  # type: ignore[misc]


def test_members_are_words_for_logs() -> None:
    """Each enum is closed, and no two members share a value."""
    for enum in (Eligible, Patience, Work, Delivery, Caller):
        assert len({member.value for member in enum}) == len(list(enum))
