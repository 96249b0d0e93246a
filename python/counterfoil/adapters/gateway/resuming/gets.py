"""Answers a GET: one verdict, decided before the first byte, and what follows from it for this client.

The log decides and attaches in one step; `replies` turns that into terms, and this file into HTTP.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio
import msgspec

from counterfoil.adapters.gateway.resuming.debts import Settlement, settle_debt
from counterfoil.adapters.gateway.resuming.holds import Holds
from counterfoil.adapters.gateway.resuming.patience import Patience
from counterfoil.adapters.gateway.resuming.replies import Reply, reply_to
from counterfoil.adapters.gateway.streams.claims import claim_field
from counterfoil.adapters.gateway.streams.draining import Draining
from counterfoil.adapters.gateway.streams.openings import make_headers, make_lead
from counterfoil.adapters.gateway.streams.sse_out import (
    Interruption,
    OnEnd,
    Opening,
    Pace,
    StreamWriter,
    write_whole,
)
from counterfoil.adapters.gateway.wire.answers import send_answer
from counterfoil.adapters.gateway.wire.asgi import Receive, Send
from counterfoil.adapters.gateway.wire.upstream_port import Headers
from counterfoil.adapters.gateway.wire.watching import run_while_present
from counterfoil.errors import (
    ForeignEventId,
    MalformedEventId,
    StoreFull,
    StreamEnded,
    TakenOver,
    UnknownEventIdVersion,
)
from counterfoil.model.evidence import StoreEvidence
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.model.verdicts import ResumeVerdict, Unverifiable
from counterfoil.native import EventId, Scope, StreamToken, encode_event
from counterfoil.protocol.continuity import ContinuityClaim, ContinuityRequest, Want, write_comment
from counterfoil.protocol.inband_error import InbandError, write_inband_error
from counterfoil.protocol.revisions import Capabilities
from counterfoil.stores.interface import LogReader, ReplayLog

#: A reconnection time that no client waits for.
NEVER_MS = 3_600_000
#: When a client that is put off comes again for the first time; doubled each time.
_FIRST_RETRY_MS = 2_000
_ACCEPTED = (VerdictToken.NEW, VerdictToken.RESUMED)


class GetTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How this GET is answered: what was asked, what the client knows, and how patient we are."""

    cursor: str | None
    asked: ContinuityRequest | None
    knows: Capabilities
    retry_ms: int
    hold_s: float
    grace_s: float
    attaches_lost: bool
    stops_foreign: bool
    cors: Headers
    holds: Holds
    draining: Draining
    patience: Patience
    is_full: bool
    """Too many connections read already: row 6, at once."""
    is_out_of_reach: bool = False
    """The process that holds the stream could not be asked: row 6, at once."""
    via: str | None = None
    """Which process passed the resume on."""

    @property
    def is_aware(self) -> bool:
        return self.asked is not None

    def wants(self, want: Want) -> bool:
        return self.asked is not None and want in self.asked.want


async def answer_get(
    log: ReplayLog,
    scope: Scope,
    terms: GetTerms,
    pace: Pace,
    receive: Receive,
    send: Send,
    *,
    notices: Callable[[], bytes],
    interruption: Interruption | None,
    on_lost_requests: Callable[[Sequence[object]], None],
    tell: Callable[[ResumeVerdict, StreamToken | None], None],
    on_end: OnEnd,
    watch: Callable[[LogReader], LogReader] | None = None,
) -> None:
    """Answer, and tell the verdict before the first byte; none if the client left before there was one.

    `notices` makes the frames that tell the loss of a standalone stream, `interruption` waits for such a
    loss while the stream is read.  Raises `SessionEnded` (row 1).
    """
    why = Why.STORE if terms.is_out_of_reach else Why.LIMIT
    full = Unverifiable(evidence=StoreEvidence(row=6), why=why, next=Next.RETRY)
    is_put_off = terms.is_full or terms.is_out_of_reach
    found = full if is_put_off else await _resume(log, scope, terms, receive)
    if found is None:
        return
    if isinstance(found, Unverifiable):
        await _put_off(found, terms, send, tell)
        return
    reader, stored = found.reader, found.settlement.frames
    tell(reader.verdict, reader.stream)
    if watch is not None:
        reader = watch(reader)
    if reader.is_attached and not await _keep_calm(reader, terms.holds, receive):
        await _ask_again(full, terms, send)
        return
    answer = reader.answer
    assert answer is not None, "a resume always has the facts behind its verdict"
    if answer.lost_requests:
        on_lost_requests(answer.lost_requests)
    reply = reply_to(
        reader.verdict,
        answer,
        cursor=terms.cursor,
        is_strict=terms.wants(Want.STRICT),
        stops_foreign=terms.stops_foreign,
    )
    if terms.via is not None:
        reply = msgspec.structs.replace(reply, claim=msgspec.structs.replace(reply.claim, via=terms.via))
    if reply.status != 200:
        await _refuse(reply, send)
    elif not reader.is_attached:
        await _write_unattached(reply, stored, terms, pace, receive, send)
    else:
        echo = _echo_of(terms, reader, reply.claim)
        lead = make_lead(
            reply.claim,
            echo=echo,
            retry_ms=terms.retry_ms,
            knows=terms.knows,
            notices=notices() if reply.tells_loss else b"",
        )
        headers = make_headers(reply.claim, terms.cors)
        is_standalone = reader.stream is not None and reader.stream.kind == "standalone"
        opening = Opening(
            headers,
            lead,
            answer.epoch or "",
            terms.is_aware,
            not reader.is_answers_only,
            come_again_ms=round(terms.retry_ms * random.uniform(1, 3)),
        )
        writer = StreamWriter(send, pace, opening, reader, interruption)
        with terms.draining.watched(writer if is_standalone else None):
            await writer.run(receive, on_end)


