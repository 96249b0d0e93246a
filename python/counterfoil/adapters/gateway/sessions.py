"""What the gateway itself remembers of a session: facts seen on the way, all of them forgettable.

Promises rest on the store, never on this; a session that was never seen here is not unknown for that.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from counterfoil.adapters.gateway.inbound import Inbound
from counterfoil.adapters.gateway.lost_requests import ServerRequests
from counterfoil.adapters.gateway.upstream import Headers


class SessionFacts:
    """Facts of one session."""

    def __init__(self) -> None:
        #: Digests of the `Authorization` values under which this process saw a 2xx from upstream.
        self.trusted: set[bytes] = set()
        #: The upstream's CORS fields, by origin.
        self.cors: dict[str, Headers] = {}
        #: Names of the capabilities that `initialize` declared; None when it was not seen here.
        self.capabilities: frozenset[str] | None = None
        #: Names of the capabilities that its client declared; None when `initialize` was not seen here.
        self.client_capabilities: frozenset[str] | None = None
        #: When the loss of its standalone stream was last told.
        self.noticed_s = float("-inf")
        #: Subscribed resources, which are told to be updated when their notifications were lost.
        self.resources: set[str] = set()
        #: Requests of the server on their way to this client.
        self.server_requests = ServerRequests()
        #: False once `logging/setLevel` asked for graver things only.
        self.wants_warnings = True

    def trust(self, inbound: Inbound, headers: Headers) -> None:
        """Note a 2xx of the upstream."""
        if len(self.trusted) < 8:
            self.trusted.add(_digest(inbound.authorization))
        if inbound.origin is not None and len(self.cors) < 8:
            self.cors[inbound.origin] = headers

    def distrust(self) -> None:
        """Wait for the upstream's head again: it refused somebody who was let in before."""
        self.trusted.clear()

    def trusts(self, inbound: Inbound) -> bool:
        """Whether an answer may begin before the upstream's: it let the same caller in before."""
        if inbound.origin is not None and inbound.origin not in self.cors:
            return False
        return _digest(inbound.authorization) in self.trusted


class Sessions:
    """Facts by session, for at most `limit` sessions."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._facts: OrderedDict[str, SessionFacts] = OrderedDict()

    def of(self, session: str) -> SessionFacts:
        """Return the facts of a session, empty ones if it was never seen."""
        facts = self._facts.get(session)
        if facts is None:
            facts = self._facts[session] = SessionFacts()
            if len(self._facts) > self._limit:
                self._facts.popitem(last=False)
        self._facts.move_to_end(session)
        return facts

    def forget(self, session: str) -> None:
        self._facts.pop(session, None)


def _digest(authorization: bytes | None) -> bytes:
    return hashlib.sha256(authorization or b"").digest()
