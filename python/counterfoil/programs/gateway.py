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
from pathlib import Path
from typing import Any

import anyio

from counterfoil.adapters.gateway.admin import AdminApp
from counterfoil.adapters.gateway.application import Gateway
from counterfoil.adapters.gateway.config import (
    GatewayConfig,
    ServeConfig,
    UpstreamConfig,
    describe_adoption,
    load_config,
    show_config,
    split_address,
)
from counterfoil.adapters.gateway.routes import Route, make_routes_to
from counterfoil.adapters.gateway.scopes import HeaderSource, JwtSource, Scopes, Source
from counterfoil.adapters.gateway.upstream_url import UrlUpstream
from counterfoil.adapters.serving import listen, listen_unix, serve_app
from counterfoil.errors import ConfigError
from counterfoil.native import KeyRing
from counterfoil.protocol.revisions import LAST_WITH_SESSIONS
from counterfoil.stores.ledger_interface import Ledger
from counterfoil.stores.replay.store import ReplayStore

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
        "--backend", choices=("asyncio", "trio"), help="asyncio by uvicorn (default), or trio by hypercorn"
    )
    parser.add_argument("--keys", metavar="FILE", help="the file that signs event IDs (counterfoil keys new)")
    parser.add_argument("--ledger", metavar="FILE", help="the SQLite file that makes keyed calls happen once")
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
    """Serve; returns 0 after a drain that was asked for."""
    if arguments.status:
        return show_status(arguments.admin, as_json=arguments.json)
    config = load_config(arguments.config, os.environ, flags_of(arguments))
    if arguments.check:
        build_gateway(config)
        sys.stdout.write(describe_adoption(config) + show_config(config))
        return 0
    log_to_stderr()
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


def build_gateway(config: GatewayConfig, ledger: Ledger | None = None) -> Gateway:
    """Build the gateway that a configuration describes, over a ledger that is open; raises `ConfigError`."""
    keys = KeyRing.from_file(config.serve.keys) if config.serve.keys is not None else KeyRing.random()
    if keys.is_ephemeral:
        _log().warning(
            "%s", json.dumps({"event": "ephemeral-key", "note": "cursors die with this process; see --keys"})
        )
    return Gateway(
        upstream=[route for upstream in config.upstream for route in _routes_of(upstream)],
        store=ReplayStore(limits=config.limits, keys=keys),
        scope=Scopes(
            _source(config.serve, config.serve.scope), _source(config.serve, config.serve.principal)
        ),
        settings=config.gateway,
        limits=config.limits,
        ledger=ledger,
    )


async def serve(config: GatewayConfig) -> None:
    """Serve until SIGTERM or SIGINT, then drain; the ledger is opened before the first request."""
    if config.serve.ledger is None:
        await _serve(config, None)
        return
    from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger

    async with SqliteLedger(config.serve.ledger, limits=config.limits) as ledger:
        await _serve(config, ledger)


async def _serve(config: GatewayConfig, ledger: Ledger | None) -> None:
    host, port = split_address(config.serve.listen)
    listener = listen(host, port)
    stop = anyio.Event()
    gateway = build_gateway(config, ledger)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_at_signal, stop, gateway)
        if config.serve.admin is not None:
            tasks.start_soon(serve_app, AdminApp(gateway), _listen_admin(config.serve.admin), stop)
        facts = {"event": "listening", "port": listener.getsockname()[1], "backend": config.serve.backend}
        _log().info("%s", json.dumps(facts))
        await serve_app(gateway, listener, stop, grace_s=config.serve.drain_s)
        tasks.cancel_scope.cancel()


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


def _routes_of(upstream: UpstreamConfig) -> list[Route]:
    tls = ssl.create_default_context(cafile=upstream.ca) if upstream.ca is not None else None
    try:
        target = UrlUpstream(upstream.url, connect_timeout_s=upstream.connect_timeout_s, tls=tls)
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


def log_to_stderr() -> None:
    """One line per event on stderr: our lines are JSON objects already."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("counterfoil")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
