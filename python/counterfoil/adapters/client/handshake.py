"""Opens a session: `initialize`, or `server/discover` in the revision whose requests stand alone.

It sends what the handshake needs and nothing else; `connect` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from counterfoil.adapters.client.calls import Calls
from counterfoil.adapters.client.carrier import Carrier
from counterfoil.adapters.client.driver import StreamDriver
from counterfoil.adapters.client.messages import Peer, write_notification
from counterfoil.errors import HandshakeFailed, Indeterminate, NotApplied, RequestFailed
from counterfoil.protocol.revisions import capabilities_of

#: `initialize` is what negotiates the revision: its own header would say it before.
_BEFORE_NEGOTIATION = frozenset({"mcp-protocol-version"})


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself; `headers` are those of the answer in which it did."""

    info: dict[str, Any] = {}
    capabilities: dict[str, Any] = {}
    instructions: str | None = None
    headers: Mapping[str, str] = {}


async def open_session(
    carrier: Carrier, calls: Calls, peer: Peer, *, revision: str, within_s: float
) -> ServerFacts:
    """Open a session in `revision` or one that the server prefers, and note it in the carrier.

    Raises HandshakeFailed, with what came instead as its cause.
    """
    offered = capabilities_of(revision)
    if offered is None:
        raise HandshakeFailed(f"revision {revision} is not one that this release speaks")
    carrier.revision = revision
    try:
        if offered.has_sessions:
            return await _initialize(carrier, calls, peer, within_s)
        return await _discover(carrier, calls, within_s)
    except (RequestFailed, NotApplied, Indeterminate) as error:
        raise HandshakeFailed(f"the server did not open a session: {error}") from error


async def _initialize(carrier: Carrier, calls: Calls, peer: Peer, within_s: float) -> ServerFacts:
    params = {
        "protocolVersion": carrier.revision,
        "capabilities": dict(peer.capabilities),
        "clientInfo": peer.info,
    }
    ticket = calls.submit("initialize", params, deadline_s=within_s, dropped_headers=_BEFORE_NEGOTIATION)
    driver = carrier.streams[f"call-{ticket.request_id}"]
    result = _object(await ticket.wait())
    spoken = result.get("protocolVersion")
    known = capabilities_of(spoken) if isinstance(spoken, str) else None
    if known is None or not known.has_sessions:
        raise HandshakeFailed("the server answers in a revision that this release does not speak")
    carrier.revision = known.revision
    carrier.session_id = driver.stream.session_id
    await carrier.post(write_notification("notifications/initialized"))
    return _facts(result, driver)


async def _discover(carrier: Carrier, calls: Calls, within_s: float) -> ServerFacts:
    ticket = calls.submit("server/discover", {}, deadline_s=within_s)
    driver = carrier.streams[f"call-{ticket.request_id}"]
    return _facts(_object(await ticket.wait()), driver)


def _facts(result: dict[str, Any], driver: StreamDriver) -> ServerFacts:
    instructions = result.get("instructions")
    return ServerFacts(
        info=_object(result.get("serverInfo", {})),
        capabilities=_object(result.get("capabilities", {})),
        instructions=instructions if isinstance(instructions, str) else None,
        headers=driver.post_headers or {},
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
