"""What an HTTP status says of a call that got no JSON-RPC answer: applied for certain not, or unknown.

The list is design §7; nothing else is believed.
"""

from __future__ import annotations

from counterfoil.model.tokens import Executed

_NOT_EXECUTED = frozenset({400, 401, 403, 404, 405, 406, 413, 415, 429})


def executed_by_status(status: int, *, has_retry_after: bool) -> Executed:
    """Say whether a call may have run that was answered with `status` and no JSON-RPC answer."""
    if status in _NOT_EXECUTED or (status == 503 and has_retry_after):
        return Executed.NO
    return Executed.UNKNOWN
