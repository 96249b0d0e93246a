"""Verdicts on effects are values without a truth value, and their unions are closed."""

from __future__ import annotations

from typing import get_args

import pytest
from counterfoil.model import dispatch
from counterfoil.model.tokens import HandlerKind, Next, Why

EVIDENCE = dispatch.DispatchEvidence(row=dispatch.Row.NONE, kind=HandlerKind.IDEMPOTENT)
ALL = {
    kind
    for union in (dispatch.DispatchVerdict, dispatch.RequestVerdict, dispatch.FenceVerdict)
    for kind in get_args(union)
}


@pytest.mark.parametrize("kind", ALL, ids=lambda k: k.__name__)
def test_bool_of_a_verdict_raises(kind: type) -> None:
    own = {"attempt": 1} if kind is dispatch.Dispatch else {}
    with pytest.raises(TypeError, match="no truth value"):
        bool(kind(evidence=EVIDENCE, why=Why.NO_ROW, next=Next.CONTINUE, **own))
