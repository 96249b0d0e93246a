"""Decide whether an identical call takes over an earlier one, waits for it, is told of it, or runs.

An answer that nobody got belongs to the next identical call; one that was handed over belongs to nobody else.
Design, section 8; decisions L3 to L10 and S9 have the schedule behind each rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from counterfoil.model.adoption import (
    Adopt,
    AdoptionEvidence,
    AdoptionVerdict,
    Caller,
    Delivery,
    Eligible,
    NewcomerEvidence,
    Patience,
    RunAnew,
    Tell,
    Wait,
    Work,
)
from counterfoil.model.tokens import Next, Why

_WHY_NOT = {
    Eligible.OFF: Why.UNRESUMABLE,
    Eligible.KEYED: Why.TOKEN,
    Eligible.READ_ONLY: Why.REPEATED,
}


def decide_adoption(evidence: AdoptionEvidence) -> AdoptionVerdict:
    """Judge one earlier call.

    `RunAnew.why` says why it is no reason to wait: `ended` (handed over), `cancelled`, `not-applied`,
    `unsent`, `held` (its client reads it), `idle` (its window has ended), or what makes the newcomer not
    eligible.
    """
    if evidence.eligible is not Eligible.YES:
        return _run(evidence, _WHY_NOT[evidence.eligible])
    match evidence.work:
        case Work.CANCELLED:
            return _run(evidence, Why.CANCELLED)
        case Work.NOT_APPLIED:
            return _run(evidence, Why.NOT_APPLIED)
        case Work.UNSENT:
            return _run(evidence, Why.UNSENT)
        case Work.INDETERMINATE:
            return _about_doubtful(evidence)
        case Work.RUNNING | Work.ANSWERED:
            return _about_answer(evidence)
        case _:
            assert_never(evidence.work)


def choose_adoption(judged: Iterable[AdoptionVerdict], *, eligible: Eligible) -> tuple[AdoptionVerdict, int]:
    """Return the verdict that counts among several earlier calls, and its place; -1 where none decides.

    Best first: adopt the oldest that can be adopted, wait for one that soon can be, be told, run.
    """
    found = list(judged)
    for kind in (Adopt, Wait, Tell):
        for place, verdict in enumerate(found):
            if isinstance(verdict, kind):
                return verdict, place
    for place, verdict in enumerate(found):
        if verdict.why is Why.ENDED:
            return verdict, place
    return RunAnew(evidence=NewcomerEvidence(eligible=eligible), why=Why.FIRST, next=Next.CONTINUE), -1


def _about_doubtful(evidence: AdoptionEvidence) -> AdoptionVerdict:
    # Told as long as the window lasts, also to those who come after somebody was told (L10).
    if evidence.caller is Caller.FORGOTTEN:
        return _run(evidence, Why.IDLE)
    return Tell(evidence=evidence, why=Why.ADOPTED, next=Next.RECONCILE)


def _about_answer(evidence: AdoptionEvidence) -> AdoptionVerdict:
    if evidence.delivery is Delivery.DONE:
        return _run(evidence, Why.ENDED)
    match evidence.caller:
        case Caller.ATTACHED:
            if evidence.patience is Patience.FRESH:  # L9: the re-issue may overtake the notice
                return Wait(evidence=evidence, why=Why.WAITING, next=Next.RETRY)
            return _run(evidence, Why.HELD)
        case Caller.RETURNING:
            return Wait(evidence=evidence, why=Why.RETRY, next=Next.RETRY)
        case Caller.GONE:
            return Adopt(evidence=evidence, why=Why.ADOPTED, next=Next.CONTINUE)
        case Caller.FORGOTTEN:
            return _run(evidence, Why.IDLE)
        case _:
            assert_never(evidence.caller)


def _run(evidence: AdoptionEvidence, why: Why) -> RunAnew:
    return RunAnew(evidence=evidence, why=why, next=Next.CONTINUE)
