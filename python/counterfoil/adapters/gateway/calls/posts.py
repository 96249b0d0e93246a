"""Answers a POST of one request, in a revision with resumption: the call is run apart from its connection.

The response opens as soon as the upstream's head is there, or without it after `prime_after_ms`.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from counterfoil.adapters.gateway.calls.calls import Call, WholeAnswer
from counterfoil.adapters.gateway.streams.claims import claim_new, claim_without_ids
from counterfoil.adapters.gateway.streams.openings import make_headers, make_lead
from counterfoil.adapters.gateway.streams.sse_out import OnEnd, Opening, Pace, StreamWriter
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.asgi import Receive, Send, plain_of
from counterfoil.adapters.gateway.wire.headers import pass_answer_headers
from counterfoil.adapters.gateway.wire.upstream_port import Headers
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.protocol.revisions import Capabilities


class PostTerms(msgspec.Struct, frozen=True):
    """How this POST is answered: what its client knows, and whether the response may open early."""

    knows: Capabilities
    is_aware: bool
    opens_early: bool
    prime_after_s: float
    retry_ms: int
    window: int
    cors: Headers


async def answer_post(
    call: Call,
    terms: PostTerms,
    pace: Pace,
    receive: Receive,
    send: Send,
    on_end: OnEnd,
    plain_send: Callable[[], Send] | None = None,
) -> None:
    """Write the answer of a call that runs; `plain_send` gives what may send an event that ends nothing.

    A client that goes away leaves the call running, and its answer in the store.  Raises `UpstreamError` for
    a call whose answer did not come while the response was not open.
    """

    async def decide() -> None:
        if call.judged is not None:
            await call.judged.wait()
        with anyio.move_on_after(terms.prime_after_s if terms.opens_early else None):
            await call.decided.wait()

    if not await run_while_present(receive, decide):
        await call.keep()
    elif call.whole is not None:
        await _pass_whole(call, call.whole, receive, send)
    else:
        await call.keep()
        writer = await _make_writer(call, terms, pace, send, plain_send or (lambda: plain_of(send)))
        await writer.run(receive, on_end)


async def _pass_whole(call: Call, whole: WholeAnswer, receive: Receive, send: Send) -> None:
    if whole.failure is not None or whole.status >= 300:
        await call.stream.end()  # no id of it was ever told
    if whole.failure is not None:
        raise whole.failure
    headers = [field for field in pass_answer_headers(whole.headers) if field[0] != b"content-length"]

    async def pass_on() -> None:
        await send_answer(send, whole.status, headers, whole.body)

    if await run_while_present(receive, pass_on) or not call.stream.is_undelivered:
        await call.stream.end()
    else:
        await call.keep()  # nobody got it: an identical call may


async def _make_writer(
    call: Call, terms: PostTerms, pace: Pace, send: Send, plain_send: Callable[[], Send]
) -> StreamWriter:
    reader = await call.stream.attach(is_aware=terms.is_aware)
    epoch = call.stream.first_id.epoch
    if terms.knows.has_resumption:
        claim = claim_new(epoch, window=terms.window, why=call.why, call=call.token)
    else:
        claim = claim_without_ids(why=call.why, call=call.token)
    passed = pass_answer_headers(call.stream_headers or terms.cors, new_body=True)
    echo = str(call.stream.first_id) if terms.knows.has_priming else None
    lead = make_lead(claim, echo=echo, retry_ms=terms.retry_ms, knows=terms.knows)
    opening = Opening(
        make_headers(claim, passed),
        lead,
        epoch,
        terms.is_aware and terms.knows.has_resumption,
        carries_ids=terms.knows.has_resumption,
        farewells=call.farewells,
    )
    return StreamWriter(send, pace, opening, reader, way=call.stream.way, plain_send=plain_send)
