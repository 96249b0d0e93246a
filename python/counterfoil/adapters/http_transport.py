"""An httpx2 transport on which a chunked answer costs per piece read from the network, not per chunk.

It joins the chunks of a piece before h11 sees them and leaves everything else to httpcore2: heads, limits,
keep-alive, errors.  The client and the gateway's upstream put it under their httpx2 clients.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import httpcore2
import httpx2
import sniffio

from counterfoil.adapters.http_connections import connect
from counterfoil.native import ChunkJoiner

#: Where a head ends for h11.
_HEAD_END = re.compile(rb"\n\r?\n")
#: Statuses whose answers have no body, whatever their head says.
_BODILESS = frozenset({204, 304})


class JoiningTransport(httpx2.AsyncBaseTransport):
    """HTTP/1.1 over httpcore2's own pool and backends, without proxies.

    `tls` is the context for https; without it there is httpx2's own, unless `is_plain` says that nothing
    behind TLS is ever asked for: reading all certificates takes as long as a thousand events.
    """

    def __init__(
        self, *, limits: httpx2.Limits, tls: ssl.SSLContext | None = None, is_plain: bool = False
    ) -> None:
        if tls is None and not is_plain:
            tls = httpx2.create_ssl_context(trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Backend(),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the answer's head; raises httpx2's errors, as its own transport does."""
        outgoing = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _httpx2_errors():
            answer = await self._pool.handle_async_request(outgoing)
        if request.method != "HEAD" and _is_chunked(answer):
            stream = answer.extensions.get("network_stream")
            if isinstance(stream, _Stream):
                stream.join_chunks()
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
        )

    async def __aenter__(self) -> Self:
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        with _httpx2_errors():
            await self._pool.__aexit__(exc_type, exc_value, traceback)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()


def _is_chunked(answer: httpcore2.Response) -> bool:
    if answer.status in _BODILESS or answer.extensions.get("http_version") != b"HTTP/1.1":
        return False
    codings = [value for name, value in answer.headers if name.lower() == b"transfer-encoding"]
    return len(codings) == 1 and codings[0].strip().lower() == b"chunked"


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx2_errors():
            async for piece in self._stream:
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextmanager
def _httpx2_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Each of httpcore2's errors has its namesake in httpx2, or derives from one that has.
        if type(error).__module__.partition(".")[0] != "httpcore2":
            raise
        for kind in type(error).__mro__:
            namesake = getattr(httpx2, kind.__name__, None)
            if isinstance(namesake, type) and issubclass(namesake, httpx2.HTTPError):
                raise namesake(str(error)) from error
        raise


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connections of the running loop, with their streams wrapped."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        is_trio = sniffio.current_async_library() == "trio"
        open_connection = httpcore2.TrioBackend().connect_tcp if is_trio else connect
        return _Stream(
            await open_connection(
                host, port, timeout=timeout, local_address=local_address, socket_options=socket_options
            )
        )


class _Stream(httpcore2.AsyncNetworkStream):
    """One connection: a head and what follows it are given out apart, so that joining can begin between."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        self._is_in_head = False
        self._is_behind_head = False
        #: The last bytes of a head so far: its end may be cut anywhere.
        self._head_tail = b""
        #: What was read with the head and lies behind it.
        self._rest = b""
        self._joiner: ChunkJoiner | None = None

    def join_chunks(self) -> None:
        """Join the chunks of the body that begins now; not done where some of it was given out already."""
        if self._is_behind_head:
            self._joiner = ChunkJoiner()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            if self._rest:
                data, self._rest = self._rest, b""
            else:
                data = await self._inner.read(max_bytes, timeout)
            self._is_behind_head = False
            if not data:
                return data
            if self._is_in_head:
                return self._split(data)
            if self._joiner is None:
                return data
            # A piece may end inside a size line and hold nothing of the body: that is no end.
            if joined := self._joiner.feed(data):
                return joined

    def _split(self, data: bytes) -> bytes:
        tail = self._head_tail
        found = _HEAD_END.search(tail + data)
        if found is None:
            self._head_tail = (tail + data)[-2:]
            return data
        end = found.end() - len(tail)
        self._is_in_head, self._is_behind_head = False, True
        self._rest = data[end:]
        return data[:end]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # What is read next is the answer to this.
        self._is_in_head, self._is_behind_head, self._head_tail, self._joiner = True, False, b"", None
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable" and self._rest:
            return True
        return self._inner.get_extra_info(info)
