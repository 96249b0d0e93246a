"""Says on the answer to `initialize` that keys of calls are honoured (`call=offered`)."""

from __future__ import annotations

from counterfoil.adapters.gateway.streams.claims import claim_field
from counterfoil.adapters.gateway.wire.asgi import Message, Send
from counterfoil.protocol.continuity import CallToken, ContinuityClaim

_OFFERED = claim_field(ContinuityClaim(call=CallToken.OFFERED))


def offer_keys(send: Send) -> Send:
    """Return `send` with the header field on the answer's start."""

    async def send_offering(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], _OFFERED]}
        await send(message)

    return send_offering
