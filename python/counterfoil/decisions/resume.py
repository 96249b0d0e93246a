"""Judge whether an answer continues our cursor: all missed events, in order, or none.

Each fact votes for the rules that it meets, the strongest rule wins, and the others are recorded against
it; negative rules stand before positive ones.  Absence of a discontinuity signal is not evidence of
continuity: a stream `1 2 3` that was lost and begun again as `1 2 3 4` continues nothing, although 4
follows 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from counterfoil.model.evidence import (
    Asked,
    Claim,
    ClaimDetails,
    Echo,
    First,
    Progress,
    ResumeEvidence,
    Revision,
    Session,
    Token,
    Window,
)
from counterfoil.model.tokens import Next, VerdictToken, Why
from counterfoil.model.verdicts import (
    Forged,
    Gap,
    New,
    NotResumable,
    Pending,
    Reoriginated,
    Resumed,
    ResumeJudgement,
    Unverifiable,
)


class Rule(NamedTuple):
    """One line of the table: what it concludes, and why (None: the reason that the claim gives)."""

    verdict: type[ResumeJudgement]
    why: Why | None


#: First match wins.
RULES: Mapping[str, Rule] = {
    "not-resumable": Rule(NotResumable, Why.REVISION),
    "asked-to-retry": Rule(Pending, Why.RETRY),
    "first-line-missing": Rule(Pending, Why.WAITING),
    # Card B: not our cursor, or not monotonic.
    "forged-claim": Rule(Forged, None),
    "below-cursor": Rule(Forged, Why.ORDER),
    "cursor-repeated": Rule(Forged, Why.REPEATED),
    # Card A: another history.
    "reoriginated-claim": Rule(Reoriginated, None),
    "reset": Rule(Reoriginated, Why.RESET),
    "session-replaced": Rule(Reoriginated, Why.SESSION),
    "other-epoch": Rule(Reoriginated, Why.EPOCH),
    "other-stream": Rule(Reoriginated, Why.STREAM),
    "diverged": Rule(Reoriginated, Why.DIVERGED),
    "overlap-differs": Rule(Reoriginated, Why.OVERLAP),
    "other-token": Rule(Reoriginated, Why.TOKEN),
    "not-above-cursor": Rule(Reoriginated, Why.ORDER),
    "gap-claim": Rule(Gap, None),
    "jump": Rule(Gap, Why.JUMP),
    # A proxy may replay an old refusal, so one about another epoch waits for the first event.
    "refusal-of-another-epoch": Rule(Pending, Why.WAITING),
    "unverifiable-claim": Rule(Unverifiable, None),
    "begins": Rule(New, Why.FIRST),
    "begins-as-wanted": Rule(New, Why.WANTED),
    # Positive evidence.
    "claim-equal": Rule(Resumed, Why.CLAIM),
    "echo": Rule(Resumed, Why.ECHO),
    "next-event": Rule(Resumed, Why.NEXT_EVENT),
    "overlap": Rule(Resumed, Why.OVERLAP),
    "window": Rule(Resumed, Why.WINDOW),
    # Neither.
    "no-cursor": Rule(Unverifiable, Why.NO_CURSOR),
    "no-ids": Rule(Unverifiable, Why.NO_IDS),
    "other-scheme": Rule(Unverifiable, Why.SCHEME),
    "no-overlap": Rule(Unverifiable, Why.NO_OVERLAP),
    "no-evidence": Rule(Pending, Why.WAITING),
}
_BIT = {name: 1 << place for place, name in enumerate(RULES)}
_IN_ORDER = tuple(RULES.values())


def _votes(*names: str) -> int:
    return sum(_BIT[name] for name in names)


_NONE = 0
_REVISION = {Revision.RESUMABLE: _NONE, Revision.NOT_RESUMABLE: _votes("not-resumable")}
_SESSION = {Session.SAME: _NONE, Session.REPLACED: _votes("session-replaced")}
_TOKEN = {Token.ABSENT: _NONE, Token.SAME: _NONE, Token.OTHER: _votes("other-token")}
_ECHO = {
    Echo.NONE: _NONE,
    Echo.OURS: _votes("echo"),
    Echo.OTHER_POSITION: _NONE,
    Echo.OTHER_EPOCH: _votes("other-epoch"),
    Echo.FOREIGN: _NONE,
}

_CLAIM_WITH_CURSOR = {
    Claim.ABSENT: _NONE,
    Claim.RESUMED_EQUAL: _votes("claim-equal"),
    Claim.RESUMED: _NONE,  # a positive claim without epoch is nothing
    Claim.RESUMED_OURS: _NONE,
    Claim.RESUMED_OTHER: _votes("other-epoch"),
    Claim.RESUMED_DIVERGED: _votes("diverged"),
    Claim.NEW: _votes("reset"),
    Claim.NEW_OURS: _votes("reset"),
    Claim.NEW_OTHER: _votes("reset", "other-epoch"),
    Claim.RETRY: _votes("asked-to-retry"),
    Claim.UNVERIFIABLE: _votes("unverifiable-claim"),
    Claim.UNVERIFIABLE_OURS: _votes("unverifiable-claim"),
    Claim.UNVERIFIABLE_OTHER: _votes("unverifiable-claim", "other-epoch"),
    Claim.GAP: _votes("gap-claim"),
    Claim.GAP_OURS: _votes("gap-claim"),
    Claim.GAP_OTHER: _votes("gap-claim", "other-epoch"),
    Claim.REORIGINATED: _votes("reoriginated-claim"),
    Claim.REORIGINATED_OURS: _votes("reoriginated-claim"),
    Claim.REORIGINATED_OTHER: _votes("reoriginated-claim", "other-epoch"),
    Claim.FORGED: _votes("forged-claim"),
    Claim.FORGED_OURS: _votes("forged-claim"),
    Claim.FORGED_OTHER: _votes("forged-claim", "other-epoch"),
}
#: Without a cursor there is nothing to reset, and no epoch to compare with.
_CLAIM_BEGINS = {
    claim: votes & ~_votes("reset", "other-epoch", "diverged", "claim-equal")
    for claim, votes in _CLAIM_WITH_CURSOR.items()
}
#: `new` in answer to no cursor: never written to a connection, so nothing can have been missed.
_CLAIM_NO_CURSOR = _CLAIM_BEGINS | dict.fromkeys(
    (Claim.NEW, Claim.NEW_OURS, Claim.NEW_OTHER), _votes("begins")
)
#: Those that an old answer, kept by a proxy, would show.
_REFUSALS_OF_ANOTHER_EPOCH = frozenset(
    {Claim.NEW_OTHER, Claim.UNVERIFIABLE_OTHER, Claim.GAP_OTHER, Claim.REORIGINATED_OTHER, Claim.FORGED_OTHER}
)

_FIRST_CF1 = dict.fromkeys(First, _NONE) | {
    First.NO_ID: _votes("no-ids"),
    First.OTHER_SCHEME: _votes("other-scheme"),
    First.OTHER_STREAM: _votes("other-stream"),
    First.OTHER_EPOCH: _votes("other-epoch"),
    First.BELOW: _votes("below-cursor"),
    First.SAME: _votes("cursor-repeated"),
    First.DIVERGED: _votes("diverged"),
    First.NEXT: _votes("next-event"),
    First.BEYOND: _votes("jump"),
}
_FIRST_OPAQUE = dict.fromkeys(First, _NONE) | {
    First.NO_ID: _votes("no-ids"),
    First.OTHER_SCHEME: _votes("other-scheme"),
    First.KNOWN: _votes("overlap"),
    First.KNOWN_PLAIN: _votes("no-overlap"),
    First.KNOWN_DIFFERENT: _votes("overlap-differs"),
    First.UNKNOWN: _votes("no-overlap"),
    First.NEXT: _votes("no-overlap"),  # equal numbers are no evidence
    First.BEYOND: _votes("no-overlap"),
    First.BELOW: _votes("not-above-cursor"),
}
_FIRST_DENSE = _FIRST_OPAQUE | {First.BEYOND: _votes("jump")}
_FIRST_BEGINS = dict.fromkeys(First, _NONE)

#: For each way of asking: what votes come from the claim, from the first event, and from asking so at all.
_BY_ASKED: Mapping[Asked, tuple[Mapping[Claim, int], Mapping[First, int], int]] = {
    Asked.FIRST: (_CLAIM_BEGINS, _FIRST_BEGINS, _votes("begins")),
    Asked.ACCEPTED: (_CLAIM_BEGINS, _FIRST_BEGINS, _votes("begins-as-wanted")),
    Asked.NO_CURSOR: (_CLAIM_NO_CURSOR, _FIRST_BEGINS, _votes("no-cursor")),
    Asked.CF1: (_CLAIM_WITH_CURSOR, _FIRST_CF1, _NONE),
    Asked.OPAQUE: (_CLAIM_WITH_CURSOR, _FIRST_OPAQUE, _NONE),
    Asked.DENSE: (_CLAIM_WITH_CURSOR, _FIRST_DENSE, _NONE),
    Asked.SPARSE: (_CLAIM_WITH_CURSOR, _FIRST_OPAQUE, _NONE),
}
_FIRST_LINE_MISSING = _votes("first-line-missing")
_WAIT = _votes("refusal-of-another-epoch")
_IN_WINDOW = _votes("window")
_NO_EVIDENCE = _votes("no-evidence")
_ABOVE = frozenset({First.NEXT, First.BEYOND})
# Looking a member up costs more than all the votes together, so those asked for every time have names.
_OPEN, _READ, _NOTHING_YET = Progress.OPEN, Progress.READ, First.NONE
_CONTAINS, _SAME_TOKEN = Window.CONTAINS, Token.SAME


def count_votes(evidence: ResumeEvidence) -> int:
    """Return one bit for each rule that the facts meet, the strongest rule lowest."""
    by_claim, by_first, votes = _BY_ASKED[evidence.asked]
    claim, first, progress = evidence.claim, evidence.first, evidence.progress
    if progress is _OPEN:
        votes |= _FIRST_LINE_MISSING
    if first is _NOTHING_YET and progress is _READ and claim in _REFUSALS_OF_ANOTHER_EPOCH:
        votes |= _WAIT
    else:
        votes |= by_claim[claim]
    if evidence.window is _CONTAINS and evidence.token is _SAME_TOKEN and first in _ABOVE:
        votes |= _IN_WINDOW
    return (
        votes
        | by_first[first]
        | _ECHO[evidence.echo]
        | _TOKEN[evidence.token]
        | _SESSION[evidence.session]
        | _REVISION[evidence.revision]
        | _NO_EVIDENCE
    )


class Ranking(NamedTuple):
    """The rule that wins, and the reasons of the others that conclude something else."""

    rule: Rule
    against: tuple[Why, ...]


@lru_cache(maxsize=1024)
def rank(votes: int) -> Ranking:
    """Return the strongest rule among the votes, and what speaks against it."""
    met = [rule for place, rule in enumerate(_IN_ORDER) if votes >> place & 1]
    winner = met[0]
    others = (rule for rule in met[1:] if rule.verdict not in (winner.verdict, Pending))
    return Ranking(winner, tuple(dict.fromkeys(rule.why or Why.SIGNALLED for rule in others)))


def classify_resume(evidence: ResumeEvidence) -> ResumeJudgement:
    """Return the verdict on an answer, judged against the position asked for in that request.

    `Pending` means that nothing is decided: with `next=continue` wait for more of the answer, with
    `next=retry` ask again with the same cursor.  The same evidence always gives the same verdict.
    """
    rule, against = rank(count_votes(evidence))
    return _BUILDERS[rule.verdict](evidence, rule, against)


_CLAIM_EQUAL = RULES["claim-equal"]
_Builder = Callable[[ResumeEvidence, Rule, tuple[Why, ...]], ResumeJudgement]


def _why(evidence: ResumeEvidence, rule: Rule) -> Why:
    if rule.why is not None:
        return rule.why
    return evidence.details.why if evidence.details is not None else Why.SIGNALLED


class Following(NamedTuple):
    """What to do next: by default, and what else the claim behind the verdict may ask for."""

    token: VerdictToken
    default: Next
    allowed: Next

    def choose(self, details: ClaimDetails | None) -> Next:
        """Return what the claim asks for if it made the verdict and may ask for that, else the default."""
        if details is not None and details.next is self.allowed and details.verdict is self.token:
            return self.allowed
        return self.default


_AFTER_RESUMED = Following(VerdictToken.RESUMED, Next.CONTINUE, Next.DONE)
_AFTER_GAP = Following(VerdictToken.GAP, Next.RECONCILE, Next.CONTINUE)
_AFTER_REORIGINATED = Following(VerdictToken.REORIGINATED, Next.RECONCILE, Next.CONTINUE)
_AFTER_UNVERIFIABLE = Following(VerdictToken.UNVERIFIABLE, Next.RECONCILE, Next.STOP)


def _build_new(evidence: ResumeEvidence, rule: Rule, against: tuple[Why, ...]) -> New:
    return New(evidence=evidence, why=_why(evidence, rule), next=Next.CONTINUE, against=against)


def _build_resumed(evidence: ResumeEvidence, rule: Rule, against: tuple[Why, ...]) -> Resumed:
    after, missed, details = evidence.asked_sequence, None, evidence.details
    if after is not None and details is not None and details.last is not None and rule is _CLAIM_EQUAL:
        missed = max(0, details.last - after)
    following = _AFTER_RESUMED.choose(evidence.details)
    why = _why(evidence, rule)
    return Resumed(evidence=evidence, why=why, next=following, against=against, after=after, missed=missed)


def _build_gap(evidence: ResumeEvidence, rule: Rule, against: tuple[Why, ...]) -> Gap:
    details = evidence.details
    if rule.why is None:
        first, last = (details.first, details.last) if details is not None else (None, None)
    else:
        asked, found = evidence.asked_sequence, evidence.first_sequence
        first = None if asked is None else asked + 1
        last = None if found is None else found - 1
    following = _AFTER_GAP.choose(evidence.details)
    return Gap(
        evidence=evidence,
        why=_why(evidence, rule),
        next=following,
        against=against,
        first=first,
        last=last,
        request_ids=evidence.request_ids if following is Next.RECONCILE else (),
        executed=details.executed if details is not None else None,
    )


def _build_reoriginated(evidence: ResumeEvidence, rule: Rule, against: tuple[Why, ...]) -> Reoriginated:
    return Reoriginated(
        evidence=evidence,
        why=_why(evidence, rule),
        next=_AFTER_REORIGINATED.choose(evidence.details),
        against=against,
        executed=evidence.details.executed if evidence.details is not None else None,
    )


def _build_forged(evidence: ResumeEvidence, rule: Rule, against: tuple[Why, ...]) -> Forged:
    return Forged(evidence=evidence, why=_why(evidence, rule), next=Next.STOP, against=against)


def _build_unverifiable(evidence: ResumeEvidence, rule: Rule, against: tuple[Why, ...]) -> Unverifiable:
    return Unverifiable(
        evidence=evidence,
        why=_why(evidence, rule),
        next=_AFTER_UNVERIFIABLE.choose(evidence.details),
        against=against,
        executed=evidence.details.executed if evidence.details is not None else None,
    )


def _build_not_resumable(evidence: ResumeEvidence, rule: Rule, against: tuple[Why, ...]) -> NotResumable:
    return NotResumable(evidence=evidence, why=_why(evidence, rule), next=Next.RECONCILE, against=against)


def _build_pending(evidence: ResumeEvidence, rule: Rule, against: tuple[Why, ...]) -> Pending:
    following = Next.RETRY if rule.why is Why.RETRY else Next.CONTINUE
    return Pending(evidence=evidence, why=_why(evidence, rule), next=following, against=against)


_BUILDERS: Mapping[type[ResumeJudgement], _Builder] = {
    New: _build_new,
    Resumed: _build_resumed,
    Gap: _build_gap,
    Reoriginated: _build_reoriginated,
    Forged: _build_forged,
    Unverifiable: _build_unverifiable,
    NotResumable: _build_not_resumable,
    Pending: _build_pending,
}
