"""Relays a call without ids when the store takes no more streams (`on_budget = "relay-unresumable"`).

The header says so, and the upstream's own ids are taken off, so that no client asks with one.
"""

from __future__ import annotations

from counterfoil.adapters.gateway.streams.claims import UNRESUMABLE
from counterfoil.adapters.gateway.streams.openings import make_headers
from counterfoil.adapters.gateway.upstream.passthrough import AnswerBroken, copy_answer, start_answer
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.headers import pass_answer_headers
from counterfoil.adapters.gateway.wire.upstream_port import (
    Upstream,
    UpstreamAnswer,
    UpstreamRequest,
    is_stream,
)
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.errors import LimitExceeded, UpstreamBroken
from counterfoil.limits import Limits
from counterfoil.native import SseParser, encode_event
from counterfoil.protocol.continuity import write_comment


async def relay_unresumable(
    upstream: Upstream, request: UpstreamRequest, limits: Limits, receive: Receive, send: Send
) -> None:
    """Pass one exchange on; raises as `pass_through`."""

    async def carry() -> None:
        async with upstream.call(request) as answer:
            if is_stream(answer):
                await _copy_without_ids(answer, limits, send)
            else:
                await start_answer(answer, send)
                await copy_answer(answer, send)

    await run_while_present(receive, carry)


async def _copy_without_ids(answer: UpstreamAnswer, limits: Limits, send: Send) -> None:
    headers = make_headers(UNRESUMABLE, pass_answer_headers(answer.headers, new_body=True))
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
    pending = write_comment(UNRESUMABLE)
    parser = SseParser(limits=limits)
    piece = b"-"
    while piece:
        try:
            piece = await answer.receive()
            events = parser.feed(piece) if piece else []
        except (UpstreamBroken, LimitExceeded) as error:
            raise AnswerBroken from error
        pending += b"".join(encode_event(event.data, event=event.event) for event in events if event.data)
        if pending or not piece:
            await send({"type": "http.response.body", "body": pending, "more_body": bool(piece)})
        pending = b""
