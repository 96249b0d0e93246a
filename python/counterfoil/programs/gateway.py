"""`counterfoil gateway`: serve MCP behind a gateway that makes streams resumable.

It reads the configuration, builds the gateway and serves it until SIGTERM or SIGINT; it decides nothing.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.arrival.scopes import HeaderSource, JwtSource, Scopes, Source
from counterfoil.adapters.gateway.config import (
    GatewayConfig,
    ServeConfig,
    UpstreamConfig,
    describe_adoption,
    describe_ledger,
    load_config,
    show_config,
    split_address,
)
from counterfoil.adapters.gateway.operation.admin import AdminApp
from counterfoil.adapters.gateway.upstream.routes import Route, make_routes_to
from counterfoil.adapters.gateway.upstream.upstream_url import UrlUpstream
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.lookup import make_lookup
from counterfoil.adapters.peers.members import Members
from counterfoil.adapters.peers.peers import Network, PeerPace, Peers
from counterfoil.adapters.peers.tls import ServerTls
from counterfoil.adapters.serving import listen, listen_unix, serve_app
from counterfoil.adapters.workers.orders import WorkerOrders, read_orders
from counterfoil.adapters.workers.supervisor import Supervisor
from counterfoil.adapters.workers.workers_admin import WorkersFacts
from counterfoil.errors import ConfigError
from counterfoil.native import KeyRing
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS
from counterfoil.stores.ledger_interface import Ledger
from counterfoil.stores.replay.store import ReplayStore

if TYPE_CHECKING:
    from counterfoil.adapters.host_ledger.ledger import HostLedger

#: flag -> key of the configuration
_FLAGS = {
    "listen": "serve.listen",
    "backend": "serve.backend",
    "admin": "serve.admin",
    "keys": "serve.keys",
    "ledger": "serve.ledger",
    "scope": "serve.scope",
    "principal": "serve.principal",
    "trusted_proxy": "serve.trusted_proxies",
    "allow_host": "gateway.allow_hosts",
    "allow_origin": "gateway.allow_origins",
    "max_revision": "gateway.max_revision",
    "retry_ms": "gateway.retry_ms",
    "workers": "serve.workers",
    "self": "serve.self_name",
    "peers": "serve.peers",
    "peer_listen": "serve.peer_listen",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; every other setting has its name in the file and the environment."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file (flags and environment win)")
    parser.add_argument(
        "--upstream",
        action="append",
        metavar="URL",
        help="the MCP endpoint behind the gateway (may be repeated)",
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to listen (default 127.0.0.1:8080)")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes on that address (default 1); any resumes any stream",
    )
    parser.add_argument("--self", metavar="NAME", help="this host's name among the replicas")
    parser.add_argument(
        "--peers",
        type=lambda text: tuple(text.split(",")),
        metavar="NAME=URL,...",
        help="the replicas and where they are reached, or dns:NAME:PORT; any of them resumes any stream",
    )
    parser.add_argument("--peer-listen", metavar="HOST:PORT", help="where the other replicas reach this one")
    parser.add_argument(
        "--backend", choices=("asyncio", "trio"), help="asyncio by uvicorn (default), or trio by hypercorn"
    )
    parser.add_argument("--keys", metavar="FILE", help="the file that signs event IDs (counterfoil keys new)")
    parser.add_argument(
        "--ledger",
        metavar="FILE",
        help="the SQLite file that makes keyed calls happen once; workers share it, each replica has its own",
    )
    parser.add_argument("--scope", metavar="SOURCE", help="the tenant: header:NAME or jwt:CLAIM")
    parser.add_argument("--principal", metavar="SOURCE", help="the principal: header:NAME or jwt:CLAIM")
    parser.add_argument(
        "--trusted-proxy",
        action="append",
        metavar="NET",
        help="a proxy whose headers are believed",
    )
    parser.add_argument("--allow-host", action="append", metavar="HOST", help="a Host to answer (loopback)")
    parser.add_argument("--allow-origin", action="append", metavar="ORIGIN", help="an Origin to answer")
    parser.add_argument(
        "--max-revision",
        metavar="DATE",
        help=f"answer as a server of this MCP revision, such as {LAST_WITH_SESSIONS.revision}",
    )
    parser.add_argument("--retry-ms", type=int, metavar="N", help="the reconnection time told to clients")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="any other setting, for example gateway.beat_s=5 (may be repeated)",
    )
    parser.add_argument(
        "--admin", metavar="ADDRESS", help="where health, metrics and status are told: unix:PATH or loopback"
    )
    parser.add_argument("--observe", action="store_true", help="judge only, change no byte")
    parser.add_argument(
        "--status", action="store_true", help="print the status of the gateway behind --admin, and exit"
    )
    parser.add_argument("--json", action="store_true", help="with --status: print JSON")
    parser.add_argument("--check", action="store_true", help="print the effective configuration and exit")


def run(arguments: argparse.Namespace) -> int:
    """Serve; returns 0 after a drain that was asked for, 1 if the workers cannot be kept alive."""
    orders = read_orders()
    if orders is not None:
        log_to_stderr(worker=orders.worker)
        return anyio.run(serve_as_worker, orders, backend=orders.config.serve.backend)
    if arguments.status:
        return show_status(arguments.admin, as_json=arguments.json)

    def reread() -> GatewayConfig:
        return load_config(arguments.config, os.environ, flags_of(arguments))

    config = reread()
    if arguments.check:
        build_gateway(config)
        sys.stdout.write(describe_adoption(config) + describe_ledger(config) + show_config(config))
        return 0
    log_to_stderr()
    if config.serve.workers > 1:
        return supervise(config, reread)
    anyio.run(serve, config, backend=config.serve.backend)
    return 0


def flags_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what was given on the command line, by key of the configuration."""
    flags: dict[str, Any] = {}
    if arguments.upstream:
        flags["upstream"] = arguments.upstream
    for name, key in _FLAGS.items():
        if getattr(arguments, name) is not None:
            flags[key] = getattr(arguments, name)
    if arguments.observe:
        flags["gateway.observe"] = True
    for text in arguments.set:
        key, equals, value = text.partition("=")
        if not equals or "." not in key:
            raise ConfigError("--set", f"{text!r} is not SECTION.KEY=VALUE")
        flags[key] = value
    return flags


