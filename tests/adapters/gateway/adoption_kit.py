"""What tests of adoption share: agents of one gateway, and a tool that counts its runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
from counterfoil.adapters.gateway.arrival.scopes import HeaderSource, Scopes
from counterfoil.adapters.gateway.upstream.routes import make_routes_to
from counterfoil.adapters.gateway.upstream.upstream_url import UrlUpstream
from counterfoil.adapters.serving import serving
from gateway_kit import Behind, Exchange, Raw, Stream, Upstream, reading


class Tool:
    """An upstream tool that counts its runs; each runs until the test lets it go on."""

    def __init__(self) -> None:
        self.runs: list[Exchange] = []
        #: Whether a run opens its stream at once.
        self.opens = True

    async def __call__(self, x: Exchange) -> None:
        if x.message["method"] == "tools/list":
            tools = [{"name": "look", "annotations": {"readOnlyHint": True}}, {"name": "order"}]
            await x.json({"jsonrpc": "2.0", "id": x.message["id"], "result": {"tools": tools}})
            return
        if self.opens:
            await x.start()
        self.runs.append(x)
        await x.wait_gone()

    async def started(self, runs: int) -> None:
        await until(lambda: len(self.runs) >= runs)

    async def finish(self, which: int = 0, value: Any = None) -> None:
        await self.runs[which].result(f"run {which + 1}" if value is None else value)
        await self.runs[which].end()


async def until(holds: Any) -> None:
    """Wait until something is so; a minute, so that a busy machine breaks no test."""
    for _ in range(6_000):
        if holds():
            return
        await anyio.sleep(0.01)
    raise AssertionError("it did not come true")


class Agents:
    """Clients of one gateway, each with a session of its own."""

    def __init__(
        self, tool: Tool, upstream: Upstream, behind: Behind, http: httpx2.AsyncClient, url: str
    ) -> None:
        self.tool = tool
        self.upstream = upstream
        self.behind = behind
        self.http = http
        self.url = url
        #: The ledger, where the test has one to meddle with.
        self.ledger: Any = None

    async def session(
        self, principal: str | None = "alice", capabilities: Any = None, *, route: str = "/mcp", **fields: str
    ) -> Agent:
        raw = Raw(self.http, self.url)
        raw.url = f"{self.url}{route}"
        if principal is not None:
            raw.fields["x-user"] = principal
        raw.fields |= {name.replace("_", "-"): value for name, value in fields.items()}
        await raw.initialize(capabilities)
        return Agent(raw)

    @property
    def counts(self) -> Any:
        adoption = self.behind.gateway.adoption
        assert adoption is not None
        return adoption.counts

    def notices(self, rpc: str) -> list[Exchange]:
        return [x for x in self.upstream.seen if x.message is not None and x.message.get("method") == rpc]


class Agent:
    """One session."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    @asynccontextmanager
    async def call(
        self,
        arguments: Any = None,
        *,
        tool: str = "order",
        request_id: Any = 1,
        meta: Any = None,
        path: str = "",
        more: Any = None,
    ) -> AsyncIterator[Stream]:
        params = {"name": tool, "arguments": arguments or {"item": 1}, **(more or {})}
        if meta is not None:
            params["_meta"] = meta
        message = self.raw.message("tools/call", params, request_id)
        url = self.raw.url.replace("/mcp", path + "/mcp") if path else self.raw.url
        sent = self.raw.http.stream("POST", url, json=message, headers=self.raw.fields)
        async with sent as answer, reading(answer) as stream:
            yield stream

    async def say(self, method: str, params: Any = None) -> httpx2.Response:
        return await self.raw.post(method, params, request_id=None)

    async def end(self) -> httpx2.Response:
        return await self.raw.http.delete(self.raw.url, headers=self.raw.fields)


@asynccontextmanager
async def agents(
    *,
    principal: bool = True,
    tenant: bool = False,
    routes: tuple[str, ...] = (),
    on_get: Any = None,
    prime_after_ms: int = 20,
    tool: Tool | None = None,
    upstream_port: int = 0,
    **settings: Any,
) -> AsyncIterator[Agents]:
    """Serve a tool and a gateway in front of it; with `upstream_port` the tool is served there already.

    `routes` are path prefixes that all lead there.
    """
    tool = tool or Tool()
    upstream = Upstream(tool, on_get)
    sources = {"tenant": "x-tenant"} if tenant else {}
    sources |= {"principal": "x-user"} if principal else {}
    scope = Scopes(**{part: HeaderSource(field, ["127.0.0.1"]) for part, field in sources.items()})
    given = {"adopt_return_s": 0.3, "retry_ms": 50, "prime_after_ms": prime_after_ms, **settings}
    async with AsyncExitStack() as stack:
        port = upstream_port or await stack.enter_async_context(serving(upstream))
        url = f"http://127.0.0.1:{port}/mcp"
        leg = UrlUpstream(url)
        each = [route for prefix in routes for route in make_routes_to(leg, url, prefix=prefix)]
        behind = Behind(each or url, scope=scope if sources else None, **given)
        own = await stack.enter_async_context(serving(behind.gateway))
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=60))
        yield Agents(tool, upstream, behind, http, f"http://127.0.0.1:{own}")


async def answer_of(stream: Stream) -> Any:
    """Return the answer, whatever notes come before it."""
    while True:
        message = await stream.message()
        if "result" in message or "error" in message:
            return message


def without_session(world: Agents, principal: str | None = "alice") -> Agent:
    """Return a client of the revision without sessions."""
    raw = Raw(world.http, world.url)
    raw.fields["mcp-protocol-version"] = "2026-07-28"
    if principal is not None:
        raw.fields["x-user"] = principal
    return Agent(raw)
