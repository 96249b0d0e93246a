"""What a ledger row is about: an event of a stream, a call under its caller's key, or work named by its
payload.

It turns scope and key into the bytes that stores compare, and back into words for people; it decides nothing.
"""

from __future__ import annotations

import hashlib

import msgspec

from counterfoil.native import Scope


class EventPlace(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="event"):
    """Where an event stands: the stream it belongs to, and its position there.

    For our own ids `epoch` and `position` are the id's epoch and sequence.  For foreign ids
    (`foreign=True`) they are the reader's local epoch and a local ordinal, and the exact `event_id` is what
    identifies the event.
    """

    server: str
    stream: str
    epoch: str
    position: int
    event_id: str
    digest: str = ""
    foreign: bool = False


class CallKey(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="call"):
    """A call under the key its caller gave; `route` is the server or the gateway's route (decision L8)."""

    route: str
    key: str


class PayloadKey(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="payload"):
    """Work named by its own payload, whatever stream or session brought it (decision L16)."""

    server: str
    key: str


class UnkeyedCall(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="unkeyed"):
    """A call that its caller gave no key: what equal ones have in common, and which of them it is."""

    route: str
    identity: bytes
    number: str


LedgerKey = EventPlace | CallKey | PayloadKey | UnkeyedCall

#: Stored keys of unkeyed calls are at least the first and below the second.
UNKEYED_RANGE = (b"\x97\xa7unkeyed", b"\x97\xa7unkeyee")

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder().decode


def encode_key(scope: Scope, key: LedgerKey) -> bytes:
    """Give the bytes under which `key` is stored for `scope`; types are kept, so 1 and "1" differ."""
    match key:
        case EventPlace():
            return encode_place(scope, key)[0]
        case CallKey():
            # A named principal outlives its sessions; without one the session is all that tells callers
            # apart.
            session = scope.session if scope.principal is None else None
            return _ENCODE(("call", scope.tenant, scope.principal, session, key.route, key.key))
        case PayloadKey():
            return _ENCODE(("payload", scope.tenant, scope.principal, key.server, key.key))
        case UnkeyedCall():
            # The caller's scope as it is: who may take the call over is said by the identity.
            whose = (scope.tenant, scope.principal, scope.session)
            return _ENCODE(("unkeyed", *whose, key.route, key.identity, key.number))


def encode_place(scope: Scope, place: EventPlace) -> tuple[bytes, bytes]:
    """Give the bytes of an event's own row, and those of its stream's mark."""
    tenant, principal, session = scope.tenant, scope.principal, scope.session
    server, stream = place.server, place.stream
    kind, last = ("foreign", place.event_id) if place.foreign else ("event", place.position)
    return (
        _ENCODE((kind, tenant, principal, session, server, stream, place.epoch, last)),
        _ENCODE(("stream", tenant, principal, session, server, stream)),
    )


def encode_stream(scope: Scope, server: str, stream: str) -> bytes:
    """Give the bytes under which the mark of a stream is stored."""
    return _ENCODE(("stream", scope.tenant, scope.principal, scope.session, server, stream))


def stream_of(key: bytes) -> bytes | None:
    """Give the stored key of the stream that an event row belongs to; None for calls and payload keys."""
    parts = _DECODE(key)
    return _ENCODE(("stream", *parts[1:6])) if parts[0] in ("event", "foreign") else None


def is_stream(key: bytes) -> bool:
    """Say whether a stored key names a stream and not something in one."""
    return bool(_DECODE(key)[0] == "stream")


def idempotency_key_of(stored: bytes) -> str:
    """Give the text that a sink sees as idempotency key: the same for one effect, in every process."""
    return hashlib.blake2b(stored, digest_size=16, person=b"counterfoil-key").hexdigest()


def is_unkeyed(key: bytes) -> bool:
    """Say whether a stored key is that of an unkeyed call; nobody can ask for it again by a key."""
    low, high = UNKEYED_RANGE
    return low <= key < high


def read_unkeyed(key: bytes) -> tuple[Scope, UnkeyedCall]:
    """Read the stored key of an unkeyed call back."""
    _what, tenant, principal, session, route, identity, number = _DECODE(key)
    scope = Scope(tenant=tenant, principal=principal, session=session)
    return scope, UnkeyedCall(route=route, identity=identity, number=number)


class KeyWords(msgspec.Struct, frozen=True, kw_only=True):
    """A stored key in words, for people and for JSON."""

    what: str
    tenant: str | None
    principal: str | None
    session: str | None
    server: str
    stream: str | None
    epoch: str | None
    key: str


def describe_key(key: bytes) -> KeyWords:
    """Read stored key bytes back into words."""
    what, tenant, principal, *rest = _DECODE(key)
    stream = epoch = session = None
    match what:
        case "event" | "foreign":
            session, server, stream, epoch, last = rest
        case "stream":
            session, server, stream = rest
            last = ""
        case "call":
            session, server, last = rest
        case "unkeyed":
            session, server, _identity, last = rest
        case _:
            server, last = rest
    return KeyWords(
        what=what,
        tenant=tenant,
        principal=principal,
        session=session,
        server=server,
        stream=stream,
        epoch=epoch,
        key=str(last),
    )
