"""The upstream's standalone stream of each session: read once, whoever of its client's connections is there.

A leg goes on while its session lives or somebody reads; what breaks its history gives the stream a new epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import msgspec
from anyio.abc import TaskGroup

from counterfoil.adapters.gateway.upstream.driven import Driven, has_ids, settings_for
from counterfoil.adapters.gateway.wire.upstream_port import (
    Headers,
    Upstream,
    UpstreamAnswer,
    UpstreamRequest,
    header_of,
    is_stream,
)
from counterfoil.errors import (
    CounterfoilError,
    LimitExceeded,
    ParserClosed,
    SessionEnded,
    StoreFull,
    StreamEnded,
    UnknownStream,
    UpstreamError,
)
from counterfoil.limits import Limits
from counterfoil.model.tokens import StreamKind
from counterfoil.native import Scope, StreamToken
from counterfoil.protocol.revisions import capabilities_of
from counterfoil.stores.interface import ReplayLog

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 30.0


class Refusal(msgspec.Struct, frozen=True):
    """What the upstream answered instead of a stream."""

    status: int
    headers: Headers
    body: bytes


class Losses:
    """Tells the connections of a standalone stream that its history broke."""

    def __init__(self) -> None:
        self._happened = anyio.Event()

    def ring(self) -> None:
        self._happened.set()
        self._happened = anyio.Event()

    async def wait(self) -> None:
        """Return at the next loss."""
        await self._happened.wait()


class StandaloneLegs:
    """The legs that run, by scope."""

    def __init__(self, log: ReplayLog, limits: Limits, *, head_s: float, linger_s: float) -> None:
        self._log = log
        self._limits = limits
        self._head_s = head_s
        self._linger_s = linger_s
        self._legs: dict[Scope, _Leg] = {}

    async def ensure(
        self, tasks: TaskGroup, scope: Scope, upstream: Upstream, request: UpstreamRequest
    ) -> Refusal | None:
        """Start the session's leg unless it runs; return what the upstream answered if it has no stream.

        An upstream that does not answer within `head_s` is taken to have one.
        """
        leg = self._legs.get(scope)
        if leg is None:
            leg = self._legs[scope] = _Leg(self._log, self._limits, scope, upstream, request)
            tasks.start_soon(self._run, leg)
        with anyio.move_on_after(self._head_s):
            await leg.decided.wait()
        return leg.refusal

    @contextmanager
    def reading(self, tasks: TaskGroup, scope: Scope) -> Iterator[None]:
        """Note that a client reads the session's stream; the leg is closed a while after the last one."""
        leg = self._legs.get(scope)
        if leg is None:
            yield
            return
        leg.readers += 1
        try:
            yield
        finally:
            leg.readers -= 1
            if not leg.readers and self._legs.get(scope) is leg:
                tasks.start_soon(self._close_unread, leg)

    async def _close_unread(self, leg: _Leg) -> None:
        await anyio.sleep(self._linger_s)
        if not leg.readers and self._legs.get(leg.scope) is leg:
            self.stop(leg.scope)

    def losses_of(self, scope: Scope) -> Losses | None:
        """Return what rings when the session's stream loses history; None where no leg runs."""
        leg = self._legs.get(scope)
        return leg.losses if leg is not None else None

    def stop(self, scope: Scope) -> None:
        """Close the leg of a session that ended."""
        leg = self._legs.pop(scope, None)
        if leg is not None:
            leg.cancel.cancel()

    async def _run(self, leg: _Leg) -> None:
        try:
            with leg.cancel:
                await leg.run()
        finally:
            if self._legs.get(leg.scope) is leg:
                del self._legs[leg.scope]


class _Leg:
    def __init__(
        self, log: ReplayLog, limits: Limits, scope: Scope, upstream: Upstream, request: UpstreamRequest
    ) -> None:
        self.scope = scope
        self.decided = anyio.Event()
        self.refusal: Refusal | None = None
        self.cancel = anyio.CancelScope()
        self.losses = Losses()
        self.readers = 0
        self._log = log
        self._limits = limits
        self._upstream = upstream
        self._request = request
        self._stream: StreamToken | None = None
        self._was_open = False

    async def run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                async with self._upstream.call(self._request) as answer:
                    if is_stream(answer):
                        pause_s = _FIRST_PAUSE_S
                        await self._relay(answer)
                    elif not await self._goes_on_without(answer):
                        return
            except (UpstreamError, StoreFull):
                self.decided.set()
            except (SessionEnded, StreamEnded, UnknownStream):
                return
            except (LimitExceeded, ParserClosed):
                pass  # what it sends cannot be read: the history breaks, and the connection begins anew
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _relay(self, answer: UpstreamAnswer) -> None:
        if self._stream is None:
            self._stream = await self._log.open_standalone(self.scope)
        if self._was_open:
            # Nothing proves that nothing was sent meanwhile.
            await self._log.renew_epoch(self.scope, self._stream)
            self.losses.ring()
        self._was_open = True
        self.decided.set()
        stream, piece = self._stream, await answer.receive()
        if has_ids(piece):
            await self._drive(stream, answer, piece)
            return
        relay = await self._log.open_relay(self.scope, stream, limits=self._limits)

        async def take(piece: bytes) -> None:
            (await relay.feed(piece)).check()

        await take(piece)
        await answer.deliver(take)

    async def _drive(self, stream: StreamToken, answer: UpstreamAnswer, first: bytes) -> None:
        async def append(data: bytes) -> None:
            await self._log.append(self.scope, stream, [data])

        async def lose() -> None:
            await self._log.renew_epoch(self.scope, stream)
            self.losses.ring()

        revision = header_of(self._request.headers, b"mcp-protocol-version")
        knows = capabilities_of(revision.decode("latin-1") if revision is not None else None)
        settings = settings_for(
            StreamKind.STANDALONE,
            revision=knows.revision if knows is not None else "",
            session=self.scope.session,
            limits=self._limits,
        )
        await Driven(self._upstream, self._request, append, settings, lose).run(answer, first)

    async def _goes_on_without(self, answer: UpstreamAnswer) -> bool:
        """Say whether to ask again: one that is busy has a stream, and so may one that had it once."""
        if answer.status in (409, 429):
            # It still has another reader, such as a gateway that has just died: clients are not told.
            self.decided.set()
            return True
        if self._was_open:
            return answer.status >= 500
        body = b""
        with suppress(CounterfoilError):
            while len(body) < 65_536 and (piece := await answer.receive()):
                body += piece
        self.refusal = Refusal(answer.status, answer.headers, body)
        self.decided.set()
        return False
