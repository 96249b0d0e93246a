"""What processes say to each other: requests and the lines of replies, as tagged values in MessagePack.

`docs/wire.md`, section 8, describes it.  It is no interface for others: both ends are of one release.
"""

from __future__ import annotations

import msgspec

from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.errors import PeerBroken
from counterfoil.native import Scope

#: Of everything in this file; an end of another version is refused by name.
VERSION = 2

#: Tenant, principal, session.
ScopeParts = tuple[str | None, str | None, str | None]
Fields = tuple[tuple[bytes, bytes], ...]


class Forwarded(msgspec.Struct, frozen=True, kw_only=True, tag="forward"):
    """A client's request, to be answered in the place of the process that it reached.

    Its identity was verified there, and so was its cursor.
    """

    via: str
    tenant: str | None
    principal: str | None
    inbound: Inbound
    body: bytes


class SessionNews(msgspec.Struct, frozen=True, kw_only=True, tag="session"):
    """Facts of a session that a process has seen; `is_opened` with its `initialize`."""

    scope: ScopeParts
    is_opened: bool = False
    holder: int = 0
    """The owner that has the session itself, where servers keep it in their own process."""
    is_distrusted: bool = False
    has_left: bool | None = None
    """Whether its client closed its standalone stream, or has one again; None where that did not change."""
    trusted: tuple[bytes, ...] = ()
    cors: dict[str, Fields] = {}
    capabilities: tuple[str, ...] | None = None
    client_capabilities: tuple[str, ...] | None = None


class Wish(msgspec.Struct, frozen=True, kw_only=True, tag="wish"):
    """A request that says what its session wants to be told (subscriptions, the log level)."""

    scope: ScopeParts
    body: bytes


class ToolsNews(msgspec.Struct, frozen=True, kw_only=True, tag="tools"):
    """A server's answer to `tools/list`."""

    route: str
    scope: ScopeParts
    answer: bytes


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """A session is over.  With `holds` the reply comes when no call needs it upstream any more."""

    scope: ScopeParts
    holds: bool = False


class NeedsSession(msgspec.Struct, frozen=True, kw_only=True, tag="needs"):
    """Whether calls run that need their session upstream after it was ended."""

    scope: ScopeParts


class RunsCall(msgspec.Struct, frozen=True, kw_only=True, tag="runs"):
    """Whether a call of this id is known there, running or waiting to be adopted."""

    scope: ScopeParts
    request_id: int | str


class RunsKey(msgspec.Struct, frozen=True, kw_only=True, tag="runs-key"):
    """Whether the call under a stored key of the ledger is in flight there."""

    key: bytes


class TakesAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """A client answers a request of its server: what is to be done with it."""

    scope: ScopeParts
    request_id: int | str


class Offer(msgspec.Struct, frozen=True, kw_only=True, tag="offer"):
    """An identical call belongs to that owner from now on, for so long; or no more."""

    identity: bytes
    owner: int
    within_s: float = 0.0


class WantsOffers(msgspec.Struct, frozen=True, kw_only=True, tag="wants-offers"):
    """Asks for what can be taken over there: who starts was told none of it."""


class Report(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """Asks for the metrics and the status of a process."""


Request = (
    Forwarded
    | SessionNews
    | Wish
    | ToolsNews
    | SessionEnd
    | NeedsSession
    | RunsCall
    | RunsKey
    | TakesAnswer
    | Offer
    | WantsOffers
    | Report
)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A request and whom it is for; one for another life of the same place is answered `Gone`.

    `incarnation` is None for whoever has the place now.
    """

    v: int = VERSION
    replica: int
    worker: int
    incarnation: int | None
    request: Request


class Hold(msgspec.Struct, frozen=True, tag="hold"):
    """Still there, and not yet decided."""


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """Another life of that place, or no such place."""


class Full(msgspec.Struct, frozen=True, tag="full"):
    """As many requests of peers run there as it takes."""


class Head(msgspec.Struct, frozen=True, tag="head"):
    """The head of a forwarded answer; its body follows."""

    status: int
    headers: Fields


class Said(msgspec.Struct, frozen=True, tag="said"):
    """The reply to a question."""

    word: str = ""


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    """The reply to `Report`."""

    metrics: bytes
    status: bytes


class Offered(msgspec.Struct, frozen=True, tag="offered"):
    """The reply to `WantsOffers`: identical calls to these belong to that owner, for so long at most."""

    owner: int
    identities: tuple[bytes, ...]
    within_s: float


Line = Hold | Gone | Full | Head | Said | Reported | Offered

_ENVELOPE = msgspec.msgpack.Decoder(Envelope)
_LINE = msgspec.msgpack.Decoder(Line)
_ENCODER = msgspec.msgpack.Encoder()


def write_envelope(envelope: Envelope) -> bytes:
    return _ENCODER.encode(envelope)


def read_envelope(data: bytes) -> Envelope:
    """Read a request; raises `PeerBroken`."""
    try:
        envelope = _ENVELOPE.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise PeerBroken("a peer sent a request that cannot be read") from error
    if envelope.v != VERSION:
        raise PeerBroken(f"a peer speaks version {envelope.v}, not {VERSION}: run one release everywhere")
    return envelope


def write_line(line: Line) -> bytes:
    return _ENCODER.encode(line)


def read_line(data: bytes) -> Line:
    """Read a line of a reply; raises `PeerBroken`."""
    try:
        return _LINE.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise PeerBroken("a peer sent a reply that cannot be read") from error


def parts_of(scope: Scope) -> ScopeParts:
    return scope.tenant, scope.principal, scope.session


def scope_of(parts: ScopeParts) -> Scope:
    tenant, principal, session = parts
    return Scope(tenant=tenant, principal=principal, session=session)
