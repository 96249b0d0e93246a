"""Whether who comes back with a token is still let in: the upstream is asked, as our log cannot know.

The question is a `ping` under the request's own fields, which has no effect; what the upstream says is its
own business.  Asked only where nothing else says whose a request is, and not again for a while.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from enum import Enum

import anyio
import msgspec

from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts, digest_token
from counterfoil.adapters.gateway.upstream.standalone import Refusal
from counterfoil.adapters.gateway.wire.upstream_port import Headers, Upstream, UpstreamAnswer, UpstreamRequest
from counterfoil.errors import CounterfoilError, UpstreamError

#: How long the upstream may take to say it.
_ASK_S = 5.0
_BODY_BYTES = 65_536
#: Also what some servers say where the session is another user's.
_NO_SESSION = 404
_REPLACED = frozenset(b"accept content-type last-event-id stream-continuity".split())


class Admitted(Enum):
    """What is known of a caller whom nobody refuses."""

    YES = "yes"
    UNKNOWN = "unknown"
    """The upstream could not be asked, and has never let this token into this session."""


class Admission:
    """Asks for each token and session, at most once in `vouch_s` while the answer is yes."""

    def __init__(self, vouch_s: float) -> None:
        self._vouch_s = vouch_s

    async def judge(
        self, facts: SessionFacts, inbound: Inbound, upstream: Upstream, request: UpstreamRequest
    ) -> Admitted | Refusal:
        """Say whether the bearer of this request's token may read its session's streams.

        May be cancelled; nothing is known then that was not before.
        """
        token = digest_token(inbound)
        while not facts.is_vouched(inbound, time.monotonic() - self._vouch_s):
            if token not in facts.asking:
                return await self._ask_once(facts, token, inbound, upstream, request)
            await facts.asking[token].wait()  # many streams come back at once: one question will do
        return Admitted.YES

    async def _ask_once(
        self,
        facts: SessionFacts,
        token: bytes,
        inbound: Inbound,
        upstream: Upstream,
        request: UpstreamRequest,
    ) -> Admitted | Refusal:
        asking = facts.asking[token] = anyio.Event()
        try:
            answer = await self._ask(upstream, request)
        finally:
            del facts.asking[token]
            asking.set()
        if answer is Admitted.YES:
            facts.vouch(inbound)
        elif isinstance(answer, Refusal) and answer.status != _NO_SESSION:
            facts.distrust_token(inbound)
        elif facts.has_let_in(inbound):
            # The upstream is away, or has lost its sessions: what it said while it had this one stands.
            return Admitted.YES
        return answer

    async def _ask(self, upstream: Upstream, request: UpstreamRequest) -> Admitted | Refusal:
        try:
            with anyio.move_on_after(_ASK_S):
                async with upstream.call(_question(request)) as answer:
                    if answer.status in (401, 403, _NO_SESSION):
                        return Refusal(answer.status, answer.headers, await _read(answer))
                    if answer.status < 300:
                        return Admitted.YES
        except UpstreamError:
            pass
        return Admitted.UNKNOWN


def _question(request: UpstreamRequest) -> UpstreamRequest:
    kept: Headers = tuple(field for field in request.headers if field[0] not in _REPLACED)
    headers = (
        *kept,
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
    )
    message = {"jsonrpc": "2.0", "id": f"counterfoil-{secrets.token_hex(8)}", "method": "ping"}
    return UpstreamRequest("POST", request.target, headers, msgspec.json.encode(message), request.leg)


async def _read(answer: UpstreamAnswer) -> bytes:
    body = b""
    with suppress(CounterfoilError):
        while len(body) < _BODY_BYTES and (piece := await answer.receive()):
            body += piece
    return body
