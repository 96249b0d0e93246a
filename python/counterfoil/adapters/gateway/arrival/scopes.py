"""Whose request it is: tenant and principal, from a trusted proxy's header or from a verified token.

An identity that cannot be verified is refused, never guessed; the session is added by the caller.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.errors import ConfigError, RequestRefused

_MAX_IDENTITY = 256


class Identity(msgspec.Struct, frozen=True):
    """Tenant and principal of a request; None where none is configured."""

    tenant: str | None = None
    principal: str | None = None


class Source(Protocol):
    """Where one part of an identity comes from."""

    def read(self, inbound: Inbound) -> str | None: ...

    #: Header fields that only a trusted peer may set; stripped from everybody else's requests.
    @property
    def internal_fields(self) -> frozenset[bytes]: ...


class HeaderSource:
    """A header field, believed only when the peer is one of the trusted proxies."""

    def __init__(self, name: str, trusted_proxies: Iterable[str]) -> None:
        self._name = name.lower().encode("ascii")
        self._networks = [ipaddress.ip_network(network, strict=False) for network in trusted_proxies]
        if not self._networks:
            raise ConfigError(
                "trusted_proxies", f"header {name!r} names a caller, so it needs the proxies that may set it"
            )
        self.internal_fields = frozenset((self._name,))

    def read(self, inbound: Inbound) -> str | None:
        if not self._is_trusted(inbound.peer):
            return None
        values = [value for name, value in inbound.headers if name == self._name]
        if len(values) > 1:
            raise RequestRefused(400, self._name.decode(), "the field is given more than once")
        return values[0].decode("latin-1") if values else None

    def _is_trusted(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


class JwtSource:
    """A claim of the bearer token, believed when its signature verifies against the configured key set."""

    internal_fields: frozenset[bytes] = frozenset()

    def __init__(
        self, claim: str, keys: Mapping[str, Any], *, audience: str | None, issuer: str | None = None
    ) -> None:
        import jwt

        if audience is None:
            raise ConfigError("jwt_audience", f"claim {claim!r} needs the audience that tokens are made for")
        self._claim = claim
        self._keys = jwt.PyJWKSet.from_dict(dict(keys))
        self._audience = audience
        self._issuer = issuer

    def read(self, inbound: Inbound) -> str | None:
        import jwt

        scheme, _, token = (inbound.authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            key = next(key for key in self._keys.keys if key.key_id == key_id)
            required = ["exp", "aud", self._claim]
            claims = jwt.decode(
                token.strip(),
                key.key,
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self._issuer,
                options={"require": required},
            )
        except (jwt.PyJWTError, StopIteration, UnicodeDecodeError):
            return None
        value = claims[self._claim]
        return value if isinstance(value, str) else None


#: The principal of callers without one in revisions without sessions; no source can name it.
ANONYMOUS = "\0"


class Scopes:
    """The configured sources.  Without any, callers are told apart by their session only."""

    def __init__(self, tenant: Source | None = None, principal: Source | None = None) -> None:
        self._tenant = tenant
        self._principal = principal
        fields = [source.internal_fields for source in (tenant, principal) if source is not None]
        self.internal_fields: frozenset[bytes] = frozenset().union(*fields)

    @property
    def has_principal(self) -> bool:
        return self._principal is not None

    def identify(self, inbound: Inbound) -> Identity:
        """Return whose request it is; raises `RequestRefused` (401) where a configured part is missing."""
        return Identity(
            _read_part(self._tenant, inbound, "tenant"), _read_part(self._principal, inbound, "principal")
        )


#: A function of the request: its identity, its tenant alone, or None for a caller that is refused.
IdentityOf = Callable[[Inbound], Identity | str | None]
#: `scope=` of the gateway: sources, or a function of the request.
ScopeOf = Scopes | IdentityOf


class FunctionScopes(Scopes):
    """Asks a function of the application whose a request is; what it believes is the application's own."""

    def __init__(self, function: IdentityOf) -> None:
        super().__init__()
        self._function = function

    def identify(self, inbound: Inbound) -> Identity:
        """Return whose request it is; raises `RequestRefused` (401) where the function says nobody's."""
        found = self._function(inbound)
        identity = Identity(tenant=found) if isinstance(found, str) else found
        if identity is None:
            raise RequestRefused(401, "scope", "nothing that can be verified says whose the request is")
        for part, value in (("tenant", identity.tenant), ("principal", identity.principal)):
            if value is not None and not 0 < len(value) <= _MAX_IDENTITY:
                raise RequestRefused(401, part, f"empty, or longer than {_MAX_IDENTITY} characters")
        return identity


def make_scopes(scope: ScopeOf | None) -> Scopes:
    """Read `scope=`; None tells callers apart by their session only."""
    if scope is None:
        return Scopes()
    return scope if isinstance(scope, Scopes) else FunctionScopes(scope)


def scope_from_header(name: str, *, trusted_proxies: Sequence[str], principal: str | None = None) -> Scopes:
    """Take the tenant from header `name` (and the principal from header `principal`) of the trusted proxies.

    `trusted_proxies` are addresses or networks (`10.0.0.0/8`); any other peer's fields are stripped and its
    requests refused.
    """
    return Scopes(
        HeaderSource(name, trusted_proxies),
        HeaderSource(principal, trusted_proxies) if principal is not None else None,
    )


def _read_part(source: Source | None, inbound: Inbound, part: str) -> str | None:
    if source is None:
        return None
    value = source.read(inbound)
    if not value or len(value) > _MAX_IDENTITY:
        raise RequestRefused(401, part, "nothing that can be verified says whose the request is")
    return value
