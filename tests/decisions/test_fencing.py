"""Only the entitled writer writes, and only for the attempt it claimed."""

from __future__ import annotations

from typing import Any

from counterfoil.decisions.fencing import check_fence, compare
from counterfoil.model.dispatch import Entitled, Fenced, FenceEvidence, Order
from counterfoil.model.tokens import Why


def test_one_cell_of_nine_is_entitled(every: Any) -> None:
    verdicts = {
        (facts["fence"], facts["attempt"]): check_fence(FenceEvidence(**facts))
        for facts in every(fence=Order, attempt=Order)
    }
    entitled = [place for place, verdict in verdicts.items() if isinstance(verdict, Entitled)]
    assert entitled == [(Order.EQUAL, Order.EQUAL)]
    assert all(isinstance(v, Entitled | Fenced) for v in verdicts.values())


def test_zombie_writer_is_fenced_and_told_so() -> None:
    verdict = check_fence(FenceEvidence(fence=compare(3, stored=4)))
    assert verdict.why is Why.FENCE


def test_store_that_lost_our_claim_is_not_written_to() -> None:
    """A backup restored under a living process: our fence is above the stored one."""
    verdict = check_fence(FenceEvidence(fence=compare(4, stored=3)))
    assert isinstance(verdict, Fenced)
    assert verdict.why is Why.AHEAD


def test_late_commit_of_an_earlier_attempt_is_fenced() -> None:
    verdict = check_fence(FenceEvidence(fence=Order.EQUAL, attempt=compare(1, stored=2)))
    assert isinstance(verdict, Fenced)
    assert verdict.why is Why.ATTEMPT
