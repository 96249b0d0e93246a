"""An upstream stream whose events have ids: read through the client's own machine, and resumed by them.

An upstream that polls (closes early, after an id and `retry`) has lost nothing.  A verdict other than resumed
ends a call as indeterminate and gives a standalone stream a new epoch: what was lost upstream is never passed
off as a dense stream.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Awaitable, Callable

import anyio

from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.adapters.gateway.wire.upstream_port import Headers, Upstream, UpstreamAnswer, UpstreamRequest
from counterfoil.errors import UpstreamBroken, UpstreamUnreachable
from counterfoil.limits import Limits
from counterfoil.model.stream import RequestRecord
from counterfoil.model.tokens import StreamKind, Why
from counterfoil.model.verdicts import New, NotResumable, Resumed, ResumeVerdict
from counterfoil.protocol.client_stream import ClientStream, commands, inputs
from counterfoil.protocol.client_stream.settings import OnLostStream, StreamSettings

#: Appends the data of one event.
Append = Callable[[bytes], Awaitable[None]]

#: Fields of the call's POST that a GET of ours has its own of, or none.
_REPLACED = frozenset(b"accept content-type last-event-id mcp-protocol-version mcp-session-id".split())


#: Called when a standalone stream's history broke, before anything that came after it is appended.
OnLoss = Callable[[], Awaitable[None]]


class Driven:
    """One stream upstream, from its first answer on; `run` returns why it ended."""

    def __init__(
        self,
        upstream: Upstream,
        request: UpstreamRequest,
        append: Append,
        settings: StreamSettings,
        on_loss: OnLoss | None = None,
        *,
        lost_s: float = math.inf,
    ) -> None:
        self._lost_s = lost_s
        self._failures = 0
        self._patience = anyio.CancelScope()
        self._stream = ClientStream(settings, mint_epoch=lambda: secrets.token_hex(8), jitter=random.random)
        self._is_call = settings.kind is StreamKind.CALL
        self._upstream = upstream
        self._request = request
        self._append = append
        self._on_loss = on_loss
        self._open: commands.Open | None = None
        self._is_closed = False
        self._wake_at: float | None = None
        self._why: Why | None = None

    async def run(self, answer: UpstreamAnswer, first: bytes) -> Why:
        """Read on from a head and a first piece that are here; return why the stream ended.

        For a call `Why.ENDED` says that its answer was appended; anything else leaves it to be settled.  One
        whose connection was lost is given up after `lost_s` without a proof that it goes on; one that polls
        has lost nothing.
        """
        with self._patience:
            await self._tell(inputs.OpenRequested())
            self._open = None  # it is open already
            await self._read(answer, first)
            while self._ended() is None:
                opening = self._take_open()
                if opening is None:
                    await self._wait()
                else:
                    await self._ask(dict(opening.headers))
        return self._ended() or Why.CLOSED

    def _ended(self) -> Why | None:
        return self._why

    def _watch_losses(self) -> None:
        """Be patient from a failure on, until there is proof or something new."""
        failures = self._stream.failures
        if not failures:
            self._patience.deadline = math.inf
        elif failures > self._failures and self._patience.deadline == math.inf:
            self._patience.deadline = anyio.current_time() + self._lost_s
        self._failures = failures

    def _take_open(self) -> commands.Open | None:
        opening, self._open = self._open, None
        return opening

    async def _ask(self, headers: dict[str, str]) -> None:
        kept = tuple(field for field in self._request.headers if field[0] not in _REPLACED)
        own: Headers = tuple(
            (name.encode(), value.encode()) for name, value in headers.items() if name != "accept-encoding"
        )
        request = UpstreamRequest("GET", self._request.target, (*kept, *own), leg=self._request.leg)
        try:
            async with self._upstream.call(request) as answer:
                await self._read(answer, b"")
        except UpstreamUnreachable:
            await self._tell(inputs.ConnectionFailed(sent=False))
        except UpstreamBroken:
            await self._tell(inputs.ConnectionFailed(sent=True))

    async def _read(self, answer: UpstreamAnswer, first: bytes) -> None:
        self._is_closed = False
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
        await self._tell(inputs.HeadReceived(status=answer.status, headers=headers))
        piece = first
        try:
            while not self._is_closed:
                if piece:
                    await self._tell(inputs.BytesReceived(piece))
                if not (piece := await self._next_piece(answer)):
                    return
        except UpstreamBroken:
            await self._tell(inputs.BodyEnded(clean=False))

    async def _next_piece(self, answer: UpstreamAnswer) -> bytes:
        if self._is_closed:
            return b""
        piece = await answer.receive()
        if not piece:
            await self._tell(inputs.BodyEnded(clean=True))
        return piece

    async def _wait(self) -> None:
        if self._wake_at is None:
            self._why = Why.CLOSED
            return
        await anyio.sleep(max(0.0, self._wake_at - anyio.current_time()))
        await self._tell(inputs.TimePassed())

    async def _tell(self, happened: inputs.Happened) -> None:
        for command in self._stream.receive(happened, now=anyio.current_time()):
            await self._carry_out(command)
        self._watch_losses()

    async def _carry_out(self, command: commands.Command) -> None:
        match command:
            case commands.Open():
                self._open = command
            case commands.Close():
                self._is_closed = True
            case commands.WakeAt(at=at):
                self._wake_at = at
            case commands.Report(verdict=verdict):
                await self._judge(verdict)
            case commands.Deliver(place=place, data=data):
                await self._append(data)
                self._stream.receive(inputs.EventsProcessed(through=place.position), now=anyio.current_time())
            case commands.PassOver(place=place):
                self._stream.receive(inputs.EventsProcessed(through=place.position), now=anyio.current_time())
            case commands.Answer(data=data):
                if self._why is None:
                    await self._append(data)
            case commands.End(why=why):
                self._is_closed, self._why = True, self._why or why
            case _:
                pass  # nothing to keep, pause or settle here: the call's own stream does that

    async def _judge(self, verdict: ResumeVerdict) -> None:
        if isinstance(verdict, New | NotResumable | Resumed):
            self._patience.deadline = math.inf
            return
        if self._is_call:
            self._is_closed, self._why = True, verdict.why
        elif self._on_loss is not None:
            await self._on_loss()


def settings_for(
    kind: StreamKind,
    *,
    revision: str,
    session: str | None,
    limits: Limits,
    request_id: RequestId | None = None,
) -> StreamSettings:
    """Return the settings of an upstream stream; the loss of a standalone one is accepted, as it is told."""
    return StreamSettings(
        server="upstream",
        stream=secrets.token_hex(8),
        kind=kind,
        revision=revision,
        session_id=session,
        request=RequestRecord(request_id=request_id) if request_id is not None else None,
        limits=limits,
        on_lost_stream=OnLostStream.ACCEPT,
    )


def has_ids(piece: bytes) -> bool:
    """Whether a first piece has an id, as those of an upstream with a store do from their first event on."""
    return piece.startswith(b"id:") or b"\nid:" in piece or b"\rid:" in piece
