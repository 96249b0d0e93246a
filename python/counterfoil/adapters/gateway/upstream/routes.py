"""Which upstream a request goes to: one, one per path prefix, or what a function of the request says.

Opens each upstream once and keeps it while the gateway runs.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.arrival.inbound import Inbound
from counterfoil.adapters.gateway.arrival.metadata import MetadataPath, read_metadata_path
from counterfoil.adapters.gateway.upstream.upstream_app import AppUpstream
from counterfoil.adapters.gateway.upstream.upstream_url import UrlUpstream
from counterfoil.adapters.gateway.wire.asgi import ASGIApp
from counterfoil.adapters.gateway.wire.upstream_port import Upstream
from counterfoil.errors import ConfigError, RequestOverLimit, RequestRefused

#: A function that names the URL a request goes to.
Choose = Callable[[Inbound], str]
#: What `Gateway(upstream=...)` takes.
UpstreamLike = str | Upstream | ASGIApp | Choose

_MAX_CHOSEN = 256


class Route(msgspec.Struct, frozen=True):
    """One upstream for the paths below `prefix` (empty: every path); `name` is part of a call's identity."""

    upstream: Upstream
    prefix: bytes = b""
    name: str = ""
    is_exact: bool = False
    """Only the prefix itself, with or without a slash behind it; nothing below."""
    path: bytes | None = None
    """The upstream's own path at its origin; None where it is called in this process."""

    def take_metadata(self, asked: MetadataPath) -> bytes | None:
        """Return where the upstream keeps a document about a path of this route; None for another path."""
        rest = self.take(asked.resource)
        if rest is None or self.path is None:
            return None
        # What is asked of the mount's root is about the whole origin, there as here.
        about = rest if self.is_exact else self.path + rest
        return asked.write(about)

    def take(self, target: bytes) -> bytes | None:
        """Return the target behind the prefix, or None where the prefix does not match whole segments."""
        if not target.startswith(self.prefix):
            return None
        rest = target[len(self.prefix) :]
        if self.is_exact:
            path, mark, query = rest.partition(b"?")
            return mark + query if path in (b"", b"/") else None
        return rest if not rest or rest[:1] in b"/?" or not self.prefix else None


class Found(msgspec.Struct, frozen=True):
    """Where a request goes: an upstream, and the target there."""

    upstream: Upstream
    target: bytes
    is_rooted: bool = False


class Routes:
    """The table of routes; the longest prefix wins."""

    def __init__(self, routes: list[Route]) -> None:
        if not routes:
            raise ConfigError("upstream", "at least one is needed")
        self._routes = sorted(routes, key=lambda route: -len(route.prefix))

    @asynccontextmanager
    async def running(self, _tasks: TaskGroup) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for upstream in dict.fromkeys(route.upstream for route in self._routes):
                await stack.enter_async_context(upstream.running())
            yield

    async def find(self, inbound: Inbound) -> Found:
        """Return the upstream and the target for it; raises `RequestRefused` (404) where nothing matches."""
        asked = read_metadata_path(inbound.method, inbound.target)
        for route in self._routes:
            document = route.take_metadata(asked) if asked is not None else None
            if document is not None:
                return Found(route.upstream, document, is_rooted=True)
        for route in self._routes:
            target = route.take(inbound.target)
            if target is not None:
                return Found(route.upstream, target)
        raise RequestRefused(404, "path", "no upstream is configured for it")


class ChosenRoutes:
    """Upstreams by URL, opened when the function first names one."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._upstreams: dict[str, UrlUpstream] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self, tasks: TaskGroup) -> AsyncIterator[None]:
        self._tasks = tasks
        try:
            yield
        finally:
            self._tasks = None
            self._upstreams.clear()

    async def find(self, inbound: Inbound) -> Found:
        url = self._choose(inbound)
        upstream = self._upstreams.get(url)
        if upstream is None:
            if len(self._upstreams) >= _MAX_CHOSEN or self._tasks is None:
                raise RequestOverLimit(503, "upstreams", f"more than {_MAX_CHOSEN} are in use")
            upstream = UrlUpstream(url)
            await self._tasks.start(_keep_running, upstream)
            self._upstreams[url] = upstream
        is_rooted = read_metadata_path(inbound.method, inbound.target) is not None
        return Found(upstream, inbound.target, is_rooted=is_rooted)


async def _keep_running(upstream: UrlUpstream, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    async with upstream.running():
        task_status.started()
        await anyio.sleep_forever()


def make_routes(upstream: UpstreamLike | list[Route]) -> Routes | ChosenRoutes:
    """Read `upstream=`: a URL, an upstream, an ASGI app, a function of the request, or a list of routes."""
    if isinstance(upstream, list):
        return Routes(upstream)
    if isinstance(upstream, str):
        return Routes(make_routes_to(UrlUpstream(upstream), upstream))
    if hasattr(upstream, "running") and hasattr(upstream, "call"):
        return Routes([Route(cast(Upstream, upstream))])
    if _takes_one_argument(upstream):
        return ChosenRoutes(cast(Choose, upstream))
    return Routes([Route(AppUpstream(cast(ASGIApp, upstream)))])


def make_routes_to(upstream: UrlUpstream, url: str, *, prefix: str = "") -> list[Route]:
    """Return the routes to one URL: below `prefix`, or else under its own path and at the mount's root."""
    path = urlsplit(url).path.rstrip("/").encode()
    if prefix:
        return [Route(upstream, prefix.rstrip("/").encode(), prefix, path=path)]
    return [Route(upstream, path, path=path), Route(upstream, is_exact=True, path=path)]


def _takes_one_argument(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError):
        return False
    return True
