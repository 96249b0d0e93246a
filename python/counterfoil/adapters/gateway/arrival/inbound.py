"""One request as the gateway reads it: the fields that decide where it goes, read once.

Holds no body and makes no decision; refuses what cannot be read in only one way.
"""

from __future__ import annotations

from typing import Any

import msgspec

from counterfoil.adapters.gateway.wire.upstream_port import Headers, InboundLeg
from counterfoil.errors import RequestOverLimit, RequestRefused

#: Fields of which two would let two readers see two requests.
_ONCE = (
    b"host",
    b"origin",
    b"authorization",
    b"content-length",
    b"content-type",
    b"mcp-session-id",
    b"mcp-protocol-version",
    b"last-event-id",
)


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """A request without its body.  Every value is as sent, or None where the field is absent."""

    method: str
    target: bytes
    headers: Headers
    peer: str
    host: str | None
    origin: str | None
    authorization: bytes | None
    session: str | None
    revision: str | None
    cursor: bytes | None
    continuity: str | None
    accepts_sse: bool
    accepts_json: bool
    leg: InboundLeg


def read_inbound(
    scope: Any, *, max_header_bytes: int, max_field_bytes: int = 8 << 10, max_session_bytes: int = 128
) -> Inbound:
    """Read an ASGI scope; raises `RequestRefused` for fields that are doubled, too large or not ASCII."""
    headers: Headers = tuple((bytes(name).lower(), bytes(value)) for name, value in scope["headers"])
    if sum(len(name) + len(value) + 4 for name, value in headers) > max_header_bytes:
        raise RequestOverLimit(431, "header_bytes", f"the fields together exceed {max_header_bytes} bytes")
    if any(len(name) + len(value) > max_field_bytes for name, value in headers):
        raise RequestOverLimit(431, "header_field_bytes", f"one field exceeds {max_field_bytes} bytes")
    fields = dict(reversed(headers))
    for name in _ONCE:
        if sum(key == name for key, _ in headers) > 1:
            raise RequestRefused(400, name.decode(), "the field is given more than once")
    if b"transfer-encoding" in fields and b"content-length" in fields:
        raise RequestRefused(400, "transfer-encoding", "a body has one length, or is chunked")
    if fields.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestRefused(415, "content-encoding", "send the body unpacked, so that its bound holds")
    session = _visible(fields, b"mcp-session-id")
    if session is not None and len(session) > max_session_bytes:
        raise RequestOverLimit(400, "session_id_bytes", f"it is longer than {max_session_bytes} bytes")
    accept = b",".join(value for name, value in headers if name == b"accept").lower()
    return Inbound(
        method=scope["method"],
        target=_target_of(scope),
        headers=headers,
        peer=(scope.get("client") or ("", 0))[0],
        host=_visible(fields, b"host"),
        origin=_visible(fields, b"origin"),
        authorization=fields.get(b"authorization"),
        session=session,
        revision=_visible(fields, b"mcp-protocol-version"),
        cursor=fields.get(b"last-event-id"),
        continuity=_visible(fields, b"stream-continuity"),
        accepts_sse=b"text/event-stream" in accept or b"*/*" in accept,
        accepts_json=b"application/json" in accept or b"*/*" in accept,
        leg=_leg_of(scope, fields.get(b"host")),
    )


def _leg_of(scope: Any, host: bytes | None) -> InboundLeg:
    client, server = scope.get("client"), scope.get("server")
    return InboundLeg(
        host=host,
        scheme=scope.get("scheme", "http"),
        root_path=scope.get("root_path", ""),
        client=tuple(client) if client else None,
        server=tuple(server) if server else None,
    )


def _target_of(scope: Any) -> bytes:
    """The path behind the mount point, and the query, as sent."""
    raw = bytes(scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
    root = scope.get("root_path", "").encode()
    path = raw.removeprefix(root) if root else raw
    segments = path.lower().replace(b"%2e", b".").replace(b"%2f", b"/").replace(b"%5c", b"/").split(b"/")
    if not path.isascii() or b"." in segments or b".." in segments:
        raise RequestRefused(400, "path", "only ASCII, and no segment that another reader would resolve")
    query = scope.get("query_string", b"")
    return path + b"?" + query if query else path


def _visible(fields: dict[bytes, bytes], name: bytes) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not all(0x20 <= byte < 0x7F for byte in value):
        raise RequestRefused(400, name.decode(), "only visible ASCII is allowed")
    return value.decode("ascii")