def build_gateway(
    config: GatewayConfig, ledger: Ledger | None = None, members: Members | None = None
) -> Gateway:
    """Build the gateway that a configuration describes, over a ledger that is open; raises `ConfigError`."""
    keys = KeyRing.from_file(config.serve.keys) if config.serve.keys is not None else KeyRing.random()
    if keys.is_ephemeral:
        _tell_ephemeral()
    return Gateway(
        upstream=[route for upstream in config.upstream for route in _routes_of(upstream)],
        store=ReplayStore(limits=config.limits, keys=keys),
        scope=Scopes(
            _source(config.serve, config.serve.scope), _source(config.serve, config.serve.principal)
        ),
        settings=config.gateway,
        limits=config.limits,
        ledger=ledger,
        peers=_peers_of(config, members, keys) if members is not None else None,
    )


def _peers_of(config: GatewayConfig, members: Members, keys: KeyRing) -> Peers:
    pace = PeerPace(stream_silence_s=2 * config.gateway.beat_s + 5, linger_s=config.serve.drain_s)
    serve_config = config.serve
    if not serve_config.peers or serve_config.peer_listen is None:
        return Peers(members, keys, pace=pace)
    find = make_lookup(serve_config.self_name or "", serve_config.peers, tls=lambda: _peer_tls(serve_config))
    host, port = split_address(serve_config.peer_listen, key="serve.peer_listen")
    certificate, key = serve_config.peer_certificate, serve_config.peer_key
    tls = None
    if certificate is not None and key is not None:
        tls = ServerTls(certificate, key, serve_config.peer_ca)
    listener = listen(host, port + members.own.place.worker - 1)
    return Peers(members, keys, pace=pace, network=Network(listener=listener, tls=tls, find=find))


def _peer_tls(serve_config: ServeConfig) -> ssl.SSLContext:
    """How a peer's certificate is verified, and which one it is shown."""
    context = ssl.create_default_context(cafile=serve_config.peer_ca)
    if serve_config.peer_certificate is not None:
        context.load_cert_chain(serve_config.peer_certificate, serve_config.peer_key)
    return context


def _tell_ephemeral() -> None:
    facts = {"event": "ephemeral-key", "note": "cursors die with this process; see --keys"}
    _log().warning("%s", json.dumps(facts))


async def serve(config: GatewayConfig) -> None:
    """Serve until SIGTERM or SIGINT, then drain; the ledger is opened before the first request."""
    if config.serve.ledger is None:
        await _serve(config, None)
        return
    from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger

    async with SqliteLedger(config.serve.ledger, limits=config.limits) as ledger:
        await _serve(config, ledger)


async def _serve(config: GatewayConfig, ledger: Ledger | None) -> None:
    with seat_among_replicas(config) as members:
        await _serve_alone(config, ledger, members)


