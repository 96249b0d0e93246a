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
from counterfoil.adapters.gateway.asgi import ASGIApp
from counterfoil.adapters.gateway.inbound import Inbound
from counterfoil.adapters.gateway.upstream import Upstream
from counterfoil.adapters.gateway.upstream_app import AppUpstream
from counterfoil.adapters.gateway.upstream_url import UrlUpstream
from counterfoil.errors import ConfigError, RequestRefused

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

    def take(self, target: bytes) -> bytes | None:
        """Return the target behind the prefix, or None where the prefix does not match whole segments."""
        if not target.startswith(self.prefix):
            return None
        rest = target[len(self.prefix) :]
        if self.is_exact:
            path, mark, query = rest.partition(b"?")
            return mark + query if path in (b"", b"/") else None
        return rest if not rest or rest[:1] in b"/?" or not self.prefix else None


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

    async def find(self, inbound: Inbound) -> tuple[Upstream, bytes]:
        """Return the upstream and the target for it; raises `RequestRefused` (404) where nothing matches."""
        for route in self._routes:
            target = route.take(inbound.target)
            if target is not None:
                return route.upstream, target
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

    async def find(self, inbound: Inbound) -> tuple[Upstream, bytes]:
        url = self._choose(inbound)
        upstream = self._upstreams.get(url)
        if upstream is None:
            if len(self._upstreams) >= _MAX_CHOSEN or self._tasks is None:
                raise RequestRefused(503, "upstream", f"more than {_MAX_CHOSEN} upstreams are in use")
            upstream = UrlUpstream(url)
            await self._tasks.start(_keep_running, upstream)
            self._upstreams[url] = upstream
        return upstream, inbound.target


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
    if prefix:
        return [Route(upstream, prefix.rstrip("/").encode(), prefix)]
    path = urlsplit(url).path.rstrip("/").encode()
    return [Route(upstream, path), Route(upstream, is_exact=True)]


def _takes_one_argument(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError):
        return False
    return True
