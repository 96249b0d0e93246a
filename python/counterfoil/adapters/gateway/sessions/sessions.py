"""What the gateway itself remembers of a session: facts seen on the way, all of them forgettable.

Promises rest on the store, never on this; a session that was never seen here is not unknown for that.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict

import anyio

from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.sessions.lost_requests import ServerRequests
from counterfoil.adapters.gateway.wire.upstream_port import Headers

#: Tokens that are remembered of one session: a client that refreshes its own has few at a time.
_TOKENS = 8


class SessionFacts:
    """Facts of one session."""

    def __init__(self) -> None:
        #: Digests of the `Authorization` values under which this process saw a 2xx from upstream.
        self.trusted: set[bytes] = set()
        #: When that was last, for those that it happened with in this process.
        self._vouched_s: dict[bytes, float] = {}
        #: Questions about a token that are on their way to the upstream, each set once it has its answer.
        self.asking: dict[bytes, anyio.Event] = {}
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
        self.vouch(inbound)
        if inbound.origin is not None and len(self.cors) < 8:
            self.cors[inbound.origin] = headers

    def vouch(self, inbound: Inbound) -> None:
        """Note that the upstream let the bearer of this token in just now."""
        digest = digest_token(inbound)
        self._vouched_s.pop(digest, None)
        self._vouched_s[digest] = time.monotonic()
        while len(self._vouched_s) > _TOKENS:
            del self._vouched_s[next(iter(self._vouched_s))]
        if len(self.trusted) >= _TOKENS:
            self.trusted = set(self._vouched_s)
        self.trusted.add(digest)

    def distrust(self) -> None:
        """Wait for the upstream's head again: it refused somebody who was let in before."""
        self.trusted.clear()
        self._vouched_s.clear()

    def distrust_token(self, inbound: Inbound) -> None:
        """Note that the upstream refused the bearer of this token; nobody else is touched by it."""
        self.trusted.discard(digest_token(inbound))
        self._vouched_s.pop(digest_token(inbound), None)

    def is_vouched(self, inbound: Inbound, since_s: float) -> bool:
        """Whether the upstream let the bearer of this token in after `since_s`."""
        return self._vouched_s.get(digest_token(inbound), float("-inf")) > since_s

    def has_let_in(self, inbound: Inbound) -> bool:
        """Whether it ever did, and has refused nobody since."""
        return digest_token(inbound) in self.trusted

    def trusts_origin(self, inbound: Inbound) -> bool:
        """Whether an answer may begin before the upstream's, for a caller that it let in before."""
        return inbound.origin is None or inbound.origin in self.cors


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


def digest_token(inbound: Inbound) -> bytes:
    """Return what stands for the request's `Authorization`: the token itself is not kept."""
    return hashlib.sha256(inbound.authorization or b"").digest()
