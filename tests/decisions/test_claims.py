"""Two claims may disagree.

The worse counts, unless events with data show that it is not about this stream.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
from counterfoil.decisions.claims import Claimed, count_claims, name_claim
from counterfoil.model.evidence import Claim, ClaimDetails
from counterfoil.model.tokens import Next, VerdictToken

OUR_EPOCH, OTHER_EPOCH, THIRD_EPOCH = "ours", "other", "third"
#: Design, section 6: from the worst to the most harmless.
WORST_FIRST = ["forged", "reoriginated", "gap", "unverifiable", "new", "resumed"]


class Position(NamedTuple):
    epoch: str = OUR_EPOCH
    sequence: int = 4118
    digest: str = "d"


def claimed(
    verdict: str,
    epoch: str | None = None,
    *,
    after: int | None = 4118,
    digest: str | None = "d",
    following: Next | None = None,
) -> Claimed:
    return Claimed(ClaimDetails(verdict=VerdictToken(verdict), after=after, next=following), epoch, digest)


@pytest.mark.parametrize("verdict", list(VerdictToken))
def test_a_claim_is_named_by_its_verdict_and_epoch(verdict: VerdictToken) -> None:
    assert name_claim(claimed(verdict), Position()) == verdict.value
    assert name_claim(claimed(verdict, OTHER_EPOCH), Position()) == f"{verdict}-other"
    ours = name_claim(claimed(verdict, OUR_EPOCH, after=4117), Position())
    assert ours == f"{verdict}-ours"
    # Without a cursor of ours there is no epoch to compare with.
    assert name_claim(claimed(verdict, OTHER_EPOCH), None) == verdict.value


@pytest.mark.parametrize(
    ("after", "digest", "name"),
    [
        (4118, "d", Claim.RESUMED_EQUAL),
        (4117, "d", Claim.RESUMED_OURS),
        (4118, "x", Claim.RESUMED_DIVERGED),
        (4118, None, Claim.RESUMED_OURS),
        (None, "d", Claim.RESUMED_OURS),
    ],
)
def test_resumed_is_equal_only_with_epoch_position_and_digest(
    after: int | None, digest: str | None, name: Claim
) -> None:
    assert name_claim(claimed("resumed", OUR_EPOCH, after=after, digest=digest), Position()) is name


def test_worse_claim_counts_in_either_place() -> None:
    for worse, better in itertools.combinations(WORST_FIRST, 2):
        for epochs in itertools.product([None, OUR_EPOCH, OTHER_EPOCH], repeat=2):
            pair = [claimed(worse, epochs[0]), claimed(better, epochs[1])]
            for claims in (pair, pair[::-1]):
                counted = count_claims(claims, Position(), event_epoch=None)
                assert counted.claim.split("-")[0] == worse
                assert counted.details == pair[0].details


def test_all_pairs_reduce_to_one_of_them_or_to_nothing() -> None:
    """Exhaustive over two claims, their epochs, and the epoch of the events."""
    epochs = [None, OUR_EPOCH, OTHER_EPOCH, THIRD_EPOCH]
    single = [
        claimed(verdict, epoch, following=following)
        for verdict in WORST_FIRST
        for epoch in epochs
        for following in (None, Next.RETRY)
    ]
    for pair in itertools.product(single, repeat=2):
        for event_epoch in epochs:
            counted = count_claims(pair, Position(), event_epoch=event_epoch)
            standing = [
                c
                for c in pair
                if c.epoch is None
                or event_epoch is None
                or c.epoch == event_epoch
                or name_claim(c, Position()) is Claim.RETRY
            ]
            names = [name_claim(c, Position()) for c in standing]
            order = list(Claim)
            assert counted.claim == max(names, key=order.index, default=Claim.ABSENT)
            assert len(counted.discounted) == 2 - len(standing)


def test_events_of_our_epoch_discredit_an_old_refusal() -> None:
    old = claimed("reoriginated", OTHER_EPOCH)
    counted = count_claims([old], Position(), event_epoch=OUR_EPOCH)
    assert counted.claim is Claim.ABSENT
    assert counted.discounted == (Claim.REORIGINATED_OTHER,)


def test_refusal_without_epoch_always_counts() -> None:
    for verdict in ("forged", "unverifiable"):
        assert count_claims([claimed(verdict)], Position(), event_epoch=OUR_EPOCH).claim == verdict


def test_retry_takes_back_no_refusal_that_is_final() -> None:
    assert name_claim(claimed("unverifiable", following=Next.RETRY), Position()) is Claim.RETRY
    for verdict in ("gap", "reoriginated", "forged"):
        assert name_claim(claimed(verdict, following=Next.RETRY), Position()) == verdict


def test_no_claim_is_absent() -> None:
    assert count_claims([], Position(), event_epoch=None) == (Claim.ABSENT, None, ())
