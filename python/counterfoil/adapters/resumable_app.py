"""One line in front of any MCP server: the gateway, with the server's own ASGI app as its upstream.

Nothing of the server is replaced and nothing inside of it is read; what it sends is kept behind it, so a call
goes on when its client has gone, and is resumed from what was kept.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, cast

from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.arrival.guards import ANY
from counterfoil.adapters.gateway.arrival.scopes import ScopeOf
from counterfoil.adapters.gateway.operation.lifespan import run_lifespan
from counterfoil.adapters.gateway.operation.verdict_log import OnVerdict
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.gateway.upstream.upstream_app import AppUpstream
from counterfoil.adapters.gateway.wire.asgi import ASGIApp, Receive, Scope, Send
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.members import Members
from counterfoil.adapters.peers.peers import Peers
from counterfoil.adapters.peers.shared_keys import share_keys
from counterfoil.errors import ConfigError, GatewayNotRunning
from counterfoil.limits import Limits
from counterfoil.stores.interface import ReplayLog
from counterfoil.stores.ledger_interface import Ledger
from counterfoil.stores.replay.store import ReplayStore

#: How server objects make their app: FastMCP, then the SDK's servers of both majors.
_APP_MAKERS = ("http_app", "streamable_http_app")


class ResumableApp:
    """An ASGI app; made by `resumable_app`.

    Serve it, or mount it and open `running()` in the lifespan of the app that holds it.
    """

    def __init__(
        self,
        app: ASGIApp,
        store: ReplayStore | ReplayLog | None,
        scope: ScopeOf | None,
        on_verdict: OnVerdict | None,
        settings: GatewaySettings,
        limits: Limits | None,
        sockets: str | os.PathLike[str] | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
    ) -> None:
        #: The server's own app.
        self.app = app
        #: What is kept; a store that was not given is made when the app starts.
        self.store = store
        self.settings = settings
        self._scope = scope
        self._on_verdict = on_verdict
        self._limits = limits
        self._sockets = sockets
        self._ledger = ledger
        self._gateway: Gateway | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the server's lifespan and the gateway while the block is open."""
        async with AsyncExitStack() as stack:
            # Here and not earlier: a store or ledger of before a fork serves no process behind it.
            peers = stack.enter_context(self._seated()) if self._sockets is not None else None
            ledger = await self._open_ledger(stack, peers)
            if self.store is None:
                keys = peers.keys if peers is not None else None
                self.store = ReplayStore(limits=self._limits, keys=keys)
            await stack.enter_async_context(self._running(self.store, peers, ledger))
            yield

    async def _open_ledger(self, stack: AsyncExitStack, peers: Peers | None) -> Ledger | None:
        """Open the ledger until the app ends; one that was given open is left so.

        Where there are several processes, one of them owns the file and the others ask that one.
        """
        ledger: Any = self._ledger
        if isinstance(ledger, str | os.PathLike):
            if peers is not None:
                from counterfoil.adapters.host_ledger.ledger import HostLedger

                answer_bytes = self.settings.answer_bytes
                ledger = HostLedger(
                    os.fspath(ledger),
                    peers.members.directory,
                    limits=self._limits,
                    answer_bytes=answer_bytes,
                )
                ledger.on_orphans = self._take_in_orphans
            else:
                from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger

                ledger = SqliteLedger(ledger, limits=self._limits)
        if ledger is not None and not getattr(ledger, "is_open", True):
            await stack.enter_async_context(ledger)
        return cast("Ledger | None", ledger)

    def _take_in_orphans(self) -> None:
        if self._gateway is not None:
            self._gateway.take_in_orphans()

    @contextmanager
    def _seated(self) -> Iterator[Peers]:
        """Take a place among the processes that serve this app."""
        assert self._sockets is not None
        directory = SocketDirectory(self._sockets)
        with directory.seat() as (worker, incarnation):
            members = Members(directory, worker=worker, incarnation=incarnation, keeps_sessions=True)
            yield Peers(members, share_keys(directory))

    @asynccontextmanager
    async def _running(
        self, store: ReplayStore | ReplayLog, peers: Peers | None, ledger: Ledger | None
    ) -> AsyncIterator[None]:
        gateway = Gateway(
            upstream=AppUpstream(self.app),
            store=store,
            scope=self._scope,
            settings=self.settings,
            limits=self._limits,
            on_verdict=self._on_verdict,
            ledger=ledger,
            peers=peers,
        )
        async with gateway.running():
            self._gateway = gateway
            try:
                yield
            finally:
                self._gateway = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what is not HTTP goes to the server's app as it is."""
        if scope["type"] == "lifespan":
            await run_lifespan(self.running(), receive, send)
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        elif self._gateway is None:
            raise GatewayNotRunning(
                "the app does not run: serve it with lifespan (uvicorn: --lifespan on), or open `running()`"
            )
        else:
            await self._gateway(scope, receive, send)


def resumable_app(
    server_or_app: object,
    *,
    store: ReplayStore | ReplayLog | None = None,
    scope: ScopeOf | None = None,
    on_verdict: OnVerdict | None = None,
    limits: Limits | None = None,
    sockets: str | os.PathLike[str] | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    **options: Any,
) -> ResumableApp:
    """Return an ASGI app that serves `server_or_app` and makes what it serves resumable.

    `server_or_app` is a server object of the MCP SDK (major 1 or 2) or of FastMCP, or any ASGI app that
    speaks MCP over streamable HTTP; a server object gets the app that it makes by default, so pass the app
    where that needs arguments.  `scope` (`scope_from_header`) says whose a request is; without it callers are
    told apart by their session.  `on_verdict` is called with every verdict.  `limits` bound the store that is
    made at start if none is given, and the events that are relayed.  `sockets` is a directory of this user's
    alone by which several processes of one app (`uvicorn --workers N`) find each other: a session lives in
    the process that opened it, and what reaches another one is passed on.

    `ledger` keeps what a call became of through a restart and `kill -9`: it honours the keys that calls give,
    and adoption finds what a former life left (`docs/adoption.md`).  It is a file's name, or a ledger; one
    that is not open is opened when the app starts and closed when it ends; starting raises what opening it
    raises.  With `sockets` it is a file's name: one of the processes owns the file and serves the others.

    `options` are those of the gateway (`GatewaySettings`), with one other default: hosts and origins are the
    server's to check, so all are allowed here.  Raises TypeError for something else than an app or a server,
    and `ConfigError` for an option that does not exist or cannot work.
    """
    unknown = sorted(options.keys() - set(GatewaySettings.__struct_fields__))
    if unknown:
        raise ConfigError(unknown[0], "no such option; see GatewaySettings")
    if sockets is not None and store is not None:
        raise ConfigError("sockets", "the processes share a key of their own: leave the store to the app")
    if sockets is not None and ledger is not None and not isinstance(ledger, str | os.PathLike):
        raise ConfigError("ledger", "the processes share one: give the name of its file")
    settings = GatewaySettings(**{"allow_hosts": (ANY,), "allow_origins": (ANY,), **options})
    return ResumableApp(_app_of(server_or_app), store, scope, on_verdict, settings, limits, sockets, ledger)


def _app_of(server_or_app: object) -> ASGIApp:
    for name in _APP_MAKERS:
        make = getattr(server_or_app, name, None)
        if callable(make):
            return cast(ASGIApp, make())
    if callable(server_or_app):
        return cast(ASGIApp, server_or_app)
    raise TypeError(
        f"{type(server_or_app).__name__} is neither an ASGI app nor a server that makes one by "
        f"{' or '.join(_APP_MAKERS)}: pass the ASGI app"
    )
