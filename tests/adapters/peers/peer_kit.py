"""What the tests of both ends of a channel share: a server with an inbox that a test scripts."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from counterfoil.adapters.gateway.arrival.inbound import Inbound, read_inbound
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.peers.channel import Address
from counterfoil.adapters.peers.frames import write_request
from counterfoil.adapters.peers.listener import PeerCounts, PeerServer
from counterfoil.adapters.peers.owners import Owner, Place
from counterfoil.adapters.peers.seals import Seals
from counterfoil.adapters.peers.tls import ServerTls
from counterfoil.adapters.peers.wire import Envelope, Forwarded, Line, Report, Request, Said, write_envelope
from counterfoil.adapters.serving import listen_unix

OWN = Owner(Place(0, 1), 7)

Answer = Callable[[Receive, Send], Awaitable[None]]


class ScriptedInbox:
    """Answers a forwarded request with `answer`, and everything else with `line` when it is let go."""

    def __init__(self, answer: Answer | None = None, line: Line | None = None) -> None:
        self._answer = answer
        self._line = line or Said("yes")
        self.taken: list[Request] = []
        self.go = anyio.Event()
        self.go.set()
        self.cancelled = 0

    async def answer_forwarded(self, request: Forwarded, receive: Receive, send: Send) -> None:
        if self._answer is not None:
            await self._answer(receive, send)

    async def take(self, request: Request) -> Line:
        self.taken.append(request)
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return self._line


class Served:
    """A server that listens, and what it counted."""

    def __init__(
        self, server: PeerServer, counts: PeerCounts, inbox: ScriptedInbox, address: Address
    ) -> None:
        self.server = server
        self.counts = counts
        self.inbox = inbox
        self.address = address

    @property
    def connections(self) -> int:
        return self.server._connections


@asynccontextmanager
async def served(
    folder: Path,
    answer: Answer | None = None,
    *,
    inbox: ScriptedInbox | None = None,
    seals: Seals | None = None,
    grace_s: float = 0.05,
    tls: ServerTls | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """Serve on a Unix socket, or on TCP where there are seals."""
    inbox = inbox or ScriptedInbox(answer)
    counts = PeerCounts()
    server = PeerServer(inbox, OWN, counts, max_body_bytes=100_000, seals=seals, **options)
    if seals is None:
        listener, address = listen_unix(str(folder / "s")), Address(path=str(folder / "s"))
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        address = Address(host="localhost", port=listener.getsockname()[1])
    context = tls.context() if tls is not None else None
    with anyio.fail_after(20):
        async with server.serving(listener, grace_s=grace_s, tls=context):
            yield Served(server, counts, inbox, address)


def asks(request: Request | None = None, *, incarnation: int | None = None, worker: int = 1) -> bytes:
    """Return an envelope."""
    asked = request or Report()
    return write_envelope(Envelope(replica=0, worker=worker, incarnation=incarnation, request=asked))


def unsealed(envelope: bytes) -> Callable[[], bytes]:
    return lambda: write_request(b"", envelope)


def forwards() -> bytes:
    scope = {"type": "http", "method": "GET", "path": "/mcp", "headers": [], "client": ("c", 1)}
    inbound: Inbound = read_inbound(scope, max_header_bytes=1_000)
    return asks(Forwarded(via="x", tenant=None, principal=None, inbound=inbound, body=b""))


async def until(condition: Callable[[], object]) -> None:
    """Wait for what follows by itself."""
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110 counters ring no bell
            await anyio.sleep(0.001)