@contextmanager
def seat_among_replicas(config: GatewayConfig) -> Iterator[Members | None]:
    """Take the place of a gateway of one worker among its replicas; None where there are none."""
    if not config.serve.peers:
        yield None
        return
    with ExitStack() as stack:
        directory = SocketDirectory(config.serve.sockets or stack.enter_context(_sockets()))
        name = config.serve.self_name or ""
        yield Members(directory, worker=1, incarnation=os.urandom(1)[0], workers=1, name=name)


async def _serve_alone(config: GatewayConfig, ledger: Ledger | None, members: Members | None) -> None:
    host, port = split_address(config.serve.listen)
    listener = listen(host, port)
    stop = anyio.Event()
    gateway = build_gateway(config, ledger, members)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_at_signal, stop, gateway)
        if config.serve.admin is not None:
            tasks.start_soon(serve_app, AdminApp(gateway), _listen_admin(config.serve.admin), stop)
        facts = {"event": "listening", "port": listener.getsockname()[1], "backend": config.serve.backend}
        _log().info("%s", json.dumps(facts))
        await serve_app(gateway, listener, stop, grace_s=config.serve.drain_s)
        tasks.cancel_scope.cancel()


async def serve_as_worker(orders: WorkerOrders) -> int:
    """Serve on the inherited socket until SIGTERM or SIGINT, or until the supervisor is gone.

    Returns 1 where the gateway itself ended: another life takes its place.
    """
    members = orders.members()
    async with open_shared_ledger(orders.config, members) as ledger:
        gateway = build_gateway(orders.config, ledger, members)
        if ledger is not None:
            ledger.on_orphans = gateway.take_in_orphans
        return await _serve_as_worker(orders, gateway)


@asynccontextmanager
async def open_shared_ledger(config: GatewayConfig, members: Members) -> AsyncIterator[HostLedger | None]:
    """Open the one ledger of this host's workers: one of them owns the file, the others ask that one."""
    if config.serve.ledger is None:
        yield None
        return
    from counterfoil.adapters.host_ledger.ledger import HostLedger

    answer_bytes = config.gateway.answer_bytes
    file = config.serve.ledger
    async with HostLedger(file, members.directory, limits=config.limits, answer_bytes=answer_bytes) as ledger:
        yield ledger


async def _serve_as_worker(orders: WorkerOrders, gateway: Gateway) -> int:
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_at_signal, stop, gateway)
        tasks.start_soon(_stop_at_end_of, orders.lifeline, stop, gateway)
        listener = socket.socket(fileno=orders.listener)
        tasks.start_soon(_stop_with, gateway, stop)
        await serve_app(gateway, listener, stop, grace_s=orders.config.serve.drain_s)
        tasks.cancel_scope.cancel()
    return 0 if gateway.is_draining else 1


async def _stop_with(gateway: Gateway, stop: anyio.Event) -> None:
    """Stop the server of a gateway that has ended by an error: it would refuse whatever comes."""
    await gateway.ended.wait()
    if not gateway.is_draining:
        _log().error(
            "%s", json.dumps({"event": "gateway-ended", "note": "an error ended it; it is told above"})
        )
    stop.set()


def supervise(config: GatewayConfig, reread: Callable[[], GatewayConfig]) -> int:
    """Run workers until SIGTERM or SIGINT; SIGHUP reads the configuration anew, worker by worker."""
    host, port = split_address(config.serve.listen)
    with ExitStack() as stack:
        listener = stack.enter_context(listen(host, port))
        directory = config.serve.sockets
        if directory is None:
            directory = stack.enter_context(_sockets())
        if config.serve.keys is None:
            file = stack.enter_context(_ephemeral_keys())
            config = msgspec.structs.replace(config, serve=msgspec.structs.replace(config.serve, keys=file))
        build_gateway(config)  # what cannot work is told once, not by every worker
        check_ledger(config)
        supervisor = Supervisor(config, listener, Path(directory), reread=reread)
        failure = anyio.run(_supervise, config, supervisor, listener, backend=config.serve.backend)
        if failure is not None:
            _log().error("%s", json.dumps({"event": "crash-loop", "why": failure}))
    return 0 if failure is None else 1


def check_ledger(config: GatewayConfig) -> None:
    """Raise LedgerInUse where something else than these workers owns the ledger."""
    if config.serve.ledger is None:
        return
    from counterfoil.stores.ledger_sqlite.owner_lock import OwnerLock

    lock = OwnerLock(Path(config.serve.ledger))
    lock.acquire()
    lock.release()


async def _supervise(config: GatewayConfig, supervisor: Supervisor, listener: socket.socket) -> str | None:
    stop = anyio.Event()

    def tell_ready() -> None:
        facts = {"event": "listening", "port": listener.getsockname()[1], "backend": config.serve.backend}
        _log().info("%s", json.dumps({**facts, "workers": config.serve.workers}))

    async with anyio.create_task_group() as outer:
        if config.serve.admin is not None:
            admin = AdminApp(WorkersFacts(supervisor))
            outer.start_soon(serve_app, admin, _listen_admin(config.serve.admin), stop)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_obey_signals, supervisor, tasks)
            failure = await supervisor.run(tell_ready)
            tasks.cancel_scope.cancel()
        stop.set()
    return failure


