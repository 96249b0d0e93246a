"""Writes whole answers to ASGI, and reads whole bodies from it, within their limits.

Streams are written by `sse_out`.
"""

from __future__ import annotations

from collections.abc import Iterable

import anyio

from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.messages import write_error
from counterfoil.errors import RequestOverLimit, RequestRefused

#: JSON-RPC has no code for a refusal by a proxy; outside -32768…-32000, which revision 2026-07-28 reserves.
REFUSED_CODE = -31_000


class ClientGone(Exception):
    """The client closed its connection before its request was complete; there is nobody to answer."""


async def read_body(receive: Receive, *, max_bytes: int, within_s: float) -> bytes:
    """Read a request body; raises `RequestOverLimit` (413, 408) and `ClientGone`."""
    pieces: list[bytes] = []
    size = 0
    with anyio.move_on_after(within_s):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message.get("body", b"")
            size += len(piece)
            if size > max_bytes:
                raise RequestOverLimit(413, "body_bytes", f"the body exceeds {max_bytes} bytes")
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)
    raise RequestOverLimit(408, "body_deadline_s", f"the body did not arrive within {within_s:g} s")


async def send_answer(
    send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes = b""
) -> None:
    """Send a whole answer with its length."""
    fields = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_refusal(
    send: Send, refused: RequestRefused, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a refusal as a JSON-RPC error without an id: it is about no call in particular."""
    data = {"io.counterfoil": {"v": 1, "why": "refused", "field": refused.field}}
    body = write_error(None, REFUSED_CODE, str(refused), data)
    fields = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *headers]
    if refused.status in (408, 413, 431) or refused.field == "transfer-encoding":
        fields.append((b"connection", b"close"))
    if refused.status in (429, 503):
        fields.append((b"retry-after", b"1"))
    await send_answer(send, refused.status, fields, body)
