"""Carries an exchange to the upstream and back unchanged, as it arrives.

For what has no resumption: revision 2026-07-28, notifications, answers, batches, other methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.headers import let_browsers_see, pass_answer_headers
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamAnswer, UpstreamRequest
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.errors import UpstreamBroken


class AnswerBroken(Exception):
    """The upstream's answer broke off after its head had been passed on: the client's must break off too."""


#: Sees the head of an answer before it is passed on.
OnHead = Callable[[UpstreamAnswer], Awaitable[None]]
#: Sees each piece of a body before it is passed on; the last one is empty.
OnPiece = Callable[[bytes], Awaitable[None]]


async def pass_through(
    upstream: Upstream,
    request: UpstreamRequest,
    receive: Receive,
    send: Send,
    *,
    on_head: OnHead | None = None,
    on_piece: OnPiece | None = None,
) -> int | None:
    """Return the status passed on, or None if the client went away first.

    A client that goes away closes the upstream exchange at once (under 2026-07-28 that is its cancellation).
    Raises `UpstreamError` before anything was sent, `AnswerBroken` after.
    """
    status = 0

    async def carry() -> None:
        nonlocal status
        async with upstream.call(request) as answer:
            if on_head is not None:
                await on_head(answer)
            await start_answer(answer, send, is_preflight=request.method == "OPTIONS")
            await copy_answer(answer, send, on_piece)
            status = answer.status

    return status if await run_while_present(receive, carry) else None


async def start_answer(answer: UpstreamAnswer, send: Send, *, is_preflight: bool = False) -> None:
    headers = list(let_browsers_see(pass_answer_headers(answer.headers), is_preflight=is_preflight))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})


async def copy_answer(answer: UpstreamAnswer, send: Send, on_piece: OnPiece | None = None) -> None:
    while True:
        try:
            piece = await answer.receive()
        except UpstreamBroken as error:
            raise AnswerBroken from error
        if on_piece is not None:
            await on_piece(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": bool(piece)})
        if not piece:
            return
