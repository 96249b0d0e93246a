"""A verdict cannot be mistaken for a truth value, and says why and what next."""

from __future__ import annotations

import json
import pickle
from typing import get_args

import msgspec
import pytest
from counterfoil.model import verdicts
from counterfoil.model.evidence import Asked, ResumeEvidence
from counterfoil.model.tokens import Next, VerdictToken, Why

EVIDENCE = ResumeEvidence(asked=Asked.CF1)
COMMON = {"evidence": EVIDENCE, "why": Why.EPOCH, "next": Next.RECONCILE}
OWN = {
    verdicts.Resumed: {"after": 4, "missed": 0},
    verdicts.Gap: {"first": 3, "last": 9, "request_ids": (1, "a")},
}
ALL = [*get_args(verdicts.ResumeJudgement), *get_args(verdicts.EventJudgement)]


def build(kind: type[verdicts.Verdict]) -> verdicts.Verdict:
    return kind(**COMMON, **OWN.get(kind, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ALL)
def test_bool_of_a_verdict_raises(kind: type[verdicts.Verdict]) -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(build(kind))


@pytest.mark.parametrize("kind", ALL)
def test_a_verdict_is_a_frozen_value_that_pickles(kind: type[verdicts.Verdict]) -> None:
    verdict = build(kind)
    assert pickle.loads(pickle.dumps(verdict)) == verdict == build(kind)
    assert hash(verdict) == hash(build(kind))
    with pytest.raises(AttributeError):
        verdict.why = Why.CLAIM  # type: ignore[misc]


def test_the_wire_names_the_servers_verdicts() -> None:
    on_the_wire = {kind.__struct_config__.tag for kind in get_args(verdicts.ResumeVerdict)}
    assert on_the_wire == {*map(str, VerdictToken), "not_resumable"}


def test_json_names_the_verdict() -> None:
    shown = json.loads(msgspec.json.encode(build(verdicts.Gap)))
    assert shown["type"] == "gap"
    assert shown["why"] == "epoch"
    assert shown["request_ids"] == [1, "a"]
