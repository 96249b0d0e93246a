"""Connections for httpx2's pool under asyncio: no scope is opened for a time-out that nobody asked for.

The HTTP transport makes them; on trio it takes httpcore2's own.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.streams.tls
import httpcore2
from anyio.streams.tls import TLSAttribute, TLSStream

from counterfoil.adapters.connections import Connection, connect_tcp


async def connect(
    host: str,
    port: int,
    *,
    timeout: float | None = None,
    local_address: str | None = None,
    socket_options: Iterable[Any] | None = None,
) -> NetworkStream:
    """Open a TCP connection; raises httpcore2's `ConnectError` and `ConnectTimeout`."""
    with _errors(httpcore2.ConnectError, httpcore2.ConnectTimeout), anyio.fail_after(timeout):
        connection = await connect_tcp(host, port, local_address=local_address)
        for option in socket_options or ():
            connection.extra_info("socket").setsockopt(*option)
    return NetworkStream(connection, connection)


class NetworkStream(httpcore2.AsyncNetworkStream):
    """A connection as httpcore2's pool takes it, in the clear or behind TLS."""

    def __init__(self, connection: Connection, stream: anyio.abc.ByteStream) -> None:
        self._connection = connection
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the next piece, nothing at the end; raises `ReadError` and `ReadTimeout`."""
        try:
            if timeout is None:
                return await self._stream.receive(max_bytes)
            with anyio.fail_after(timeout):
                return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise httpcore2.ReadTimeout(str(error)) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpcore2.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of it; raises `WriteError` and `WriteTimeout`."""
        if buffer:
            with _errors(httpcore2.WriteError, httpcore2.WriteTimeout), anyio.fail_after(timeout):
                await self._stream.send(buffer)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> NetworkStream:
        """Go on behind TLS; raises `ConnectError` and `ConnectTimeout`, with the connection closed."""
        try:
            with _errors(httpcore2.ConnectError, httpcore2.ConnectTimeout), anyio.fail_after(timeout):
                stream = await TLSStream.wrap(
                    self._stream,
                    ssl_context=ssl_context,
                    hostname=server_hostname,
                    standard_compatible=False,
                    server_side=False,
                )
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise
        return NetworkStream(self._connection, stream)

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore2 asks for: the addresses, the socket, TLS, and whether there is news."""
        match info:
            case "is_readable":
                return self._connection.has_news
            case "ssl_object":
                return self._stream.extra(TLSAttribute.ssl_object, None)
            case "client_addr":
                return self._connection.extra_info("sockname")
            case "server_addr":
                return self._connection.extra_info("peername")
            case "socket":
                return self._connection.extra_info("socket")
            case _:
                return None


@contextmanager
def _errors(broken: type[Exception], late: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
        raise broken(str(error)) from error
