"""Evidence is a value: frozen, equal by its facts, and fit to travel between processes."""

from __future__ import annotations

import pickle

import msgspec
import pytest
from counterfoil.model.evidence import Asked, Claim, ClaimDetails, First, ResumeEvidence, StoreEvidence
from counterfoil.model.tokens import Next, VerdictToken, Why

FULL = ResumeEvidence(
    asked=Asked.CF1,
    claim=Claim.GAP_OURS,
    first=First.BEYOND,
    details=ClaimDetails(verdict=VerdictToken.GAP, why=Why.TRIMMED, next=Next.RECONCILE, first=3, last=9),
    asked_sequence=2,
    request_ids=(1, "1"),
)


@pytest.mark.parametrize("value", [FULL, StoreEvidence(row=10, asked=2, first=10, last=40)])
def test_evidence_survives_pickle_and_json(value: ResumeEvidence | StoreEvidence) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
    assert hash(value) == hash(msgspec.structs.replace(value))


def test_evidence_is_frozen() -> None:
    with pytest.raises(AttributeError):
        FULL.claim = Claim.ABSENT  # type: ignore[misc]


def test_claims_are_listed_from_nothing_to_worst() -> None:
    order = [claim.value.split("-")[0] for claim in Claim]
    words = ["absent", "resumed", "new", "retry", "unverifiable", "gap", "reoriginated", "forged"]
    assert list(dict.fromkeys(order)) == words
