"""Makes the verdict of what the store decided; the decision itself is the core's.

It must read no storage.  The reader and the batch face of the store call it.
"""

from __future__ import annotations

from typing import assert_never

from counterfoil.model.evidence import StoreEvidence
from counterfoil.model.tokens import Next, VerdictToken, Why
from counterfoil.model.verdicts import Forged, Gap, New, Reoriginated, Resumed, ResumeVerdict, Unverifiable
from counterfoil.native import ResumeAnswer

#: Looked up instead of called: an enum's constructor costs as much as the verdict.
_WHY = {why.value: why for why in Why}
_NEXT = {next.value: next for next in Next}
_TOKENS = {token.value: token for token in VerdictToken}


def verdict_of(answer: ResumeAnswer) -> ResumeVerdict:
    """Return the verdict with its evidence."""
    row, verdict, why_token, next_token, asked, first, last, after, gap, request_ids = answer._facts()
    evidence = StoreEvidence(row=row, asked=asked, first=first, last=last)
    why, next = _WHY[why_token], _NEXT[next_token]
    token = _TOKENS[verdict]
    match token:
        case VerdictToken.RESUMED:
            missed = last - after if last is not None and after is not None else 0
            return Resumed(evidence=evidence, why=why, next=next, after=after, missed=missed)
        case VerdictToken.NEW:
            return New(evidence=evidence, why=why, next=next)
        case VerdictToken.GAP:
            lost = gap or (None, None)
            return Gap(
                evidence=evidence, why=why, next=next, first=lost[0], last=lost[1], request_ids=request_ids
            )
        case VerdictToken.REORIGINATED:
            return Reoriginated(evidence=evidence, why=why, next=next)
        case VerdictToken.FORGED:
            return Forged(evidence=evidence, why=why, next=next)
        case VerdictToken.UNVERIFIABLE:
            return Unverifiable(evidence=evidence, why=why, next=next)
        case _:
            assert_never(token)
