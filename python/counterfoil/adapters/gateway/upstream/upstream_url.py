"""An upstream behind a URL, over httpx2: no redirects, no proxies from the environment, no added headers.

The read timeout is off, as a stream may be silent for hours; idleness is judged by the legs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from counterfoil.adapters.gateway.wire.headers import HeaderPolicy
from counterfoil.adapters.gateway.wire.upstream_port import Headers, Take, UpstreamRequest, finish
from counterfoil.errors import UpstreamBroken, UpstreamUnreachable

if TYPE_CHECKING:
    import ssl

    import httpx2

    from counterfoil.adapters.http_transport import JoiningTransport


class UrlUpstream:
    """Sends every request to one origin and path; nothing that an answer says makes it call another."""

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_s: float = 5.0,
        write_timeout_s: float = 30.0,
        keep_alive_s: float = 2.0,
        tls: ssl.SSLContext | None = None,
        headers: HeaderPolicy | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise ValueError(f"an upstream is an http or https URL without query or fragment, not {url!r}")
        self._url = url.rstrip("/")
        self.name = self._url
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._policy = headers or HeaderPolicy()
        self._timeouts_s = {
            "connect": connect_timeout_s,
            "write": write_timeout_s,
            "read": None,
            "pool": connect_timeout_s,
        }
        # A server that closes an idle connection just as a call goes out on it loses the call, and nobody
        # may send it again.  Common servers wait 5 s, so idle connections are given up well before.
        self._keep_alive_s = keep_alive_s
        self._tls = tls
        self._transport: JoiningTransport | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        import httpx2

        from counterfoil.adapters.http_transport import JoiningTransport

        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=100, keepalive_expiry=self._keep_alive_s
        )
        # No httpx2 client above it: one would keep the cookies of all callers together, and answer for one
        # with another's.
        async with JoiningTransport(limits=limits, tls=self._tls) as transport:
            self._transport = transport
            try:
                yield
            finally:
                self._transport = None

    @asynccontextmanager
    async def call(self, request: UpstreamRequest) -> AsyncIterator[_UrlAnswer]:
        import httpx2

        if self._transport is None:
            raise RuntimeError("the upstream is not running: open the gateway's `running()` first")
        outgoing = httpx2.Request(
            request.method,
            (self._origin if request.is_rooted else self._url) + request.target.decode("ascii"),
            headers=[*self._policy.apply(request.headers), (b"accept-encoding", b"identity")],
            content=request.body or None,
            extensions={"timeout": self._timeouts_s},
        )
        try:
            response = await self._transport.handle_async_request(outgoing)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise UpstreamUnreachable("no connection to the upstream could be opened") from error
        except httpx2.HTTPError as error:
            raise UpstreamBroken(
                "the upstream closed the connection before the head of its answer"
            ) from error
        answer = _UrlAnswer(response, self._policy)
        try:
            yield answer
        finally:
            await answer.close()


class _UrlAnswer:
    def __init__(self, response: httpx2.Response, policy: HeaderPolicy) -> None:
        self._response = response
        self.status: int = response.status_code
        headers = tuple((name.lower(), value) for name, value in response.headers.raw)
        self.headers: Headers = policy.apply_to_answer(headers)
        self._pieces = response.aiter_raw()

    async def deliver(self, take: Take) -> None:
        while piece := await self.receive():
            await finish(take(piece))

    async def receive(self) -> bytes:
        import httpx2

        try:
            async for piece in self._pieces:
                return piece
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise UpstreamBroken("the upstream's answer broke off before its end") from error
        return b""

    async def close(self) -> None:
        # The nested generators of httpx2 end only by an exception from within: the cancelled read is one.
        # Merely dropped, they would be finalized by the garbage collector, out of reach of trio's scopes.
        # What was read before the cancellation is told may end the body, and badly: nobody wants it now.
        import httpx2

        with anyio.CancelScope() as scope, suppress(httpx2.HTTPError, httpx2.StreamError):
            scope.cancel()
            async for _ in self._pieces:
                pass
        with anyio.CancelScope(shield=True):
            await self._response.aclose()
