"""The request headers that ask for a stream, first or again.

It adds no credentials; the driver does.
"""

from __future__ import annotations

from counterfoil.model.evidence import Asked
from counterfoil.protocol.client_stream.settings import StreamSettings
from counterfoil.protocol.client_stream.track import AskedWith
from counterfoil.protocol.continuity import HEADER, ContinuityRequest, Want, write_request

_STREAM_ONLY = "text/event-stream"
_EITHER = "application/json, text/event-stream"


def headers_for(
    settings: StreamSettings, asked: AskedWith, *, session_id: str | None, is_post: bool
) -> dict[str, str]:
    """Return the headers of one connection.

    `Last-Event-ID` goes with a GET only, and only where there is a cursor; identity is asked for, because a
    bound on compressed bytes is none.
    """
    known = settings.capabilities
    headers = {"accept": _EITHER if is_post else _STREAM_ONLY, "accept-encoding": "identity"}
    if session_id is not None:
        headers["mcp-session-id"] = session_id
    if known is None or known.has_revision_header:
        headers["mcp-protocol-version"] = settings.revision
    wants = {Want.STRICT, Want.NEW} if asked.how is Asked.ACCEPTED else {Want.STRICT}
    headers[HEADER.lower()] = write_request(ContinuityRequest(want=frozenset(wants)))
    if asked.event_id and not is_post:
        headers["last-event-id"] = asked.event_id
    return headers
