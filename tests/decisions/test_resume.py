"""Resumed only on positive evidence.

The whole table, compared with its specification, and the stories behind it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from counterfoil.decisions.resume import RULES, classify_resume, count_votes, rank
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
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.model.verdicts import (
    Forged,
    Gap,
    New,
    Pending,
    Reoriginated,
    Resumed,
    ResumeJudgement,
    Unverifiable,
)
from hypothesis import given
from hypothesis import strategies as st

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "resume"
CASES = [case for path in sorted(VECTORS.glob("*.json")) for case in json.loads(path.read_text())]

PLAIN_CLAIMS = [claim for claim in Claim if "-" not in claim]
CF1_FIRST = [
    First.NONE,
    First.NO_ID,
    First.OTHER_SCHEME,
    First.OTHER_STREAM,
    First.OTHER_EPOCH,
    First.SAME,
    First.DIVERGED,
    First.BELOW,
    First.NEXT,
    First.BEYOND,
]
OPAQUE_FIRST = [
    First.NONE,
    First.NO_ID,
    First.OTHER_SCHEME,
    First.KNOWN,
    First.KNOWN_PLAIN,
    First.KNOWN_DIFFERENT,
    First.UNKNOWN,
]
ORDERED_FIRST = [*OPAQUE_FIRST[:-1], First.BELOW, First.NEXT, First.BEYOND]
BEGIN_FIRST = [First.NONE, First.NO_ID, First.UNKNOWN]
FOREIGN_ECHO = [Echo.NONE, Echo.FOREIGN]
#: For each way of asking, the facts that can be seen together with it.
POSSIBLE: dict[Asked, tuple[list[Claim], list[Echo], list[First], list[Token], list[Window]]] = {
    Asked.FIRST: (PLAIN_CLAIMS, [Echo.NONE], BEGIN_FIRST, [Token.ABSENT], [Window.ABSENT]),
    Asked.ACCEPTED: (PLAIN_CLAIMS, [Echo.NONE], BEGIN_FIRST, [Token.ABSENT], [Window.ABSENT]),
    Asked.NO_CURSOR: (PLAIN_CLAIMS, [Echo.NONE], BEGIN_FIRST, [Token.ABSENT], [Window.ABSENT]),
    Asked.CF1: (list(Claim), list(Echo), CF1_FIRST, [Token.ABSENT], [Window.ABSENT]),
    Asked.OPAQUE: (PLAIN_CLAIMS, FOREIGN_ECHO, OPAQUE_FIRST, [Token.ABSENT], [Window.ABSENT]),
    Asked.DENSE: (PLAIN_CLAIMS, FOREIGN_ECHO, ORDERED_FIRST, [Token.ABSENT], [Window.ABSENT]),
    Asked.SPARSE: (PLAIN_CLAIMS, FOREIGN_ECHO, ORDERED_FIRST, list(Token), list(Window)),
}
REASON = Why.TRIMMED
#: What proves continuity; nothing else may.
PROOFS: dict[Why, Callable[[ResumeEvidence], bool]] = {
    Why.CLAIM: lambda e: e.claim is Claim.RESUMED_EQUAL,
    Why.ECHO: lambda e: e.asked is Asked.CF1 and e.echo is Echo.OURS,
    Why.NEXT_EVENT: lambda e: e.asked is Asked.CF1 and e.first is First.NEXT,
    Why.OVERLAP: lambda e: e.first is First.KNOWN,
    Why.WINDOW: lambda e: e.token is Token.SAME and e.window is Window.CONTAINS and e.first is not First.NONE,
}


def all_facts() -> Iterator[dict[str, Any]]:
    names = ("asked", "claim", "echo", "first", "token", "window", "progress", "session", "revision")
    for asked, fields in POSSIBLE.items():
        for values in itertools.product([asked], *fields, Progress, Session, Revision):
            facts = dict(zip(names, values, strict=True))
            nothing_read = facts["first"] is First.NONE and facts["echo"] is Echo.NONE
            if facts["progress"] is not Progress.OPEN or nothing_read:
                yield facts


def details_for(claim: Claim) -> ClaimDetails | None:
    word = claim.split("-")[0].replace("retry", "unverifiable")
    return None if claim is Claim.ABSENT else ClaimDetails(verdict=VerdictToken(word), why=REASON)


def test_whole_table_is_as_specified(table: Any) -> None:
    specification = table("resume/spec.toml")
    count = 0
    for facts in all_facts():
        verdict = classify_resume(ResumeEvidence(**facts, details=details_for(facts["claim"])))
        row = specification.first_match(facts)
        why = REASON if row["why"] == "from_claim" else row["why"]
        assert (type(verdict).__name__, verdict.why) == (row["verdict"], why), (facts, row["name"])
        count += 1
    assert specification.used == {row["name"] for row in specification.rows}
    assert count > 20_000


def test_every_rule_can_win() -> None:
    won = {rank(count_votes(ResumeEvidence(**facts))).rule for facts in all_facts()}
    assert won == set(RULES.values())


def test_resumed_is_given_only_on_positive_evidence() -> None:
    """Promise P3: take every proof away and nothing is resumed."""
    for facts in all_facts():
        evidence = ResumeEvidence(**facts)
        verdict = classify_resume(evidence)
        if isinstance(verdict, Resumed):
            assert PROOFS[verdict.why](evidence)
            assert verdict.evidence is evidence


def test_no_proof_outweighs_a_counted_refusal() -> None:
    refused = ("unverifiable", "gap", "reoriginated", "forged", "new", "retry")
    for facts in all_facts():
        if facts["claim"].startswith(refused):
            assert not isinstance(classify_resume(ResumeEvidence(**facts)), Resumed)


def test_silence_is_pending_however_long_it_lasts() -> None:
    """A 200, the same session and nothing else: no verdict, not even after `judge_within`."""
    for asked in (Asked.CF1, Asked.OPAQUE, Asked.DENSE, Asked.SPARSE):
        for progress in Progress:
            verdict = classify_resume(ResumeEvidence(asked=asked, progress=progress))
            assert isinstance(verdict, Pending)
            assert verdict.next is Next.CONTINUE


def test_facts_against_the_verdict_are_recorded_with_it() -> None:
    verdict = classify_resume(
        ResumeEvidence(asked=Asked.CF1, claim=Claim.RESUMED_EQUAL, echo=Echo.OURS, first=First.BEYOND)
    )
    assert isinstance(verdict, Gap)
    assert verdict.against == (Why.CLAIM, Why.ECHO)
    clean = classify_resume(ResumeEvidence(asked=Asked.CF1, claim=Claim.RESUMED_EQUAL, echo=Echo.OURS))
    assert clean.against == ()


def test_next_follows_the_claim_only_where_it_makes_the_verdict() -> None:
    still_comes = ClaimDetails(verdict=VerdictToken.GAP, next=Next.CONTINUE, first=3, last=9)
    gap = classify_resume(ResumeEvidence(asked=Asked.CF1, claim=Claim.GAP_OURS, details=still_comes))
    assert gap.next is Next.CONTINUE
    # The events speak of another epoch: what the claim would have allowed does not hold for that.
    other = classify_resume(
        ResumeEvidence(asked=Asked.CF1, claim=Claim.GAP_OURS, first=First.OTHER_EPOCH, details=still_comes)
    )
    assert isinstance(other, Reoriginated)
    assert other.next is Next.RECONCILE


def test_an_answer_that_still_comes_is_not_reported_lost() -> None:
    details = ClaimDetails(verdict=VerdictToken.GAP, next=Next.CONTINUE, first=3, last=9)
    evidence = ResumeEvidence(asked=Asked.CF1, claim=Claim.GAP_OURS, details=details, request_ids=(7,))
    kept = classify_resume(evidence)
    lost = classify_resume(
        msgspec.structs.replace(evidence, details=msgspec.structs.replace(details, next=Next.RECONCILE))
    )
    assert isinstance(kept, Gap)
    assert isinstance(lost, Gap)
    assert (kept.request_ids, lost.request_ids) == ((), (7,))


def test_resumed_says_how_much_was_missed_where_the_server_said_so() -> None:
    details = ClaimDetails(verdict=VerdictToken.RESUMED, after=4, last=9, next=Next.CONTINUE)
    verdict = classify_resume(
        ResumeEvidence(asked=Asked.CF1, claim=Claim.RESUMED_EQUAL, details=details, asked_sequence=4)
    )
    assert isinstance(verdict, Resumed)
    assert (verdict.after, verdict.missed) == (4, 5)
    by_event = classify_resume(ResumeEvidence(asked=Asked.CF1, first=First.NEXT, asked_sequence=4))
    assert isinstance(by_event, Resumed)
    assert (by_event.after, by_event.missed) == (4, None)


@pytest.mark.parametrize("executed", Executed)
def test_executed_travels_with_a_refusal(executed: Executed) -> None:
    for claim, word in (
        (Claim.GAP, "gap"),
        (Claim.REORIGINATED, "reoriginated"),
        (Claim.UNVERIFIABLE, "unverifiable"),
    ):
        details = ClaimDetails(verdict=VerdictToken(word), executed=executed)
        verdict = classify_resume(ResumeEvidence(asked=Asked.CF1, claim=claim, details=details))
        assert isinstance(verdict, Gap | Reoriginated | Unverifiable)
        assert verdict.executed is executed


@given(st.data())
def test_waiting_longer_never_turns_a_refusal_into_resumed(data: st.DataObject) -> None:
    asked = data.draw(st.sampled_from(list(Asked)))
    claims, echoes, firsts, tokens, windows = POSSIBLE[asked]
    evidence = ResumeEvidence(
        asked=asked,
        claim=data.draw(st.sampled_from(claims)),
        echo=data.draw(st.sampled_from(echoes)),
        first=data.draw(st.sampled_from(firsts)),
        token=data.draw(st.sampled_from(tokens)),
        window=data.draw(st.sampled_from(windows)),
        session=data.draw(st.sampled_from(Session)),
    )
    before = classify_resume(evidence)
    after = classify_resume(msgspec.structs.replace(evidence, progress=Progress.WAITED))
    if not isinstance(before, Pending):
        assert (type(after), after.why) == (type(before), before.why)
    else:
        assert not isinstance(after, Resumed)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_vector(case: dict[str, Any]) -> None:
    verdict = classify_resume(msgspec.convert(case["given"], ResumeEvidence))
    shown = json.loads(msgspec.json.encode(verdict))
    assert {key: shown[key] for key in case["expect"]} == case["expect"], case["why"]


def test_vectors_reach_every_verdict() -> None:
    reached = {case["expect"]["type"] for case in CASES}
    assert reached == {kind.__struct_config__.tag for kind in get_args(ResumeJudgement)}


def test_the_two_source_incidents_are_told_apart() -> None:
    """Card A: 4118 asked, 13 answered, another epoch.  Card B: the same epoch, the same position again."""
    hop = classify_resume(
        ResumeEvidence(asked=Asked.CF1, first=First.OTHER_EPOCH, asked_sequence=4118, first_sequence=13)
    )
    again = classify_resume(
        ResumeEvidence(asked=Asked.CF1, first=First.SAME, asked_sequence=4118, first_sequence=4118)
    )
    begun = classify_resume(ResumeEvidence(asked=Asked.FIRST))
    assert isinstance(hop, Reoriginated)
    assert isinstance(again, Forged)
    assert isinstance(begun, New)