async def _keep_calm(reader: LogReader, holds: Holds, receive: Receive) -> bool:
    """Hold a client that comes back too often for nothing; False if a newer one took over meanwhile."""
    hold_s = reader.answer.hold_s if reader.answer is not None else 0.0
    if not hold_s or _has_data(reader):
        return True
    if holds.is_full:
        reader.close()
        return False

    async def hold() -> None:
        with anyio.move_on_after(hold_s), holds.one():
            await reader.wait()

    await run_while_present(receive, hold)
    if _has_data(reader):
        return True
    try:
        reader.read()
    except TakenOver:
        return False
    except StreamEnded:
        pass
    return True


def _has_data(reader: LogReader) -> bool:
    return not reader.has_caught_up


class _Found(msgspec.Struct, frozen=True):
    """What the log decided, and what became of calls that had ended without an answer."""

    reader: LogReader
    settlement: Settlement


async def _decide(log: ReplayLog, scope: Scope, terms: GetTerms) -> _Found:
    attach_lost = terms.attaches_lost and not (terms.stops_foreign and _is_foreign(terms.cursor))

    async def ask() -> LogReader:
        return await log.resume(
            scope,
            terms.cursor,
            aware=terms.is_aware,
            want_new=terms.wants(Want.NEW),
            attach_lost=attach_lost and not terms.wants(Want.STRICT),
        )

    reader = await ask()
    settlement = await settle_debt(log, scope, reader)
    if settlement.is_overtaken and not reader.is_attached:
        reader.close()
        reader, settlement = await ask(), Settlement()
    return _Found(reader, settlement)


async def _resume(
    log: ReplayLog, scope: Scope, terms: GetTerms, receive: Receive
) -> _Found | Unverifiable | None:
    """Decide; at a bound of the store hold the client first, as it may pass (row 6)."""
    found: _Found | None = None

    async def decide() -> None:
        nonlocal found
        found = await _decide(log, scope, terms)

    async def hold() -> None:
        try:
            await decide()
            return
        except StoreFull as full:
            terms.holds.note_limit(full.bound)
        if terms.holds.is_full:
            return
        with terms.holds.one():
            for wait_s in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
                await anyio.sleep(wait_s)
                with suppress(StoreFull):
                    await decide()
                    return

    async def hold_bounded() -> None:
        with anyio.move_on_after(terms.hold_s):
            await hold()

    if not await run_while_present(receive, hold_bounded):
        return None
    if found is not None:
        return found
    return Unverifiable(evidence=StoreEvidence(row=6), why=Why.LIMIT, next=Next.RETRY)


