"""What the end of a call is in the ledger, and the line that says that the ledger did not take it."""

from __future__ import annotations

import json
import logging

import msgspec

from counterfoil.adapters.gateway.calls.calls import WholeAnswer
from counterfoil.adapters.gateway.wire.messages import RequestId, write_error
from counterfoil.adapters.gateway.wire.rewriting import read_rpc
from counterfoil.errors import LedgerError
from counterfoil.model.tokens import Executed, OutcomeToken, Why
from counterfoil.protocol.inband_error import CODE, read_inband_error
from counterfoil.protocol.ledger_steps import Settlement

_LOGGER = logging.getLogger("counterfoil.gateway")


def settlement_of(data: bytes, *, is_answer: bool) -> Settlement:
    """Say what the end of a call is in the ledger: only what the upstream answered is final (L20)."""
    if is_answer:
        message = read_rpc(data)
        is_error = message is not None and isinstance(message.error, msgspec.Raw)
        outcome = OutcomeToken.FAILED if is_error else OutcomeToken.COMPLETED
        return Settlement(outcome=outcome, result=data)
    error = read_inband_error(data)
    executed = error.executed if error is not None else Executed.UNKNOWN
    why = error.why.value if error is not None else Why.CLOSED.value
    if executed is Executed.NO:
        return Settlement(outcome=OutcomeToken.NOT_APPLIED, why=why)
    evidence = "the upstream's answer did not come, or could not be kept"
    return Settlement(outcome=OutcomeToken.INDETERMINATE, result=data, why=why, evidence=evidence)


def refused_unrecorded(request_id: RequestId) -> WholeAnswer:
    """Return the answer to a call whose intent cannot be written: without one it is not sent."""
    text = "the ledger cannot record the call: it was not executed"
    headers = ((b"content-type", b"application/json"), (b"retry-after", b"5"))
    return WholeAnswer(503, headers, write_error(request_id, CODE, text))


def refused_away(request_id: RequestId) -> WholeAnswer:
    """Return the answer to a call whose key belongs to another host that is not reached."""
    text = "the host that keeps this key cannot be reached: the call was not executed"
    headers = ((b"content-type", b"application/json"), (b"retry-after", b"5"))
    return WholeAnswer(503, headers, write_error(request_id, CODE, text))


def note_failure(failure: LedgerError) -> None:
    """Log that the ledger refused a write; its class says why."""
    _LOGGER.error("%s", json.dumps({"event": "ledger-failure", "what": type(failure).__name__}))
