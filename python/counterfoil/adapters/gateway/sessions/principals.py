"""Which sessions each principal has in use: one that opens ever more of them is refused the next.

A session that was silent for as long as anything of it could be resumed is in use no longer.
"""

from __future__ import annotations

from collections import OrderedDict

from counterfoil.errors import RequestOverLimit
from counterfoil.native import Scope

_KNOWN = 100_000


class Principals:
    """Sessions by tenant and principal, each with the time of its last request."""

    def __init__(self, limit: int, silent_s: float) -> None:
        self._limit = limit
        self._silent_s = silent_s
        self._sessions: OrderedDict[Scope, OrderedDict[str, float]] = OrderedDict()

    def check(self, owner: Scope, now_s: float) -> None:
        """Raise `RequestOverLimit` (429) if this principal has as many sessions as it may."""
        sessions = self._sessions.get(owner)
        if sessions is None:
            return
        while sessions and next(iter(sessions.values())) < now_s - self._silent_s:
            sessions.popitem(last=False)
        if len(sessions) >= self._limit:
            reason = f"the caller has {self._limit} sessions in use; end one of them (DELETE)"
            raise RequestOverLimit(429, "principal_sessions", reason)

    def note(self, owner: Scope, session: str, now_s: float) -> None:
        """Note a request of a session."""
        sessions = self._sessions.setdefault(owner, OrderedDict())
        self._sessions.move_to_end(owner)
        if len(self._sessions) > _KNOWN:
            self._sessions.popitem(last=False)
        sessions[session] = now_s
        sessions.move_to_end(session)
        if len(sessions) > 2 * self._limit:  # sessions that were opened elsewhere
            sessions.popitem(last=False)

    def forget(self, owner: Scope, session: str) -> None:
        """Note that a session is over."""
        sessions = self._sessions.get(owner)
        if sessions is not None:
            sessions.pop(session, None)