async def _put_off(
    verdict: Unverifiable,
    terms: GetTerms,
    send: Send,
    tell: Callable[[ResumeVerdict, StreamToken | None], None],
) -> None:
    """Row 6; from the fourth time on a waiting call is ended instead, as row 7 does."""
    stream = _stream_of(terms.cursor)
    request_id = stream.request_id if stream is not None else None
    before = terms.patience.put_off(terms.cursor, anyio.current_time()) if terms.cursor is not None else 0
    if before is not None or request_id is None:
        tell(verdict, stream)
        await _ask_again(verdict, terms, send, before=before or 0)
        return
    verdict = Unverifiable(evidence=StoreEvidence(row=7), why=Why.UNKNOWN_STREAM, next=Next.RECONCILE)
    tell(verdict, stream)
    claim = ContinuityClaim(
        verdict=VerdictToken.UNVERIFIABLE,
        why=verdict.why,
        next=verdict.next,
        executed=Executed.UNKNOWN,
        via=terms.via,
    )
    error = InbandError(
        request_id=request_id,
        why=verdict.why,
        executed=Executed.UNKNOWN,
        verdict=VerdictToken.UNVERIFIABLE,
        next=verdict.next,
    )
    if terms.wants(Want.STRICT):
        await _refuse(Reply(status=409, claim=claim, errors=(error,)), send)
    else:
        body = write_comment(claim) + encode_event(write_inband_error(error))
        await write_whole(send, make_headers(claim, terms.cors), body)


async def _ask_again(verdict: Unverifiable, terms: GetTerms, send: Send, *, before: int = 0) -> None:
    """Row 6: the cursor is kept, and the client asks again later; the later, the oftener it has `before`."""
    retry_ms = max(_FIRST_RETRY_MS << before, terms.retry_ms)
    claim = ContinuityClaim(
        verdict=VerdictToken.UNVERIFIABLE,
        why=verdict.why,
        next=verdict.next,
        echo=terms.cursor,
        via=terms.via,
    )
    if terms.wants(Want.STRICT):
        retry_after = b"%d" % -(-retry_ms // 1_000)
        fields = ((b"retry-after", retry_after), (b"cache-control", b"no-store"), claim_field(claim))
        await send_answer(send, 503, fields)
        return
    if terms.is_aware:  # it keeps its cursor by itself, and nothing was decided that an echo could say
        again = encode_event(None, retry=retry_ms)
    else:
        again = encode_event("", id=terms.cursor or "", retry=retry_ms)
    await write_whole(send, make_headers(claim, terms.cors), write_comment(claim) + again)


async def _refuse(reply: Reply, send: Send) -> None:
    written = [write_inband_error(error) for error in reply.errors]
    body = b"[" + b",".join(written) + b"]" if len(written) > 1 else b"".join(written)
    fields = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        claim_field(reply.claim),
    ]
    if reply.status == 405:
        fields.append((b"allow", b"POST, DELETE"))
    await send_answer(send, reply.status, fields, body)


async def _write_unattached(
    reply: Reply, stored: bytes, terms: GetTerms, pace: Pace, receive: Receive, send: Send
) -> None:
    headers = make_headers(reply.claim, terms.cors)
    lead = write_comment(reply.claim)
    if reply.errors:
        # Without an id to a client that would ask again with it, or read it as an acceptance.
        frames = b"".join(encode_event(write_inband_error(error)) for error in reply.errors)
        keeps_ids = terms.is_aware and stored and reply.claim.verdict in _ACCEPTED
        await write_whole(send, headers, lead + (stored if keeps_ids else frames))
    elif terms.is_aware or not reply.holds_open:
        await write_whole(send, headers, lead)
    else:
        await _hold_open(headers, lead, terms, pace, receive, send)


async def _hold_open(
    headers: Headers, lead: bytes, terms: GetTerms, pace: Pace, receive: Receive, send: Send
) -> None:
    """Row 12: keep a client that has everything quiet until its stream is forgotten."""

    async def beat() -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
        await send({"type": "http.response.body", "body": lead, "more_body": True})
        with anyio.move_on_after(terms.grace_s):
            while True:
                await anyio.sleep(pace.beat_s)
                await send({"type": "http.response.body", "body": b": held\n\n", "more_body": True})
        last = encode_event(None, retry=NEVER_MS)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    await run_while_present(receive, beat)


def _echo_of(terms: GetTerms, reader: LogReader, claim: ContinuityClaim) -> str | None:
    """The position asked for, where it is ours; else where the reader was attached, for who knows priming.

    An aware client gets none with a refusal: where an intermediary took the claim away it would be all that
    is left, and would read as an acceptance.
    """
    if terms.is_aware and claim.verdict not in _ACCEPTED:
        return None
    if terms.cursor is not None and not _is_foreign(terms.cursor):
        return terms.cursor
    return reader.echo_id if terms.knows.has_priming else None


def _is_foreign(cursor: str | None) -> bool:
    return cursor is not None and _stream_of(cursor) is None


def _stream_of(cursor: str | None) -> StreamToken | None:
    """The stream that a cursor of ours names; proves nothing."""
    if cursor is None:
        return None
    try:
        return EventId.parse(cursor).stream
    except (ForeignEventId, UnknownEventIdVersion, MalformedEventId):
        return None
