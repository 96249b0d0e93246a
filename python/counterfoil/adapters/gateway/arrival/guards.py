"""Host and Origin checks against DNS rebinding and cross-site calls; exact, on by default.

Called before a request is looked at any further.
"""

from __future__ import annotations

from collections.abc import Iterable

from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.errors import RequestRefused

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"


class Guards:
    """Allow-lists of hosts and origins.

    A host without a port allows every port of it; `*` allows all.  An origin is allowed when it is listed, or
    when its host is an allowed host that equals the request's own.  `Origin: null` never is.
    """

    def __init__(self, hosts: Iterable[str] = LOOPBACK_HOSTS, origins: Iterable[str] = ()) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def check(self, inbound: Inbound) -> None:
        """Raise `RequestRefused`: 421 for a foreign host, 403 for a foreign origin."""
        host = (inbound.host or "").lower()
        if not self._allows_host(host):
            raise RequestRefused(421, "host", "not among the allowed hosts: add it with --allow-host")
        origin = inbound.origin
        if origin is not None and not self._allows_origin(origin.lower(), host):
            raise RequestRefused(403, "origin", "not among the allowed origins: add it with --allow-origin")

    def _allows_host(self, host: str) -> bool:
        return ANY in self._hosts or host in self._hosts or _name_of(host) in self._hosts

    def _allows_origin(self, origin: str, host: str) -> bool:
        if ANY in self._origins or origin in self._origins:
            return True
        scheme, _, authority = origin.partition("://")
        return scheme in ("http", "https") and authority == host


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
