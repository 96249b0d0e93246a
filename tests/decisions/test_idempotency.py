"""A key stands for one effect; every cell of the table is compared with its specification."""

from __future__ import annotations

from typing import Any

from counterfoil.decisions.idempotency import match_request
from counterfoil.model.dispatch import (
    Dispatch,
    Honours,
    Incarnation,
    KeyConflict,
    Match,
    RequestEvidence,
    Row,
)

FIELDS = {
    "row": Row,
    "fingerprint": Match,
    "input_round": Match,
    "incarnation": Incarnation,
    "honours": Honours,
}


def test_whole_table_is_as_specified(table: Any, every: Any) -> None:
    specification = table("dispatch/request.toml")
    for facts in every(**FIELDS):
        verdict = match_request(RequestEvidence(**facts))
        row = specification.first_match(facts)
        assert (type(verdict).__name__, verdict.why) == (row["verdict"], row["why"]), (facts, row["name"])
    assert specification.used == {row["name"] for row in specification.rows}


def test_not_applied_frees_the_key_for_the_next_attempt() -> None:
    """Decision L2: connect refused under `order-17`, then the same call again."""
    verdict = match_request(RequestEvidence(row=Row.NOT_APPLIED, attempt=1))
    assert isinstance(verdict, Dispatch)
    assert verdict.attempt == 2


def test_other_arguments_under_a_used_key_never_run(every: Any) -> None:
    """Decision L8."""
    for facts in every(**FIELDS):
        if facts["row"] is not Row.NONE and facts["fingerprint"] is Match.DIFFERENT:
            assert isinstance(match_request(RequestEvidence(**facts)), KeyConflict)


def test_lost_call_is_sent_again_only_to_a_peer_that_honours_keys(every: Any) -> None:
    for facts in every(**FIELDS):
        verdict = match_request(RequestEvidence(**facts))
        if facts["row"] is Row.INTENDED and facts["honours"] is Honours.NOTHING:
            assert not isinstance(verdict, Dispatch)
