"""The admin app: health, readiness, metrics and status, on a listener that the public never reaches."""

from __future__ import annotations

from typing import Protocol

import msgspec

from counterfoil.adapters.gateway.operation.metrics import CONTENT_TYPE
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.asgi import Receive, Scope, Send

_JSON = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


class Facts(Protocol):
    """What is told: of one gateway, or of several processes added up."""

    @property
    def is_ready(self) -> bool:
        """Whether new requests should come here."""

    async def report(self) -> tuple[bytes, bytes]:
        """Return metrics as Prometheus text, and a status as JSON."""


class AdminApp:
    """Answers GET /healthz, /readyz, /metrics and /status about a gateway; it changes nothing."""

    def __init__(self, gateway: Facts) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["method"] not in ("GET", "HEAD"):
            await send_answer(send, 405, ((b"allow", b"GET, HEAD"),))
            return
        status, headers, body = await self._answer(scope["path"])
        await send_answer(send, status, headers, body if scope["method"] == "GET" else b"")

    async def _answer(self, path: str) -> tuple[int, tuple[tuple[bytes, bytes], ...], bytes]:
        if path == "/healthz":
            return 200, _JSON, b'{"alive":true}'
        if path == "/readyz":
            ready = self._gateway.is_ready
            return (200 if ready else 503), _JSON, msgspec.json.encode({"ready": ready})
        if path == "/metrics":
            metrics, _ = await self._gateway.report()
            return 200, ((b"content-type", CONTENT_TYPE),), metrics
        if path == "/status":
            _, status = await self._gateway.report()
            return 200, _JSON, status
        return 404, _JSON, b'{"error":"no such page"}'