async def _obey_signals(supervisor: Supervisor, tasks: TaskGroup) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            if number == signal.SIGHUP:
                tasks.start_soon(supervisor.reload)
            else:
                _log().info("%s", json.dumps({"event": "draining", "signal": number.name}))
                supervisor.drain()


def _sockets() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="counterfoil-", dir=os.environ.get("RUNTIME_DIRECTORY"))


@contextmanager
def _ephemeral_keys() -> Iterator[str]:
    """Write a key that all workers share and that ends with them."""
    _tell_ephemeral()
    with NamedTemporaryFile("w", prefix="counterfoil-", suffix=".keys", encoding="ascii") as file:
        file.write(KeyRing.random().to_text())
        file.flush()
        yield file.name


def show_status(admin: str | None, *, as_json: bool) -> int:
    """Ask a running gateway for its status; returns 0, or 1 if nothing answers there."""
    import httpx2

    if admin is None:
        raise ConfigError("--admin", "says which gateway is asked: unix:PATH or HOST:PORT")
    path = admin.removeprefix("unix:") if admin.startswith("unix:") else None
    transport = httpx2.HTTPTransport(uds=path) if path is not None else None
    origin = "http://admin" if path is not None else f"http://{admin}"
    try:
        with httpx2.Client(transport=transport, trust_env=False) as client:
            facts = client.get(f"{origin}/status").json()
    except httpx2.HTTPError as error:
        print(f"counterfoil gateway: nothing answers at {admin}: {type(error).__name__}", file=sys.stderr)
        return 1
    if as_json:
        print(json.dumps(facts))
        return 0
    for name, value in {**facts, **facts.pop("store")}.items():
        if name != "store":
            print(f"{name:>18}  {value}")
    return 0


def _listen_admin(address: str) -> socket.socket:
    if address.startswith("unix:"):
        return listen_unix(address.removeprefix("unix:"))
    return listen(*split_address(address, key="serve.admin"))


async def _stop_at_signal(stop: anyio.Event, gateway: Gateway) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _log().info("%s", json.dumps({"event": "draining", "signal": number.name}))
            gateway.drain()
            stop.set()


async def _stop_at_end_of(lifeline: int, stop: anyio.Event, gateway: Gateway) -> None:
    """Stop when the other end of a pipe is closed: its process is gone, however it went."""
    await anyio.wait_readable(lifeline)
    _log().error("%s", json.dumps({"event": "draining", "why": "the supervisor is gone"}))
    gateway.drain()
    stop.set()


def _routes_of(upstream: UpstreamConfig) -> list[Route]:
    tls = ssl.create_default_context(cafile=upstream.ca) if upstream.ca is not None else None
    try:
        target = UrlUpstream(
            upstream.url,
            connect_timeout_s=upstream.connect_timeout_s,
            write_timeout_s=upstream.write_timeout_s,
            keep_alive_s=upstream.keep_alive_s,
            tls=tls,
            headers=upstream.header_policy(os.environ),
        )
    except ValueError as error:
        raise ConfigError("upstream.url", str(error)) from None
    return make_routes_to(target, upstream.url, prefix=upstream.prefix)


def _source(serve_config: ServeConfig, source: str | None) -> Source | None:
    if source is None:
        return None
    kind, _, name = source.partition(":")
    if kind == "header":
        return HeaderSource(name, serve_config.trusted_proxies)
    assert serve_config.jwt_keys is not None, "the configuration was checked"
    keys = json.loads(Path(serve_config.jwt_keys).read_text(encoding="utf-8"))
    return JwtSource(name, keys, audience=serve_config.jwt_audience, issuer=serve_config.jwt_issuer)


def _log() -> logging.Logger:
    return logging.getLogger("counterfoil.gateway")


class _WorkerFormatter(logging.Formatter):
    """Names the worker in each line: all of them write one log."""

    def __init__(self, worker: int) -> None:
        super().__init__("%(message)s")
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        is_object = line.startswith("{") and line.endswith("}") and len(line) > 2
        return f'{line[:-1]},"worker":{self._worker}}}' if is_object else line


def log_to_stderr(*, worker: int | None = None) -> None:
    """One line per event on stderr: our lines are JSON objects already."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s") if worker is None else _WorkerFormatter(worker))
    logger = logging.getLogger("counterfoil")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
