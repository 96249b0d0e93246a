"""What tests of several processes share: gateways that are each other's peers, over real sockets.

They run in one process, each with a store of its own, so that a test sees into all of them.  The tests of
`--workers` start real ones.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.host_ledger.ledger import HostLedger
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.lookup import make_lookup
from counterfoil.adapters.peers.members import Members
from counterfoil.adapters.peers.peers import Network, PeerPace, Peers
from counterfoil.adapters.peers.tls import ServerTls
from counterfoil.adapters.serving import listen, serving
from counterfoil.limits import Limits
from counterfoil.model.verdicts import New, ResumeVerdict
from counterfoil.native import KeyRing, Scope, StreamToken
from counterfoil.stores.replay.store import ReplayStore
from gateway_kit import KEYS, Exchange, Raw, Upstream


class Worker:
    """One gateway among others, with everything it said."""

    def __init__(self, upstream: str, members: Members, *, keys: KeyRing = KEYS, **settings: Any) -> None:
        limits = settings.pop("limits", Limits())
        scope = settings.pop("scope", None)
        pace = settings.pop("pace", PeerPace())
        network = settings.pop("network", None)
        #: The ledger that it shares with others, if any; open while the gateway runs.
        self.ledger: HostLedger | None = settings.pop("ledger", None)
        self.verdicts: list[ResumeVerdict] = []
        self.store = ReplayStore(limits=limits, keys=keys)
        self.peers = Peers(members, keys, pace=pace, network=network)
        self.gateway = Gateway(
            upstream=upstream,
            store=self.store,
            limits=limits,
            scope=scope,
            settings=GatewaySettings(**{"retry_ms": 50, **settings}),
            on_verdict=self.verdicts.append,
            ledger=self.ledger,
            peers=self.peers,
        )
        if self.ledger is not None:
            self.ledger.on_orphans = self.gateway.take_in_orphans
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve it while the block is open."""
        async with AsyncExitStack() as stack:
            if self.ledger is not None:
                await stack.enter_async_context(self.ledger)
            self.port = await stack.enter_async_context(serving(self.gateway))
            yield

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def resumed(self) -> list[ResumeVerdict]:
        return [verdict for verdict in self.verdicts if not isinstance(verdict, New)]

    def unlink_socket(self) -> str:
        """Make the socket vanish as it does with a later life of its place; return its path."""
        own = self.peers.own
        path = self.peers.members.directory.socket_of(own.place.worker, own.incarnation)
        os.unlink(path)
        return path

    async def drop_connections(self) -> None:
        """Let the connections to others that rest be gone, as they are with the processes at their ends."""
        for resting in self.peers._channels._resting.values():
            while resting:
                await resting.pop()[0].aclose()

    def forwards(self, outcome: str) -> int:
        return self.peers.counts[outcome]


class Workers:
    """The gateways of one host; `clients[i]` speaks to worker i, all of them in one session."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.each: list[Worker] = []
        self.clients: list[Raw] = []

    async def initialize(self, **options: Any) -> None:
        """Open a session at the first worker; every client then speaks in it."""
        await self.clients[0].initialize(**options)
        for client in self.clients[1:]:
            client.fields = dict(self.clients[0].fields)


def cursor_of(session: str, *, owner: int, keys: KeyRing = KEYS, seed: int = 0, kind: Any = "call") -> str:
    """Return an ID that `keys` signed for a stream that nobody holds."""
    name = seed.to_bytes(12, "big")
    request_id = 5 if kind == "call" else None
    token = StreamToken.mint(kind=kind, random=name, request_id=request_id, owner=owner)
    scope = Scope(session=session)
    epoch, digest = "AAAAAAAAAAA", "AAAAAAAAAAA"
    return str(keys.event_id(scope, stream=token, epoch=epoch, sequence=1, digest=digest))


class Held:
    """A call that sends two notes, waits to be let go, and answers."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.calls = 0

    async def __call__(self, exchange: Exchange) -> None:
        self.calls += 1
        await exchange.start()
        await exchange.note(1)
        await exchange.note(2)
        await self.go.wait()
        await exchange.note(3)
        await exchange.result()
        await exchange.end()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what follows by itself, such as a count behind an answer that has been read."""
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110 counters ring no bell
            await anyio.sleep(0.01)


@asynccontextmanager
async def replicas(
    upstream: Upstream,
    directory: Path,
    *,
    opens: bool = True,
    tls: ServerTls | None = None,
    has_ledger: bool = False,
    **settings: Any,
) -> AsyncIterator[Workers]:
    """Serve a scripted upstream and two gateways that reach each other by TCP only, each with its ledger."""
    host = Workers(directory)
    listeners = {name: listen() for name in ("a", "b")}
    scheme = "https" if tls is not None else "http"
    peers = tuple(
        f"{name}={scheme}://localhost:{listener.getsockname()[1]}" for name, listener in listeners.items()
    )

    def context() -> ssl.SSLContext:
        assert tls is not None
        made = ssl.create_default_context(cafile=tls.ca)
        made.load_cert_chain(tls.certificate, tls.key)
        return made

    with anyio.fail_after(60):
        async with AsyncExitStack() as stack:
            port = await stack.enter_async_context(serving(upstream))
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=20))
            for name, listener in listeners.items():
                sockets = SocketDirectory(directory / name)
                members = Members(sockets, worker=1, incarnation=7, workers=1, name=name)
                network = Network(
                    listener=listener, tls=tls, find=make_lookup(name, peers, tls=context), every_s=60
                )
                if has_ledger:
                    settings["ledger"] = HostLedger(directory / f"{name}.db", sockets)
                worker = Worker(f"http://127.0.0.1:{port}/mcp", members, network=network, **settings)
                await stack.enter_async_context(worker.serving())
                host.each.append(worker)
                host.clients.append(Raw(http, worker.url))
            await until(lambda: all(len(worker.peers.members.places()) == 2 for worker in host.each))
            if opens:
                await host.initialize()
            yield host


@asynccontextmanager
async def workers(
    upstream: Upstream,
    directory: Path,
    count: int = 2,
    *,
    opens: bool = True,
    has_ledger: bool = False,
    **settings: Any,
) -> AsyncIterator[Workers]:
    """Serve a scripted upstream and `count` gateways in front of it, which share a ledger if they are to."""
    host = Workers(directory)
    with anyio.fail_after(60):  # nothing here takes long: what waits, waits for ever
        async with AsyncExitStack() as stack:
            port = await stack.enter_async_context(serving(upstream))
            http = await stack.enter_async_context(httpx2.AsyncClient(timeout=20))
            for number in range(1, count + 1):
                sockets = SocketDirectory(directory)
                members = Members(sockets, worker=number, incarnation=7, workers=count)
                if has_ledger:
                    settings["ledger"] = HostLedger(directory / "calls.db", sockets)
                worker = Worker(f"http://127.0.0.1:{port}/mcp", members, **settings)
                await stack.enter_async_context(worker.serving())
                host.each.append(worker)
                host.clients.append(Raw(http, worker.url))
            if opens:
                await host.initialize()
            yield host
