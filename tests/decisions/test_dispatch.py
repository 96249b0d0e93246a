"""A handler runs only where that cannot double an effect.

Every cell of the table is compared with its specification.
"""

from __future__ import annotations

from typing import Any

import pytest
from counterfoil.decisions.dispatch import decide_dispatch
from counterfoil.model.dispatch import Attempts, Dispatch, DispatchEvidence, Incarnation, InFlight, Park, Row
from counterfoil.model.tokens import HandlerKind

FIELDS = {"row": Row, "kind": HandlerKind, "incarnation": Incarnation, "attempts": Attempts}


def test_whole_table_is_as_specified(table: Any, every: Any) -> None:
    specification = table("dispatch/event.toml")
    for facts in every(**FIELDS):
        evidence = DispatchEvidence(**facts, attempt=2)
        verdict = decide_dispatch(evidence)
        row = specification.first_match(facts)
        assert (type(verdict).__name__, verdict.why) == (row["verdict"], row["why"]), (facts, row["name"])
        assert verdict.evidence is evidence
    assert specification.used == {row["name"] for row in specification.rows}


def test_no_at_most_once_handler_runs_after_a_doubt(every: Any) -> None:
    for facts in every(**FIELDS):
        verdict = decide_dispatch(DispatchEvidence(**facts))
        may_have_run = facts["row"] in (Row.INTENDED, Row.COMPLETED, Row.INDETERMINATE, Row.TOMBSTONE)
        if facts["kind"] is HandlerKind.AT_MOST_ONCE and may_have_run:
            assert not isinstance(verdict, Dispatch)


@pytest.mark.parametrize("kind", HandlerKind)
def test_copy_of_a_living_run_is_suppressed_not_parked(kind: HandlerKind) -> None:
    """Decision L1: a slow handler whose event comes again after a cut."""
    verdict = decide_dispatch(DispatchEvidence(row=Row.INTENDED, kind=kind, incarnation=Incarnation.LIVING))
    assert isinstance(verdict, InFlight)


def test_transactional_handler_that_kills_the_process_is_not_tried_for_ever() -> None:
    """Decision L22: the attempt was committed before the run, so it counts."""
    found = {"row": Row.INTENDED, "kind": HandlerKind.TRANSACTIONAL, "incarnation": Incarnation.EARLIER}
    again = decide_dispatch(DispatchEvidence(**found, attempt=2))
    assert isinstance(again, Dispatch)
    assert again.attempt == 3
    assert not isinstance(decide_dispatch(DispatchEvidence(**found, attempts=Attempts.EXHAUSTED)), Dispatch)


def test_doubt_about_at_most_once_is_reported_and_never_run() -> None:
    evidence = DispatchEvidence(
        row=Row.INTENDED, kind=HandlerKind.AT_MOST_ONCE, incarnation=Incarnation.EARLIER
    )
    assert isinstance(decide_dispatch(evidence), Park)
