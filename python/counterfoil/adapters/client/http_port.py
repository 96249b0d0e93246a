"""One server's endpoint over httpx2: a request out; status, headers and body pieces in.

Knows nothing of MCP, follows no redirect to another origin, decodes no compression.  The stream's driver and
the poster call it; a client that the user made keeps its credentials, proxies and certificates.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import anyio

from counterfoil.adapters.client.origins import is_same_origin
from counterfoil.errors import HttpFault

if TYPE_CHECKING:
    import httpx2

CONNECT_S = 10.0
WRITE_S = 30.0
#: Redirects that keep method and body, on the same origin; more of them are a loop.
REDIRECTS_MAX = 3
_KEEPS_METHOD = frozenset({307, 308})


class Exchange:
    """The head of an answer, and its body piece by piece."""

    def __init__(self, response: httpx2.Response) -> None:
        import httpx2

        self._response = response
        #: The body, piece by piece as it arrives; one of `faults` is raised where it breaks off.
        self.pieces = response.aiter_raw()
        self.faults = (httpx2.HTTPError, httpx2.StreamError)
        self.status: int = response.status_code
        self.headers: dict[str, str] = {name.lower(): value for name, value in response.headers.items()}

    async def close(self) -> None:
        """Close the exchange; the server may see a break.  Never waits for the server."""
        # httpx2's nested generators end only from within; dropped half read, the garbage collector would
        # finalize them outside of any task.
        # What was read before the cancellation is told may end the body, and badly: nobody wants it now.
        with anyio.CancelScope() as scope, suppress(*self.faults):
            scope.cancel()
            async for _ in self.pieces:
                pass
        with anyio.CancelScope(shield=True):
            await self._response.aclose()


class HttpPort:
    """Sends requests to one URL, or to where that same origin redirects it."""

    def __init__(self, url: str, client: httpx2.AsyncClient, *, headers: Mapping[str, str]) -> None:
        import httpx2

        self.url = url
        self._client = client
        self._headers = dict(headers)
        self._timeout = httpx2.Timeout(connect=CONNECT_S, write=WRITE_S, read=None, pool=CONNECT_S)

    @asynccontextmanager
    async def exchange(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[Exchange]:
        """Send a request and wait for the head of its answer; leaving the block closes the exchange.

        Raises HttpFault.  May be cancelled: the exchange is closed then.
        """
        exchange = await self._send(method, headers, body)
        try:
            yield exchange
        finally:
            await exchange.close()

    async def _send(self, method: str, headers: Mapping[str, str], body: bytes | None) -> Exchange:
        url = self.url
        for _ in range(REDIRECTS_MAX + 1):
            exchange = await self._send_to(url, method, headers, body)
            if exchange.status not in _KEEPS_METHOD:
                return exchange
            target = urljoin(url, exchange.headers.get("location", ""))
            if not is_same_origin(self.url, target):
                # The status says that it was not followed: nothing was sent to the other origin.
                return exchange
            await exchange.close()
            url = target
        raise HttpFault(f"the server redirects in a circle: more than {REDIRECTS_MAX} redirects", True)

    async def _send_to(
        self, url: str, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> Exchange:
        import httpx2

        if self._client.is_closed:
            raise HttpFault("the HTTP client that was passed in is closed", False)
        try:
            request = self._client.build_request(
                method, url, headers={**self._headers, **headers}, content=body, timeout=self._timeout
            )
            return Exchange(await self._client.send(request, stream=True, follow_redirects=False))
        except _unsent() as error:
            raise HttpFault("no connection to the server could be opened", False) from error
        except httpx2.HTTPError as error:
            raise HttpFault("the connection broke before the head of an answer", True) from error


def _unsent() -> tuple[type[Exception], ...]:
    import httpx2

    return (
        httpx2.ConnectError,
        httpx2.ConnectTimeout,
        httpx2.InvalidURL,
        httpx2.PoolTimeout,
        httpx2.UnsupportedProtocol,
        httpx2.LocalProtocolError,
        httpx2.ProxyError,
    )


@asynccontextmanager
async def open_port(
    url: str, *, client: httpx2.AsyncClient | None, headers: Mapping[str, str]
) -> AsyncIterator[HttpPort]:
    """Open the endpoint; a client that was passed in is not closed at the end."""
    import httpx2

    if client is not None:
        yield HttpPort(url, client, headers=headers)
        return
    from counterfoil.adapters.http_transport import JoiningTransport

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    # Redirects stay on the same origin, so that what is plain stays plain.
    transport = JoiningTransport(limits=limits, is_plain=url.lower().startswith("http://"))
    async with httpx2.AsyncClient(transport=transport, follow_redirects=False, trust_env=False) as own:
        yield HttpPort(url, own, headers=headers)
