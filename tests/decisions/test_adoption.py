"""Who takes over whose answer; every cell of the table is compared with its specification."""

from __future__ import annotations

from itertools import product
from typing import Any

from counterfoil.decisions.adoption import choose_adoption, decide_adoption
from counterfoil.model.adoption import (
    Adopt,
    AdoptionEvidence,
    AdoptionVerdict,
    Caller,
    Delivery,
    Eligible,
    Patience,
    RunAnew,
    Tell,
    Wait,
    Work,
)

FIELDS = {
    "eligible": Eligible,
    "patience": Patience,
    "work": Work,
    "delivery": Delivery,
    "caller": Caller,
}


def judged(**facts: Any) -> AdoptionVerdict:
    plain = {
        "eligible": Eligible.YES,
        "patience": Patience.SETTLED,
        "work": Work.RUNNING,
        "delivery": Delivery.NONE,
        "caller": Caller.GONE,
    }
    return decide_adoption(AdoptionEvidence(**{**plain, **facts}))


def test_whole_table_is_as_specified(table: Any, every: Any) -> None:
    specification = table("dispatch/adoption.toml")
    for facts in every(**FIELDS):
        verdict = decide_adoption(AdoptionEvidence(**facts))
        row = specification.first_match(facts)
        assert (type(verdict).__name__, verdict.why) == (row["verdict"], row["why"]), (facts, row["name"])
    assert specification.used == {row["name"] for row in specification.rows}


def test_what_is_adopted_ran_was_not_handed_over_and_has_nobody_reading_it(every: Any) -> None:
    for facts in every(**FIELDS):
        if isinstance(decide_adoption(AdoptionEvidence(**facts)), Adopt):
            assert facts["work"] in (Work.RUNNING, Work.ANSWERED)
            assert (facts["delivery"], facts["caller"]) == (Delivery.NONE, Caller.GONE)
            assert facts["eligible"] is Eligible.YES


def test_nothing_waits_for_a_call_that_cannot_become_adoptable(every: Any) -> None:
    for facts in every(**FIELDS):
        if isinstance(decide_adoption(AdoptionEvidence(**facts)), Wait):
            gone = decide_adoption(AdoptionEvidence(**{**facts, "caller": Caller.GONE}))
            assert isinstance(gone, Adopt)


def test_no_wait_is_without_end(every: Any) -> None:
    """P9: one who has settled waits only for a client that will be gone in the end."""
    for facts in every(**FIELDS):
        facts["patience"] = Patience.SETTLED
        if isinstance(decide_adoption(AdoptionEvidence(**facts)), Wait):
            assert facts["caller"] is Caller.RETURNING


def test_among_several_the_best_counts_and_the_oldest_of_equals() -> None:
    kinds: list[AdoptionVerdict] = [
        judged(),
        judged(caller=Caller.RETURNING),
        judged(work=Work.INDETERMINATE),
        judged(delivery=Delivery.DONE),
        judged(work=Work.UNSENT),
    ]
    ranks = {id(verdict): rank for rank, verdict in enumerate(kinds)}
    for several in product(kinds, repeat=3):
        verdict, place = choose_adoption(several, eligible=Eligible.YES)
        best = min(several, key=lambda each: ranks[id(each)])
        if ranks[id(best)] == 4:
            assert (place, verdict.why) == (-1, "first")
        else:
            assert verdict is best
            assert place == [id(each) for each in several].index(id(best))


def test_alone_it_runs() -> None:
    verdict, place = choose_adoption((), eligible=Eligible.YES)
    assert isinstance(verdict, RunAnew)
    assert place == -1


def test_an_indeterminate_call_is_told_again_and_again() -> None:
    """Decision L10: told once, the third try would run."""
    for delivery, caller in product(Delivery, (Caller.ATTACHED, Caller.RETURNING, Caller.GONE)):
        assert isinstance(judged(work=Work.INDETERMINATE, delivery=delivery, caller=caller), Tell)
