"""Check that a writer is still the one entitled to write.

The store calls it inside the transaction that writes; a check outside that transaction proves nothing.
"""

from __future__ import annotations

from counterfoil.model.dispatch import Entitled, Fenced, FenceEvidence, FenceVerdict, Order
from counterfoil.model.tokens import Next, Why


def compare(ours: int, *, stored: int) -> Order:
    """Return how our fence, or our attempt, stands to the stored one."""
    if ours == stored:
        return Order.EQUAL
    return Order.LOWER if ours < stored else Order.HIGHER


def check_fence(evidence: FenceEvidence) -> FenceVerdict:
    """Return whether the write may happen: only under the stored fence and for the stored attempt.

    A fence above the stored one is refused as well: the store has lost the claim that we made (a restored
    backup), so it may have lost outcomes too.
    """
    if evidence.fence is not Order.EQUAL:
        why = Why.FENCE if evidence.fence is Order.LOWER else Why.AHEAD
        return Fenced(evidence=evidence, why=why, next=Next.STOP)
    if evidence.attempt is not Order.EQUAL:
        return Fenced(evidence=evidence, why=Why.ATTEMPT, next=Next.STOP)
    return Entitled(evidence=evidence, why=Why.HELD, next=Next.CONTINUE)
