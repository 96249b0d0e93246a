"""Reads `--peers`: names with their URLs, or a DNS name behind which every replica has an address.

An address found by DNS is the replica's name, so `--self` is the address that the others see.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

import anyio

from counterfoil.adapters.peers.members import Replica
from counterfoil.errors import ConfigError


def make_lookup(
    own: str, peers: tuple[str, ...], *, tls: Callable[[], ssl.SSLContext]
) -> Callable[[], Awaitable[Mapping[str, Replica]]]:
    """Return what says who the other replicas are; raises `ConfigError`.

    `peers` are `NAME=URL`, the own name among them or not, or one `dns:NAME:PORT` (`dns+tls:` with TLS).
    """
    dns = [text for text in peers if text.startswith(("dns:", "dns+tls:"))]
    if dns:
        if len(peers) > 1:
            raise ConfigError("serve.peers", "a dns: entry stands alone")
        kind, _, rest = dns[0].partition(":")
        name, _, port = rest.rpartition(":")
        if not name or not port.isdigit():
            raise ConfigError("serve.peers", f"{dns[0]!r} is not dns:NAME:PORT")
        context = tls() if kind == "dns+tls" else None
        return _Dns(own, name, int(port), context)
    replicas = {}
    for text in peers:
        replica = _read_replica(text, tls)
        if replica.name != own:
            replicas[replica.name] = replica

    async def find() -> Mapping[str, Replica]:
        return replicas

    return find


def _read_replica(text: str, tls: Callable[[], ssl.SSLContext]) -> Replica:
    name, equals, url = text.partition("=")
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    is_whole = name and equals and parts.hostname and port and parts.path in ("", "/")
    if not is_whole or parts.scheme not in ("http", "https"):
        raise ConfigError("serve.peers", f"{text!r} is not NAME=http://HOST:PORT")
    assert parts.hostname is not None
    assert port is not None
    return Replica(name, parts.hostname, port, tls() if parts.scheme == "https" else None)


class _Dns:
    def __init__(self, own: str, name: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._own = own
        self._name = name
        self._port = port
        self._tls = tls

    async def __call__(self) -> Mapping[str, Replica]:
        found = await anyio.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM)
        addresses = {str(address[4][0]) for address in found}
        return {
            address: Replica(address, address, self._port, self._tls)
            for address in sorted(addresses)
            if address != self._own
        }
