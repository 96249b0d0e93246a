"""The requests that wait for an answer on one stream; each ends in exactly one of answer and outcome.

It is told, and asks nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from counterfoil.errors import MalformedInbandError
from counterfoil.model.evidence import Evidence
from counterfoil.model.outcomes import Outcome
from counterfoil.model.stream import Place
from counterfoil.model.tokens import Executed, OutcomeToken, Why
from counterfoil.protocol.client_stream.commands import Answer, Settle
from counterfoil.protocol.inband_error import read_inband_error


def outcome_without_answer(why: Why, executed: Executed | None, evidence: Evidence | None) -> Outcome:
    """Return what a request ends as when its answer will not come: only `executed=no` is certain."""
    token = OutcomeToken.NOT_APPLIED if executed is Executed.NO else OutcomeToken.INDETERMINATE
    return Outcome(token=token, why=why, evidence=evidence)


class Requests:
    """The typed ids that are outstanding; 1 and "1" are two requests."""

    def __init__(self, ids: Iterable[int | str]) -> None:
        self._waiting: dict[int | str, None] = dict.fromkeys(ids)
        self._had_any = bool(self._waiting)

    @property
    def ids(self) -> tuple[int | str, ...]:
        """Those that wait, in the order in which they were sent."""
        return tuple(self._waiting)

    @property
    def are_settled(self) -> bool:
        """Whether there were any, and none waits."""
        return self._had_any and not self._waiting

    def among(self, answered: Collection[int | str]) -> tuple[int | str, ...]:
        """Return which of these ids are outstanding here."""
        return tuple(each for each in answered if each in self._waiting) if answered else ()

    def answer(
        self, request_id: int | str, data: bytes, place: Place | None, *, trusts_inband_errors: bool
    ) -> Answer | Settle:
        """Settle one request with its response.

        Our in-band error is an outcome and not an answer, but only where the connection carries a claim:
        anywhere else it is what a tool said.
        """
        del self._waiting[request_id]
        if trusts_inband_errors:
            try:
                error = read_inband_error(data)
            except MalformedInbandError:
                return Settle(
                    request_id=request_id, outcome=outcome_without_answer(Why.SIGNALLED, None, None)
                )
            if error is not None:
                outcome = outcome_without_answer(error.why, error.executed, None)
                return Settle(request_id=request_id, outcome=outcome)
        return Answer(request_id=request_id, data=data, place=place)

    def settle_all(self, outcome: Outcome) -> list[Settle]:
        """Settle everything that still waits with one outcome."""
        settled = [Settle(request_id=each, outcome=outcome) for each in self._waiting]
        self._waiting.clear()
        return settled
