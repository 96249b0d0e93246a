"""The gateway as an ASGI app: reads a request, checks it, and hands it to the part that answers it.

Mount it, or serve it by itself; it must run (its lifespan, or `running()`) before it answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.across.across import Across
from counterfoil.adapters.gateway.across.inbox import GatewayInbox
from counterfoil.adapters.gateway.adoption.front import Adoption
from counterfoil.adapters.gateway.answering.answering import Answering
from counterfoil.adapters.gateway.arrival.guards import Guards
from counterfoil.adapters.gateway.arrival.inbound import Inbound, read_inbound
from counterfoil.adapters.gateway.arrival.json_bounds import check_json
from counterfoil.adapters.gateway.arrival.metadata import asks_for_metadata
from counterfoil.adapters.gateway.arrival.scopes import Identity, ScopeOf, make_scopes
from counterfoil.adapters.gateway.exchanges.exchange import Exchange
from counterfoil.adapters.gateway.operation.lifespan import run_lifespan
from counterfoil.adapters.gateway.operation.metrics import (
    Metrics,
    SharedLedger,
    write_ledger_metrics,
    write_peer_metrics,
)
from counterfoil.adapters.gateway.operation.verdict_log import OnVerdict, VerdictLog
from counterfoil.adapters.gateway.settings import GatewaySettings
from counterfoil.adapters.gateway.upstream.passthrough import AnswerBroken, pass_through
from counterfoil.adapters.gateway.upstream.routes import Found, Route, UpstreamLike, make_routes
from counterfoil.adapters.gateway.wire.answers import ClientGone, read_body, send_refusal
from counterfoil.adapters.gateway.wire.asgi import NotedSend, Receive, Scope, Send
from counterfoil.adapters.gateway.wire.headers import pass_request_headers
from counterfoil.adapters.gateway.wire.upstream_port import UpstreamRequest
from counterfoil.adapters.peers.carrying import AnswerCut
from counterfoil.adapters.peers.peers import Peers
from counterfoil.adapters.peers.wire import Forwarded
from counterfoil.errors import (
    ConfigError,
    GatewayNotRunning,
    PeerBroken,
    RequestOverLimit,
    RequestRefused,
    UpstreamBroken,
    UpstreamUnreachable,
)
from counterfoil.limits import Limits
from counterfoil.stores.interface import ReplayLog
from counterfoil.stores.ledger_interface import Ledger
from counterfoil.stores.memory import MemoryReplayLog
from counterfoil.stores.replay.statistics import ReplayStatistics
from counterfoil.stores.replay.store import ReplayStore


class Gateway:
    """A reverse proxy for MCP over streamable HTTP that makes what passes resumable.

    `upstream` is a URL, an ASGI app, a function that names a URL for a request, or a list of `Route`s.
    `scope` says whose a request is (`scope_from_header`, or a function of the request); without it callers
    are told apart by their MCP session.  `ledger` honours the keys that calls give; it is open while the
    gateway runs.
    `peers` are the other processes of the same gateway, each with a store of its own under the same keys.
    """

    def __init__(
        self,
        *,
        upstream: UpstreamLike | list[Route],
        store: ReplayStore | ReplayLog | None = None,
        scope: ScopeOf | None = None,
        settings: GatewaySettings | None = None,
        limits: Limits | None = None,
        on_verdict: OnVerdict | None = None,
        ledger: Ledger | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.settings = settings or GatewaySettings()
        self.metrics = Metrics()
        owner = peers.own.number if peers is not None else 0
        self._log = MemoryReplayLog(store, owner=owner) if isinstance(store, ReplayStore) else store
        if peers is not None and not isinstance(self._log, MemoryReplayLog):
            raise ConfigError("peers", "processes that ask each other keep a ReplayStore each")
        self._peers = peers
        self._ledger: object = ledger
        self._across = Across(peers, sessions=self.settings.known_sessions) if peers is not None else None
        self._answering = Answering(
            self.settings,
            self._log,
            limits or Limits(),
            VerdictLog(self.metrics, on_verdict),
            self.metrics,
            ledger,
            self._across,
        )
        #: Whether it prepares to stop.
        self.is_draining = False
        #: Set when it has stopped running, by whatever.
        self.ended = anyio.Event()
        self._routes = make_routes(upstream)
        self._scopes = make_scopes(scope)
        self._guards = Guards(self.settings.allow_hosts, self.settings.allow_origins)
        self._tasks: TaskGroup | None = None

    @property
    def adoption(self) -> Adoption | None:
        """Who took over whose calls, as counts; None without a store."""
        return self._answering.adoption

    @property
    def is_ready(self) -> bool:
        """Whether new requests should come here: it runs, and does not drain."""
        return self._tasks is not None and not self.is_draining

    def drain(self) -> None:
        """Prepare to stop: no longer ready, standalone streams end and may come again, calls go on."""
        self.is_draining = True
        self._answering.draining.begin()
        if self._peers is not None:
            self._peers.note_drain()

    async def statistics(self) -> ReplayStatistics | None:
        """Return the counters of the store; None without one."""
        return await self._log.statistics() if self._log is not None else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the gateway while the block is open; an app that mounts it opens this in its own lifespan."""
        async with anyio.create_task_group() as tasks, self._routes.running(tasks), self._listening(tasks):
            if self.adoption is not None:
                await self.adoption.restore(tasks)
            self._tasks = tasks
            try:
                yield
                if self._peers is not None and self.is_draining:
                    await self._peers.linger(lambda: bool(self._answering.open_calls))
            finally:
                self._tasks = None
                if self.adoption is not None:
                    self.adoption.stop()
                self.ended.set()
                tasks.cancel_scope.cancel()

    def take_in_orphans(self) -> None:
        """Take in what a process that shares the ledger has left: it died, or has ended."""
        if self._tasks is not None and self.adoption is not None:
            self._tasks.start_soon(self.adoption.restore, self._tasks)

    @asynccontextmanager
    async def _listening(self, tasks: TaskGroup) -> AsyncIterator[None]:
        """Be there for the other processes, if there are any."""
        if self._peers is None or self._across is None or self._log is None:
            yield
            return
        inbox = GatewayInbox(self, self._answering, self._log, self._across, tasks)
        self._across.tasks = tasks
        try:
            async with self._peers.running(inbox, max_body_bytes=self.settings.body_bytes):
                await self._across.learn_offers()
                yield
        finally:
            self._across.tasks = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await run_lifespan(self.running(), receive, send)
        elif scope["type"] == "http":
            await self._answer_or_refuse(scope, receive, send)
        else:
            raise RuntimeError(f"the gateway speaks HTTP only, not {scope['type']}")

    async def _answer_or_refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(noted: Send, tasks: TaskGroup) -> None:
            inbound = read_inbound(
                scope,
                max_header_bytes=self.settings.header_bytes,
                max_field_bytes=self.settings.header_field_bytes,
            )
            self._guards.check(inbound)
            if asks_for_metadata(inbound.method, inbound.target):
                await self._pass_metadata(inbound, receive, noted)
                return
            identity = self._scopes.identify(inbound)
            body = await self._read_body(receive)
            check_json(body, max_depth=self.settings.json_depth, max_nodes=self.settings.json_nodes)
            await self._answer(inbound, identity, body, receive, noted, tasks)

        await self._refuse_what_fails(answer, send)

    async def answer_forwarded(self, request: Forwarded, receive: Receive, send: Send) -> None:
        """Answer a request that another process of this gateway took, checked and passed on."""
        if self._tasks is None:
            return  # as good as gone

        async def answer(noted: Send, tasks: TaskGroup) -> None:
            identity = Identity(request.tenant, request.principal)
            await self._answer(
                request.inbound, identity, request.body, receive, noted, tasks, via=request.via
            )

        await self._refuse_what_fails(answer, send)

    async def report(self) -> tuple[bytes, bytes]:
        """Return the metrics of this process as Prometheus text, and its status as JSON."""
        statistics = await self.statistics()
        counts = self.adoption.counts if self.adoption is not None else None
        metrics = self.metrics.write(statistics, counts)
        if self._peers is not None:
            metrics += write_peer_metrics(self._peers)
        if isinstance(self._ledger, SharedLedger):
            metrics += write_ledger_metrics(self._ledger)
        facts = {"ready": self.is_ready, "observe": self.settings.observe, "store": statistics}
        return metrics, msgspec.json.encode(facts)

    async def _refuse_what_fails(
        self, answer: Callable[[Send, TaskGroup], Awaitable[None]], send: Send
    ) -> None:
        tasks = self._tasks
        if tasks is None:
            raise GatewayNotRunning("the gateway does not run: serve it with lifespan, or open `running()`")
        noted = NotedSend(send)
        try:
            await answer(noted, tasks)
            return
        except ClientGone:
            return
        except (AnswerBroken, AnswerCut):
            return  # an answer that is not completed makes the server close the connection
        except RequestRefused as refused:
            refusal = refused
        except UpstreamUnreachable as error:
            refusal = RequestRefused(502, "upstream", f"{error}; the request was not applied")
        except (UpstreamBroken, PeerBroken) as error:
            refusal = RequestRefused(502, "upstream", f"{error}; what became of the request is not known")
        if isinstance(refusal, RequestOverLimit):
            self.metrics.note_limit(refusal.field)
        if not noted.was_used:
            await send_refusal(send, refusal)

    async def _read_body(self, receive: Receive) -> bytes:
        return await read_body(
            receive, max_bytes=self.settings.body_bytes, within_s=self.settings.body_deadline_s
        )

    async def _pass_metadata(self, inbound: Inbound, receive: Receive, send: Send) -> None:
        """Pass what a client asks for before it has a token, which says nothing of who it is."""
        found = await self._routes.find(inbound)
        request = self._request_to(found, inbound, await self._read_body(receive))
        await pass_through(found.upstream, request, receive, send)

    def _request_to(self, found: Found, inbound: Inbound, body: bytes) -> UpstreamRequest:
        headers = pass_request_headers(
            inbound.headers,
            strip=self._scopes.internal_fields,
            passes_cursor=self._log is None or self.settings.observe,
        )
        return UpstreamRequest(
            inbound.method, found.target, headers, body, inbound.leg, is_rooted=found.is_rooted
        )

    async def _answer(
        self,
        inbound: Inbound,
        identity: Identity,
        body: bytes,
        receive: Receive,
        send: Send,
        tasks: TaskGroup,
        *,
        via: str | None = None,
    ) -> None:
        found = await self._routes.find(inbound)
        request = self._request_to(found, inbound, body)
        exchange = Exchange(inbound, identity, found.upstream, request, receive, send, via)
        await self._answering.answer(exchange, tasks)
