"""The narrow port to what stands behind the gateway: one request in; status, headers and body pieces out.

Implemented over a URL (`upstream_url`) and over an ASGI app in this process (`upstream_app`).
The gateway's legs call it; nothing here knows of MCP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

Headers = tuple[tuple[bytes, bytes], ...]


class InboundLeg(msgspec.Struct, frozen=True, kw_only=True):
    """The connection that a request came by, as ASGI tells it: an app in this process may look at it."""

    host: bytes | None = None
    scheme: str = "http"
    root_path: str = ""
    client: tuple[str, int] | None = None
    server: tuple[str, int | None] | None = None


class UpstreamRequest(msgspec.Struct, frozen=True):
    """One request to the upstream: `target` is the path behind the mount point with its query, as sent.

    `is_rooted`: it is the whole path at the upstream's origin.
    """

    method: str
    target: bytes
    headers: Headers
    body: bytes = b""
    leg: InboundLeg = InboundLeg()
    is_rooted: bool = False


#: Takes one piece of a body; returns what has to be awaited before the next one comes, None if nothing.
Take = Callable[[bytes], Awaitable[None] | None]


async def finish(rest: Awaitable[None] | None) -> None:
    """Await what a `Take` returned."""
    if rest is not None:
        await rest


class UpstreamAnswer(Protocol):
    """The head of an answer, and its body piece by piece."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers:
        """Field names in lower case, in the order received."""
        ...

    async def deliver(self, take: Take) -> None:
        """Hand every further piece to `take`, one after the other; return when the body has ended.

        `take` may run in a task that is not the caller's.  Raises what `take` raised, and hands over no more
        then; otherwise as `receive`, which is not called from here on.
        """
        ...

    async def receive(self) -> bytes:
        """Return the next piece of the body as it arrives, `b""` once it has ended.

        Raises `UpstreamBroken` when it breaks off.  After a cancelled `receive` nothing more is received.
        """
        ...


class Upstream(Protocol):
    """Something that answers requests.

    One with a `name` is told from others by it, in every process: the name is part of what makes calls
    identical.
    """

    def running(self) -> AbstractAsyncContextManager[None]:
        """Hold what calls need (connections, the lifespan of an app) while the block is open."""
        ...

    def call(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamAnswer]:
        """Send a request and wait for the head of its answer; leaving the block closes the exchange.

        Raises `UpstreamUnreachable` when nothing of the request can have arrived, `UpstreamBroken` when it
        may have.  May be cancelled: the exchange is closed then, which is no cancellation of the work.
        """
        ...


def header_of(headers: Headers, name: bytes) -> bytes | None:
    """Return the first field called `name` (in lower case)."""
    return next((value for key, value in headers if key == name), None)


def is_stream(answer: UpstreamAnswer) -> bool:
    """Whether an answer is an event stream."""
    kind = header_of(answer.headers, b"content-type") or b""
    return answer.status == 200 and kind.partition(b";")[0].strip().lower() == b"text/event-stream"
