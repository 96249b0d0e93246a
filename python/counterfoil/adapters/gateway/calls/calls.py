"""One call upstream, or one batch: it goes on when its client has gone, and its answer is kept in its stream.

Only a whole JSON answer that comes while the client still waits for the head is handed over as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from counterfoil.adapters.gateway.calls.statuses import executed_by_status
from counterfoil.adapters.gateway.streams.short_way import OnRelay
from counterfoil.adapters.gateway.streams.streams import CallStream
from counterfoil.adapters.gateway.upstream.driven import Driven, has_ids, settings_for
from counterfoil.adapters.gateway.wire.messages import RequestId
from counterfoil.adapters.gateway.wire.upstream_port import (
    Headers,
    Upstream,
    UpstreamAnswer,
    UpstreamRequest,
    finish,
    header_of,
    is_stream,
)
from counterfoil.errors import (
    AnswerTooLarge,
    CounterfoilError,
    LimitExceeded,
    UpstreamBroken,
    UpstreamError,
    UpstreamUnreachable,
)
from counterfoil.limits import Limits
from counterfoil.model.tokens import Executed, StreamKind, Why
from counterfoil.protocol.continuity import CallToken
from counterfoil.protocol.inband_error import InbandError, InbandEvidence, write_inband_error

#: Told once the kind of an answer is known.
OnHead = Callable[[], None]


class WholeAnswer(msgspec.Struct, frozen=True):
    """An answer of the upstream that is no stream, or that did not come: then `failure` says why."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    failure: UpstreamError | None = None


class CallSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of an upstream's answers, and the revision that was negotiated.

    `resumes`: an upstream whose events have ids is asked for what is missing, by them.
    """

    answer_bytes: int
    error_bytes: int
    sse: Limits
    revision: str
    on_relay: OnRelay
    on_indeterminate: Callable[[], None]
    """Told that a call was ended without its answer and may have run."""
    on_limit: Callable[[str], None]
    """Told the name of a bound that an answer met."""
    lost_s: float = 10.0
    """How long a call whose upstream connection is lost waits for proof that it goes on: below a beat."""
    resumes: bool = True


class Call:
    """One POSTed request on its way, or a batch.  `run` it in a task of its own; it raises nothing.

    `decided` is set once the kind of the answer is known: `stream_headers` for a stream, else `whole`.
    A holder who will not take a whole answer says so by `keep()`, before or after it is there.
    """

    def __init__(
        self,
        upstream: Upstream,
        request: UpstreamRequest,
        request_ids: tuple[RequestId, ...],
        stream: CallStream,
        settings: CallSettings,
    ) -> None:
        self.decided = anyio.Event()
        self.stream_headers: Headers | None = None
        self.whole: WholeAnswer | None = None
        self.stream = stream
        #: Why its stream begins, as its first connection is told.
        self.why = Why.FIRST
        #: What the claim says of its key.
        self.token: CallToken | None = None
        #: Set once `token` is known, where it has to be before the response opens.
        self.judged: anyio.Event | None = None
        #: Whether a whole answer goes into the stream too, before anybody is told of it.
        self.keeps_whole = False
        self.upstream = upstream
        self.request = request
        self._request_ids = request_ids
        self._settings = settings
        self._is_kept = False
        self._is_over = False
        self._is_cancelled = False
        self._leg = anyio.CancelScope()

    @property
    def request_id(self) -> RequestId:
        """The id that its caller gave it."""
        return self._request_ids[0]

    @property
    def is_over(self) -> bool:
        """Whether its upstream leg is closed."""
        return self._is_over

    def cancel(self) -> None:
        """Close the upstream leg, which cancels the call there; one that has no answer gets none."""
        self._is_cancelled = True
        self._leg.cancel()

    async def keep(self) -> None:
        """Put the answer into the stream whatever its form: nobody waits for it at the head any more."""
        self._is_kept = True
        if self._is_over:
            await self._settle_whole()

    def open_adopted(self) -> None:
        """Answer from the stream: what comes is the answer of an identical call, and nothing is sent."""
        self.why = Why.ADOPTED
        self.stream_headers = ()
        self.decided.set()

    def open_stored(self, token: CallToken) -> None:
        """Answer from the stream: what comes is kept under the call's key, and nothing is sent."""
        self.note_judged(token)
        self.stream_headers = ()
        self.decided.set()

    def note_judged(self, token: CallToken | None) -> None:
        """Say what the response may tell of the call's key; it may open from now on."""
        self.token = token
        if self.judged is not None:
            self.judged.set()

    async def refuse(self, whole: WholeAnswer) -> None:
        """Answer a call that is not sent."""
        self.whole = whole
        self._is_over = True
        self.note_judged(None)
        self.decided.set()
        if self._is_kept:
            await self._settle_whole()

    async def run(self, on_head: OnHead) -> None:
        """Make the call; `on_head` is told once the kind of the answer is known, before anybody else."""
        try:
            with self._leg:
                await self._exchange(on_head)
        except UpstreamError as failure:
            self.whole = WholeAnswer(502, failure=failure)
        finally:
            if self.whole is not None:
                on_head()
                await self._keep_whole()
            elif self._is_cancelled:
                await self.stream.settle(self.error(Why.CANCELLED, Executed.UNKNOWN))
            self.decided.set()
        self._is_over = True
        if self._is_kept:
            await self._settle_whole()

    async def _exchange(self, on_head: OnHead) -> None:
        async with self.upstream.call(self.request) as answer:
            if header_of(answer.headers, b"content-encoding") not in (None, b"identity"):
                raise UpstreamBroken("the upstream packed its answer although it was asked not to")
            if is_stream(answer):
                self.stream_headers = answer.headers
                on_head()
                self.decided.set()
                await self._relay(answer)
            else:
                self.whole = await self._read_whole(answer)

    async def _relay(self, answer: UpstreamAnswer) -> None:
        why, executed = Why.CLOSED, Executed.UNKNOWN
        try:
            first = await answer.receive()
            # The ids of a batch's stream are dropped: the revision that has batches knows no polling, and
            # the client's machine follows one request.
            if self._settings.resumes and len(self._request_ids) == 1 and has_ids(first):
                why = await self._drive(answer, first)
            else:
                await self._copy(answer, first)
        except AnswerTooLarge as exceeded:
            self._settings.on_limit(exceeded.bound)
            why, executed = Why.TOO_LARGE, Executed.YES
        except LimitExceeded as exceeded:
            self._settings.on_limit(exceeded.bound)
            why = Why.TOO_LARGE
        except CounterfoilError:
            pass  # the stream is over, or what the upstream sends is no MCP
        await self._settle(Doubt(why, executed))

    async def _copy(self, answer: UpstreamAnswer, piece: bytes) -> None:
        take = await self.stream.open_feed(self._settings.sse, self._settings.on_relay)
        if piece:
            await finish(take(piece))
            await answer.deliver(take)

    async def _drive(self, answer: UpstreamAnswer, first: bytes) -> Why:
        async def append(data: bytes) -> None:
            await self.stream.append([data])

        settings = settings_for(
            StreamKind.CALL,
            revision=self._settings.revision,
            session=self.stream.scope.session,
            limits=self._settings.sse,
            request_id=self._request_ids[0],
        )
        driven = Driven(self.upstream, self.request, append, settings, lost_s=self._settings.lost_s)
        return await driven.run(answer, first)

    async def _settle(self, doubt: Doubt) -> None:
        for request_id in self._request_ids:
            is_settled = await self.stream.settle(doubt.write(request_id))
            if is_settled and doubt.executed is Executed.UNKNOWN:
                self._settings.on_indeterminate()

    async def _read_whole(self, answer: UpstreamAnswer) -> WholeAnswer:
        limit = self._settings.answer_bytes if answer.status < 300 else self._settings.error_bytes
        pieces: list[bytes] = []
        size = 0
        while piece := await answer.receive():
            size += len(piece)
            if size > limit:
                self._settings.on_limit("answer_bytes" if answer.status < 300 else "error_bytes")
                failure = UpstreamBroken(f"the upstream's answer exceeds {limit} bytes")
                return WholeAnswer(502, failure=failure)
            pieces.append(piece)
        return WholeAnswer(answer.status, answer.headers, b"".join(pieces))

    async def _keep_whole(self) -> None:
        if self.keeps_whole and self.whole is not None and self.whole.status < 300 and self.whole.body:
            self.stream_headers = self.whole.headers
            await self._settle_whole()
            self.whole = None

    async def _settle_whole(self) -> None:
        whole = self.whole
        if whole is None:
            return
        doubt = _doubt_of(whole)
        if whole.failure is None and whole.status < 300 and whole.body:
            try:
                await self.stream.append([whole.body])
                self.stream.note_answer()
            except AnswerTooLarge:
                doubt = Doubt(Why.TOO_LARGE, Executed.YES)
        for request_id in self._request_ids:
            await self.stream.settle(doubt.write(request_id))

    def doubt(self) -> bytes | None:
        """Return the in-band error that it ended with, in its stream or as a whole answer, if it did."""
        whole = self.whole
        if self.stream.settled is not None or whole is None:
            return self.stream.settled
        is_answer = whole.failure is None and whole.status < 300 and bool(whole.body)
        return None if is_answer else _doubt_of(whole).write(self._request_ids[0])

    def error(self, why: Why, executed: Executed) -> bytes:
        """Return the in-band error of this call."""
        return Doubt(why, executed).write(self._request_ids[0])

    def farewells(self) -> list[bytes]:
        """Return what settles the call where its session ends; of a batch, what is not answered yet."""
        answered = self.stream.answered
        ids = (request_id for request_id in self._request_ids if request_id not in answered)
        return [Doubt(Why.SESSION, Executed.UNKNOWN).write(request_id) for request_id in ids]


class Doubt(msgspec.Struct, frozen=True):
    """Why a call has no answer, and whether it may have run."""

    why: Why
    executed: Executed
    evidence: InbandEvidence = InbandEvidence()

    def write(self, request_id: RequestId) -> bytes:
        """Write the in-band error that tells it."""
        return write_inband_error(
            InbandError(request_id=request_id, why=self.why, executed=self.executed, evidence=self.evidence)
        )


def _doubt_of(whole: WholeAnswer) -> Doubt:
    if isinstance(whole.failure, UpstreamUnreachable):
        return Doubt(Why.UNSENT, Executed.NO)
    if whole.failure is not None:
        return Doubt(Why.CLOSED, Executed.UNKNOWN)
    has_retry_after = header_of(whole.headers, b"retry-after") is not None
    executed = executed_by_status(whole.status, has_retry_after=has_retry_after)
    return Doubt(Why.STATUS, executed, InbandEvidence(status=whole.status))
