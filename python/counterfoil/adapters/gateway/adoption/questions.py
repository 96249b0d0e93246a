"""Requests of the server inside an adopted call: they go to the adopter, and its answers go back (L19).

The adopter sees an id of ours, because its own session's server may use the same; an answer is sent in the
session that the call was made in.  A client that never declared the capability is not asked.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Protocol

import msgspec

from counterfoil.adapters.gateway.sessions.lost_requests import settle_lost
from counterfoil.adapters.gateway.sessions.sessions import SessionFacts
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.adapters.gateway.wire.rewriting import Message, id_of, read_rpc, with_id
from counterfoil.adapters.gateway.wire.upstream_port import Upstream, UpstreamRequest
from counterfoil.errors import UpstreamError
from counterfoil.native import Scope

_REMEMBERED = 4_096
_CAPABILITY = {
    "elicitation/create": "elicitation",
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
}
_OF_ANOTHER_LEG = frozenset(b"accept content-type last-event-id mcp-session-id".split())


class Party(Protocol):
    """A call as the questions of its server need it: whose it is, and how its server is reached."""

    @property
    def scope(self) -> Scope: ...

    @property
    def facts(self) -> SessionFacts: ...

    @property
    def upstream(self) -> Upstream: ...

    @property
    def request(self) -> UpstreamRequest: ...


class Questions:
    """Which request of a server stands behind an id that an adopter was asked with."""

    def __init__(self) -> None:
        self._asked: OrderedDict[tuple[Scope, str], tuple[Party, RequestId]] = OrderedDict()

    async def pass_on(self, origin: Party, holder: Party, message: Message) -> bytes | None:
        """Return the request as the holder is asked, or None where it is not; the server is told then."""
        request_id = id_of(message)
        if request_id is None or origin.facts.server_requests.is_answered(request_id):
            return None
        if not _can_be_asked(holder, message):
            lost = origin.facts.server_requests.take_lost([request_id])
            await settle_lost(origin.upstream, origin.request, lost)
            return None
        if holder.scope == origin.scope:
            return msgspec.json.encode(message)
        ours = f"cf-{secrets.token_hex(8)}"
        self._asked[holder.scope, ours] = (origin, request_id)
        if len(self._asked) > _REMEMBERED:
            self._asked.popitem(last=False)
        return with_id(message, ours)

    def has(self, scope: Scope, request_id: RequestId) -> bool:
        return isinstance(request_id, str) and (scope, request_id) in self._asked

    async def take_answer(self, scope: Scope, request_id: RequestId | None, body: bytes) -> bool:
        """Send an adopter's answer to the server that asked; False if it answers nothing of ours."""
        asked = self._asked.pop((scope, request_id), None) if isinstance(request_id, str) else None
        message = read_rpc(body) if asked is not None else None
        if asked is None or message is None:
            return False
        origin, own_id = asked
        if origin.facts.server_requests.note_answer(own_id):
            await send_in_session(origin, with_id(message, own_id))
        return True


async def send_in_session(origin: Party, body: bytes) -> None:
    """Send a message in the session that a call runs in; an upstream that is gone waits for nothing."""
    session = tuple(field for field in origin.request.headers if field[0] == b"mcp-session-id")
    kept = tuple(field for field in origin.request.headers if field[0] not in _OF_ANOTHER_LEG)
    headers = (
        *kept,
        *session,
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
    )
    try:
        async with origin.upstream.call(UpstreamRequest("POST", origin.request.target, headers, body)):
            pass
    except UpstreamError:
        return


def _can_be_asked(holder: Party, message: Message) -> bool:
    declared = holder.facts.client_capabilities
    needed = _CAPABILITY.get(message.method) if isinstance(message.method, str) else None
    return declared is None or needed is None or needed in declared
