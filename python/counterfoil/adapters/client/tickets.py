"""A ticket for one request: given at once, waited for by anybody, settled exactly once.

It sends nothing itself; cancelling goes to whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Literal

import anyio
import anyio.lowlevel
import msgspec

from counterfoil.adapters.client.messages import Response, read_error
from counterfoil.errors import CounterfoilError, Indeterminate, NotApplied, RequestFailed, StillPending
from counterfoil.model.evidence import Evidence
from counterfoil.model.outcomes import Outcome
from counterfoil.model.tokens import OutcomeToken, Why

_decode = msgspec.json.decode
_NEXT = {
    OutcomeToken.NOT_APPLIED: "it is safe to send it again",
    OutcomeToken.INDETERMINATE: "it may have been executed: check before sending it again",
}


class CallEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request that got no answer.

    `why` is the reason, `status` that of the last HTTP answer, `connections` how many were asked for, and
    `verdict` what the verdict on its stream rested on.  `refusal` is the server's own JSON-RPC error, where
    an HTTP refusal carried one.
    """

    why: Why | None
    status: int | None = None
    connections: int = 0
    verdict: Evidence | None = None
    refusal: Any = None


def error_of(outcome: Outcome, evidence: CallEvidence, idempotency_key: str | None) -> CounterfoilError:
    """Return what to raise for a request that ended without its answer."""
    status = f", status {evidence.status}" if evidence.why is Why.STATUS else ""
    text = f"the request has no answer ({evidence.why}{status}); {_NEXT[outcome.token]}"
    if outcome.token is OutcomeToken.NOT_APPLIED:
        return NotApplied(text, evidence)
    return Indeterminate(text, evidence, idempotency_key)


class CallTicket:
    """What became of one request.

    `outcome` is `"pending"`, or for good: `completed` (its result is here), `failed` (the server's own
    error), `not_applied` (certainly not executed), `indeterminate`.
    """

    def __init__(
        self, request_id: int | str, *, cancel: Callable[[], None], idempotency_key: str | None = None
    ) -> None:
        self.request_id = request_id
        self.idempotency_key = idempotency_key
        self._cancel = cancel
        self._settled = anyio.Event()
        self._outcome: OutcomeToken | None = None
        self._response: Response | None = None
        self._error: CounterfoilError | None = None
        #: Whether cancelling the wait leaves the request alone.
        self.survives_waiters = False

    def __repr__(self) -> str:
        return f"<CallTicket {self.outcome}>"

    @property
    def outcome(self) -> OutcomeToken | Literal["pending"]:
        """What is known now."""
        return "pending" if self._outcome is None else self._outcome

    async def wait(self) -> Any:
        """Wait for the answer and return its result, decoded.

        Raises RequestFailed for the server's own error, NotApplied or Indeterminate where no answer came.
        Cancelling the wait cancels the request, unless a ledger holds it under a key: then it goes on to its
        deadline, and its outcome to the ledger.
        """
        if self._outcome is None:
            try:
                await self._settled.wait()
            except BaseException:
                if not self.survives_waiters:
                    self.cancel()
                raise
        else:
            await anyio.lowlevel.checkpoint()
        return self.result()

    def __await__(self) -> Generator[Any, Any, Any]:
        """Make `await ticket` the same as `await ticket.wait()`."""
        return self.wait().__await__()

    def result(self) -> Any:
        """Return the result, or raise what ended the request; raises StillPending before that."""
        if self._outcome is None:
            raise StillPending("the request has no outcome yet: wait for the ticket")
        if self._error is not None:
            raise self._error
        return None if self._response is None else _decode(self._response.result)

    @property
    def raw_result(self) -> bytes:
        """The result as it came, undecoded; raises as `result`."""
        if self._outcome is not OutcomeToken.COMPLETED or self._response is None:
            self.result()
            return b""
        return bytes(self._response.result)

    def cancel(self) -> None:
        """Cancel the request: the server is told, and the ticket is settled soon after.  Never waits."""
        if self._outcome is None:
            self._cancel()

    # --- for the connection

    async def wait_settled(self) -> None:
        """Wait for the end, whatever it is; cancelling this wait cancels nothing else."""
        await self._settled.wait()

    def copy(self, other: CallTicket) -> None:
        """Take the end of another ticket, which must have one."""
        if other._outcome is not None:
            self.settle(other._outcome, response=other._response, error=other._error)

    def settle_answer(self, response: Response | None) -> None:
        """Take the server's response; None for one that cannot be read."""
        if response is None:
            evidence = CallEvidence(why=Why.NOT_JSON_RPC)
            self.settle(OutcomeToken.INDETERMINATE, error=Indeterminate("the answer is unreadable", evidence))
        elif bytes(response.error):
            body = read_error(response.error)
            error = (
                RequestFailed(0, "") if body is None else RequestFailed(body.code, body.message, body.data)
            )
            self.settle(OutcomeToken.FAILED, error=error)
        else:
            self.settle(OutcomeToken.COMPLETED, response=response)

    def settle(
        self,
        outcome: OutcomeToken,
        *,
        response: Response | None = None,
        error: CounterfoilError | None = None,
    ) -> bool:
        """Record the end, once; False where there was one already."""
        if self._outcome is not None:
            return False
        self._outcome, self._response, self._error = outcome, response, error
        self._settled.set()
        return True
