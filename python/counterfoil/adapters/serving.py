"""Runs an ASGI app on a listening socket: by uvicorn under asyncio, by hypercorn under trio.

Installs no signal handler and opens no socket.  The gateway program, the demo and tests call it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel

from counterfoil.adapters.joined_writes import JoinedWrites

if TYPE_CHECKING:
    import uvicorn

KEEP_ALIVE_S = 75
#: How long a client may take for the head of a request; under hypercorn that is part of its keep-alive time.
HEAD_DEADLINE_S = 10.0
#: Connections that wait to be accepted; clients that all come back at once overflow a short queue.
CONNECTION_QUEUE = 2_048


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a listening TCP socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=CONNECTION_QUEUE)
    # Connections inherit it.  asyncio sets it only where a socket names its protocol, which ours does not:
    # a head and the event behind it would then be 40 ms apart, for the client is slow to acknowledge.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def listen_unix(path: str) -> socket.socket:
    """Return a Unix socket that only this user may connect to; one that was left behind is replaced."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(CONNECTION_QUEUE)
    return listener


async def serve_app(
    app: Any,
    listener: socket.socket,
    stop: anyio.Event,
    *,
    grace_s: float = 5.0,
    head_deadline_s: float = HEAD_DEADLINE_S,
) -> None:
    """Serve until `stop` is set, then give open responses `grace_s` to end.  Closes the listener.

    A connection whose next request has no whole head within `head_deadline_s` is closed; under trio the
    keep-alive time is what bounds it.
    """
    import sniffio

    if sniffio.current_async_library() == "trio":
        await _serve_by_hypercorn(app, listener, stop, grace_s)
    else:
        await _serve_by_uvicorn(app, listener, stop, grace_s, head_deadline_s)


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[int]:
    """Serve `app` on a free loopback port, which is yielded, while the block is open."""
    listener = listen()
    port: int = listener.getsockname()[1]
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await serve_app(app, listener, stop, grace_s=0.2)

        tasks.start_soon(serve)
        try:
            yield port
        finally:
            stop.set()


async def _serve_by_uvicorn(
    app: Any,
    listener: socket.socket,
    stop: anyio.Event,
    grace_s: float,
    head_deadline_s: float,
) -> None:
    server = _make_uvicorn(app, grace_s, head_deadline_s)

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


def _make_protocol(head_deadline_s: float) -> type[Any] | str:
    """Return uvicorn's protocol over joined writes, which closes a connection without a whole head in time.

    Without httptools it is uvicorn's own choice, as it is.
    """
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        return "auto"

    class Protocol(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(cast(asyncio.Transport, JoinedWrites(transport)))
            self._deadline = self.loop.call_later(head_deadline_s, self._give_up)

        def data_received(self, data: bytes) -> None:
            if self._deadline is None and self._waits_for_head():
                self._deadline = self.loop.call_later(head_deadline_s, self._give_up)
            super().data_received(data)
            if not self._waits_for_head():
                self._stop_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_deadline()
            super().connection_lost(exc)

        def _waits_for_head(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _stop_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _give_up(self) -> None:
            self._deadline = None
            if self._waits_for_head() and self.transport is not None:
                self.transport.close()

    return Protocol


def _make_uvicorn(app: Any, grace_s: float, head_deadline_s: float) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # signals belong to the program

    config = uvicorn.Config(
        app,
        http=_make_protocol(head_deadline_s),
        log_config=None,
        access_log=False,
        ws="none",
        proxy_headers=False,  # who a request is from is decided by our own list of proxies
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        backlog=CONNECTION_QUEUE,
        # whole seconds there; None would wait for every open stream
        timeout_graceful_shutdown=max(1, round(grace_s)),
    )
    return Server(config)


async def _serve_by_hypercorn(app: Any, listener: socket.socket, stop: anyio.Event, grace_s: float) -> None:
    from hypercorn.config import Config
    from hypercorn.trio import serve

    config = Config.from_mapping(backlog=CONNECTION_QUEUE)  # it listens on our socket anew
    config.bind = [f"fd://{listener.detach()}"]
    config.accesslog = None
    config.errorlog = None
    config.include_server_header = False
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.graceful_timeout = grace_s
    config.shutdown_timeout = grace_s + 5
    await serve(app, config, shutdown_trigger=stop.wait)
