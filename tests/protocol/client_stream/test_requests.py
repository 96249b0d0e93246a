"""Each request ends in exactly one of answer and outcome."""

from __future__ import annotations

import pytest
from counterfoil.model.outcomes import Outcome
from counterfoil.model.tokens import Executed, OutcomeToken, Why
from counterfoil.protocol.client_stream.commands import Answer, Settle
from counterfoil.protocol.client_stream.requests import Requests, outcome_without_answer
from counterfoil.protocol.inband_error import CODE, DATA_KEY


def test_answered_request_is_settled_no_more() -> None:
    requests = Requests([1, "1", 2])
    assert isinstance(requests.answer(1, b"{}", None, trusts_inband_errors=True), Answer)
    settled = requests.settle_all(Outcome(token=OutcomeToken.INDETERMINATE, why=Why.BUDGET))
    assert [each.request_id for each in settled] == ["1", 2]
    assert requests.ids == ()
    assert requests.settle_all(Outcome(token=OutcomeToken.INDETERMINATE)) == []


def test_second_answer_finds_nobody() -> None:
    requests = Requests([7])
    assert requests.among([7, "7", 8]) == (7,)
    requests.answer(7, b"{}", None, trusts_inband_errors=False)
    assert requests.among([7]) == ()


@pytest.mark.parametrize("executed", [*Executed, None])
def test_only_executed_no_is_certain(executed: Executed | None) -> None:
    outcome = outcome_without_answer(Why.EPOCH, executed, None)
    assert outcome.frees_key is (executed is Executed.NO)


def test_unreadable_error_of_ours_still_ends_its_request() -> None:
    broken = f'{{"jsonrpc":"2.0","id":7,"error":{{"code":{CODE},"message":"","data":{{"{DATA_KEY}":{{}}}}}}}}'
    settled = Requests([7]).answer(7, broken.encode(), None, trusts_inband_errors=True)
    assert isinstance(settled, Settle)
    assert settled.outcome.token is OutcomeToken.INDETERMINATE
