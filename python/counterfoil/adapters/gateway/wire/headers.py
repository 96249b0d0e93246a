"""Which header fields pass the gateway, in either direction.

Nothing is forwarded raw: hop-by-hop fields and those that `Connection` names stay here (RFC 9110, 7.6.1),
as do the fields that belong to one leg only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from counterfoil.adapters.gateway.wire.upstream_port import Headers
from counterfoil.errors import ConfigError

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)
#: Made anew for the upstream leg, or spoken between client and gateway only.
_REQUEST_OURS = frozenset(b"host content-length accept-encoding expect forwarded".split())
#: Spoken by a gateway that answers resumes; one that only looks on passes them.
_CONTINUITY = frozenset(b"last-event-id stream-continuity".split())
#: Added by the server that runs us.
_ANSWER_OURS = frozenset(b"date server stream-continuity alt-svc".split())
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
#: Without these, or with others, neither side would understand the other.
_NOT_YOURS = _HOP_BY_HOP | frozenset(
    b"host content-length content-type accept accept-encoding mcp-session-id mcp-protocol-version"
    b" last-event-id stream-continuity".split()
)
#: What describes a body that we replace by a stream of our own.
_BODY_FIELDS = frozenset(b"content-length content-type content-encoding etag last-modified".split())


def pass_request_headers(
    headers: Iterable[tuple[bytes, bytes]], *, strip: frozenset[bytes], passes_cursor: bool = False
) -> Headers:
    """Return what the upstream is told; `strip` names internal fields that this peer may not set."""
    return _without(headers, _REQUEST_OURS | strip | (frozenset() if passes_cursor else _CONTINUITY))


def pass_answer_headers(headers: Iterable[tuple[bytes, bytes]], *, new_body: bool = False) -> Headers:
    """Return what the client is told of an upstream's answer; with `new_body` nothing about its body."""
    return _without(headers, _ANSWER_OURS | _BODY_FIELDS if new_body else _ANSWER_OURS)


def _without(headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> Headers:
    fields = tuple(headers)
    nominated = {
        token.strip().lower()
        for name, value in fields
        if name == b"connection"
        for token in value.split(b",")
    }
    dropped = _HOP_BY_HOP | names | nominated
    return tuple((name, value) for name, value in fields if name not in dropped)


def cors_of(headers: Headers) -> Headers:
    """Return the fields of an upstream's answer that let a browser read answers of ours."""
    return tuple(
        (name, value) for name, value in headers if name.startswith(b"access-control-") or name == b"vary"
    )


def let_browsers_see(headers: Iterable[tuple[bytes, bytes]], *, is_preflight: bool = False) -> Headers:
    """Add `Stream-Continuity` to the fields that a cross-origin page may read, or with a preflight send.

    Only where the upstream lets the origin in at all.
    """
    fields = tuple(headers)
    if not any(name == b"access-control-allow-origin" for name, _ in fields):
        return fields
    wanted = b"access-control-allow-headers" if is_preflight else b"access-control-expose-headers"
    listed = b", ".join(value for name, value in fields if name == wanted)
    if b"*" in listed or b"stream-continuity" in listed.lower():
        return fields
    value = listed + b", Stream-Continuity" if listed else b"Stream-Continuity"
    return (*(field for field in fields if field[0] != wanted), (wanted, value))


class HeaderPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What one upstream is told beside, or instead of, what the client says; names in lower case.

    Raises `ConfigError` for a field that the gateway itself depends on.
    """

    drop: frozenset[bytes] = frozenset()
    """Fields of requests that this upstream is not told."""
    add: Headers = ()
    """Fields that it is told, instead of the client's of that name."""
    drop_from_answers: frozenset[bytes] = frozenset()
    """Fields of its answers that no client is told."""

    def __post_init__(self) -> None:
        for name in (*self.drop, *(name for name, _ in self.add), *self.drop_from_answers):
            if not _NAME.fullmatch(name) or name in _NOT_YOURS:
                raise ConfigError("upstream.headers", f"{name.decode('latin-1')!r} may not be set or dropped")
        for name, value in self.add:
            if not all(0x20 <= byte < 0x7F for byte in value):
                raise ConfigError("upstream.set_headers", f"{name.decode()}: only visible ASCII is allowed")

    def apply(self, headers: Headers) -> Headers:
        """Return the fields of a request for this upstream."""
        if not self.drop and not self.add:
            return headers
        replaced = self.drop | {name for name, _ in self.add}
        return (*(field for field in headers if field[0] not in replaced), *self.add)

    def apply_to_answer(self, headers: Headers) -> Headers:
        """Return the fields of an answer of this upstream."""
        if not self.drop_from_answers:
            return headers
        return tuple(field for field in headers if field[0] not in self.drop_from_answers)
