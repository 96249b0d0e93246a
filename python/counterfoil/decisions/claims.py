"""Reduce what servers claim to one fact: which claims count, and which of them is the worst.

A claim is a header or a comment; both may be there, a proxy may have kept an old one, and events with data
show whose epoch is really in force.  It never looks at the stream itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from counterfoil.model.evidence import Claim, ClaimDetails
from counterfoil.model.tokens import Next, VerdictToken


class CursorFields(Protocol):
    """The parts of a `cf1` cursor that a claim is compared with."""

    @property
    def epoch(self) -> str: ...

    @property
    def sequence(self) -> int: ...

    @property
    def digest(self) -> str: ...


class Claimed(NamedTuple):
    """One claim as it was made; `epoch` and `digest` are None where it names none."""

    details: ClaimDetails
    epoch: str | None = None
    digest: str | None = None


class Counted(NamedTuple):
    """The worst claim that counts, its details, and the claims that do not count."""

    claim: Claim
    details: ClaimDetails | None
    discounted: tuple[Claim, ...]


_IN_ORDER = {claim: place for place, claim in enumerate(Claim)}
_NAMES = {
    VerdictToken.RESUMED: (Claim.RESUMED, Claim.RESUMED_OURS, Claim.RESUMED_OTHER),
    VerdictToken.NEW: (Claim.NEW, Claim.NEW_OURS, Claim.NEW_OTHER),
    VerdictToken.UNVERIFIABLE: (Claim.UNVERIFIABLE, Claim.UNVERIFIABLE_OURS, Claim.UNVERIFIABLE_OTHER),
    VerdictToken.GAP: (Claim.GAP, Claim.GAP_OURS, Claim.GAP_OTHER),
    VerdictToken.REORIGINATED: (Claim.REORIGINATED, Claim.REORIGINATED_OURS, Claim.REORIGINATED_OTHER),
    VerdictToken.FORGED: (Claim.FORGED, Claim.FORGED_OURS, Claim.FORGED_OTHER),
}
#: What a server cannot take back by asking to be asked again.
_FINAL = frozenset({VerdictToken.GAP, VerdictToken.REORIGINATED, VerdictToken.FORGED})


def name_claim(claimed: Claimed, cursor: CursorFields | None) -> Claim:
    """Return what a claim says, relative to our cursor; `cursor` is None for a foreign one, or for none."""
    verdict = claimed.details.verdict
    if claimed.details.next is Next.RETRY and verdict not in _FINAL:
        return Claim.RETRY
    plain, ours, other = _NAMES[verdict]
    if cursor is None or claimed.epoch is None:
        return plain
    if claimed.epoch != cursor.epoch:
        return other
    is_placed = claimed.details.after == cursor.sequence and claimed.digest is not None
    if verdict is not VerdictToken.RESUMED or not is_placed:
        return ours
    return Claim.RESUMED_EQUAL if claimed.digest == cursor.digest else Claim.RESUMED_DIVERGED


def count_claims(
    claims: Sequence[Claimed], cursor: CursorFields | None, *, event_epoch: str | None
) -> Counted:
    """Return the worst claim that counts.

    `event_epoch` is the epoch of the events *with data* seen so far: it discredits a claim that names
    another one. An echo only repeats our question, so its epoch must not be passed.  A claim that names no
    epoch always counts.
    """
    worst: tuple[Claim, ClaimDetails | None] = (Claim.ABSENT, None)
    discounted = []
    for claimed in claims:
        claim = name_claim(claimed, cursor)
        names_another = None not in (claimed.epoch, event_epoch) and claimed.epoch != event_epoch
        if names_another and claim is not Claim.RETRY:
            discounted.append(claim)
        elif _IN_ORDER[claim] > _IN_ORDER[worst[0]]:
            worst = (claim, claimed.details)
    return Counted(*worst, tuple(discounted))
