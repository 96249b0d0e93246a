"""Walk one stream of a client: from what happened, through the verdict, to what to do.

It decides nothing by itself: `states` says where to go, `counterfoil.decisions` judges, `track` knows where
events stand.  The client and the gateway's upstream leg drive it; it does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import counterfoil.protocol.client_stream.commands as do
import counterfoil.protocol.client_stream.inputs as inputs
from counterfoil.decisions.resume import classify_resume
from counterfoil.errors import LimitExceeded
from counterfoil.model.events import Scheme
from counterfoil.model.evidence import Asked, Evidence, Session
from counterfoil.model.stream import StreamRecord
from counterfoil.model.tokens import Executed, Next, StreamKind, Why
from counterfoil.model.verdicts import (
    Forged,
    Gap,
    New,
    NotResumable,
    Pending,
    Reoriginated,
    Resumed,
    ResumeVerdict,
    Unverifiable,
)
from counterfoil.native import SseBlock, SseComment, SseEvent
from counterfoil.protocol.client_stream.asking import headers_for
from counterfoil.protocol.client_stream.connection import SESSION_HEADER, Connection, Item, Kind
from counterfoil.protocol.client_stream.delivery import Delivery, Read
from counterfoil.protocol.client_stream.gathered import read_comment_or_none
from counterfoil.protocol.client_stream.pacing import Pacing
from counterfoil.protocol.client_stream.requests import Requests, outcome_without_answer
from counterfoil.protocol.client_stream.settings import OnLostStream, OnUnverifiable, StreamSettings
from counterfoil.protocol.client_stream.states import READING, State, Step, advance
from counterfoil.protocol.client_stream.statuses import Meaning, is_not_applied, meaning_of
from counterfoil.protocol.client_stream.track import Arrived, AskedWith, Track
from counterfoil.protocol.continuity import CommentKind, ConnectionComment, ContinuityClaim

#: A character takes this many bytes at most.
_UTF8_MAX = 4
_LOST = Gap | Reoriginated | Unverifiable


class ClientStream:
    """One stream of a client, without I/O.

    Tell :meth:`receive` what happened and carry out the commands that it returns, in their order.
    `mint_epoch` gives a fresh random text for a local epoch, `jitter` a number in [0, 1); `record` is what
    an earlier process kept.
    """

    def __init__(
        self,
        settings: StreamSettings,
        *,
        mint_epoch: Callable[[], str],
        jitter: Callable[[], float],
        record: StreamRecord | None = None,
    ) -> None:
        self._settings = settings
        self._mint_epoch = mint_epoch
        self._state = State.UNOPENED
        self._session_id = settings.session_id
        request = settings.request
        self._requests = Requests(() if request is None else (request.request_id,))
        self._track = Track(
            settings.stream, mint_epoch() if record is None else record.epoch, settings.declared
        )
        if record is not None:
            self._track.restore(record)
        self._delivery = Delivery(settings, self._track, self._requests)
        self._pacing = Pacing(settings, jitter)
        self._was_opened = record is not None
        self._connection: Connection | None = None
        self._is_connected = False
        self._verdict: ResumeVerdict | None = None
        self._token: str | None = None
        self._gives_up_overlap = False
        self._takes_loss = False
        self._told_pending = False
        self._wake_at: float | None = None
        self._now = 0.0
        self._out: list[do.Command] = []

    # --- what the driver sees

    @property
    def state(self) -> State:
        """Where the stream stands."""
        return self._state

    @property
    def verdict(self) -> ResumeVerdict | None:
        """The verdict on the present connection, or on the last one that had one."""
        return self._verdict

    @property
    def session_id(self) -> str | None:
        """The session, as settled by the settings or by the first answer."""
        return self._session_id

    @property
    def outstanding(self) -> tuple[int | str, ...]:
        """The ids of the requests that wait for an answer."""
        return self._requests.ids

    @property
    def has_cursor(self) -> bool:
        """Whether there is a position to ask with."""
        return self._track.has_cursor

    @property
    def failures(self) -> int:
        """How often in a row it was asked for in vain; a poll is none."""
        return self._pacing.failures

    @property
    def record(self) -> StreamRecord:
        """What to keep of this stream, as of now."""
        return StreamRecord(
            server=self._settings.server,
            stream=self._settings.stream,
            kind=self._settings.kind,
            session_id=self._session_id,
            principal=self._settings.principal,
            revision=self._settings.revision,
            epoch=self._track.epoch,
            processed=self._track.positions.processed,
            held=self._track.positions.held,
            request=self._settings.request,
        )

    def receive(self, happened: inputs.Happened, *, now: float) -> list[do.Command]:
        """Take what happened and return what to do; `now` is seconds on one rising clock.

        Raises `StreamStateError` for something that cannot happen in this state; what comes late for a
        connection that is closed already is passed over.
        """
        if now > self._now:
            self._now = now
        self._out = []
        match happened:
            case inputs.BytesReceived():
                self._read_bytes(happened.chunk)
            case inputs.OpenRequested():
                self._ask()
            case inputs.HeadReceived():
                self._read_head(happened)
            case inputs.BodyEnded():
                self._read_end(is_clean=happened.clean)
            case inputs.ConnectionFailed():
                self._fail_to_connect(was_sent=happened.sent)
            case inputs.TimePassed():
                self._look_at_the_time()
            case inputs.EventsProcessed():
                self._out += self._delivery.settle(happened.through)
            case inputs.LossAccepted():
                self._accept_loss()
            case inputs.Abandoned():
                self._finish(Why.CANCELLED)
            case _:
                assert_never(happened)
        self._plan_wake()
        return self._out

    # --- asking

    def _ask(self) -> None:
        if self._was_opened and self._cannot_ask():
            return self._finish(Why.NO_CURSOR)
        asked = self._choose_asked()
        self._step(Step.ASKED)
        is_post = self._settings.kind is StreamKind.CALL and not self._was_opened
        self._connection = Connection(
            asked, limits=self._settings.limits, is_resumable=self._settings.is_resumable, is_post=is_post
        )
        self._track.connect(asked)
        self._told_pending = False
        self._pacing.note_open()
        self._delivery.note_open()
        headers = headers_for(self._settings, asked, session_id=self._session_id, is_post=is_post)
        self._is_connected = True
        self._do(do.Open(resumes=not is_post, headers=headers))
        return None

    def _cannot_ask(self) -> bool:
        # A GET without a cursor would open the standalone stream, not this call's.
        return self._settings.kind is StreamKind.CALL and not self._track.has_cursor

    def _choose_asked(self) -> AskedWith:
        if self._takes_loss:
            return AskedWith(Asked.ACCEPTED)
        if not self._was_opened:
            return AskedWith(Asked.FIRST)
        return self._track.ask(newest=self._gives_up_overlap)

    # --- the head

    def _read_head(self, head: inputs.HeadReceived) -> None:
        connection = self._connection
        if self._state is not State.OPENING or connection is None:
            return None
        self._was_opened = True
        kind = connection.read_head(
            head.status,
            head.headers,
            session_id=self._session_id,
            declared=self._settings.declared,
            token=self._token,
        )
        if self._session_id is None:
            self._session_id = head.headers.get(SESSION_HEADER)
        if kind is Kind.REFUSAL:
            return self._refuse(connection)
        self._step(Step.ANSWERED)
        self._pacing.begin_judging(self._now)
        if kind is Kind.CLAIM:
            # No event can come that would contradict it, and nothing else to wait for.
            connection.gathered.note_end()
        self._judge(connection)
        if kind is Kind.CLAIM and self._state in READING:
            self._end_of_claim(connection)
        return None

    def _refuse(self, connection: Connection) -> None:
        self._close()
        meaning = meaning_of(connection.status)
        if meaning is Meaning.SESSION_OVER and self._session_id is None:
            # Without a session there is none to be unknown: nothing is served at this place.
            meaning = Meaning.STREAM_OVER
        extent = do.Extent.SESSION if meaning is Meaning.SESSION_OVER else do.Extent.STREAM
        if connection.is_post:
            has_retry_after = connection.retry_after_ms is not None
            was_refused = is_not_applied(connection.status, has_retry_after=has_retry_after)
            executed = Executed.NO if was_refused else Executed.UNKNOWN
            return self._finish(Why.STATUS, extent=extent, executed=executed)
        if meaning is Meaning.SESSION_OVER:
            return self._finish(Why.SESSION, extent=extent)
        if meaning is Meaning.STREAM_OVER:
            return self._finish(Why.STATUS)
        if meaning is not Meaning.KEEP:
            self._gives_up_overlap = True
        return self._ask_again_later(connection, is_poll=False)

    def _end_of_claim(self, connection: Connection) -> None:
        # A verdict on a status without a stream: nothing follows it.
        self._close()
        if self._state is State.FLOWING and self._settings.kind is StreamKind.STANDALONE:
            return self._finish(Why.ENDED)
        return self._interrupt(connection, is_clean=True)

    # --- the body

    def _read_bytes(self, chunk: bytes) -> None:
        connection = self._connection
        if self._state not in READING or connection is None:
            return None
        try:
            items = connection.feed(chunk)
        except LimitExceeded:
            return self._break(connection, Why.TOO_LARGE, Next.RETRY)
        for item in items:
            if self._state is State.FLOWING and type(item) is SseEvent and self._read_next(item):
                continue
            if self._state not in READING:
                return None
            self._read_item(connection, item)
        return None

    def _read_next(self, event: SseEvent[bytes]) -> bool:
        delivered = self._delivery.read_next(event)
        if delivered is None:
            return False
        self._out.append(delivered)
        self._pacing.refill()
        self._pacing.note_level()
        self._out += self._delivery.pause_if_full()
        return True

    def _read_item(self, connection: Connection, item: Item) -> None:
        connection.gathered.note_line()
        if not isinstance(item, SseComment) and self._is_too_long(item.id):
            return self._break(connection, Why.TOO_LARGE, Next.RETRY)
        if isinstance(item, SseComment):
            self._read_comment(connection, item.text)
        elif isinstance(item, SseBlock) or not item.data:
            if item.id:
                self._read_echo(connection, item.id)
        else:
            self._read_event(connection, item)
        if self._state is State.JUDGING:
            self._judge(connection)
        return None

    def _is_too_long(self, event_id: str | None) -> bool:
        # Whatever is taken here goes into a header of every later request.
        limit = self._settings.limits.event_id_bytes
        if event_id is None or len(event_id) * _UTF8_MAX <= limit:
            return False
        return len(event_id.encode()) > limit

    def _read_comment(self, connection: Connection, text: str) -> None:
        comment = read_comment_or_none(text)
        if isinstance(comment, ContinuityClaim):
            connection.gathered.note_claim(comment)
        elif comment is not None:
            self._compare_position(connection, comment)

    def _compare_position(self, connection: Connection, comment: ConnectionComment) -> None:
        is_end = comment.kind is CommentKind.END
        if self._state is State.FLOWING and self._track.ids_epoch is not None:
            if comment.epoch != self._track.ids_epoch:
                return self._break(connection, Why.EPOCH, Next.RETRY)
            if not is_end and comment.last is not None and comment.last < self._track.positions.received:
                # All that it has is written, and we hold more: it has lost its tail.
                return self._break(connection, Why.AHEAD, Next.RETRY)
            is_behind = comment.last is not None and comment.last > (self._track.sequence or 0)
            if is_behind and is_end:
                return self._break(connection, Why.BEHIND, Next.RETRY)
            if is_behind:
                self._pacing.note_behind(self._now)
            else:
                self._pacing.note_level()
        return self._read_last_comment(connection, comment.why) if is_end else None

    def _read_last_comment(self, connection: Connection, why: Why | None) -> None:
        self._close()
        if why is Why.SESSION:
            return self._finish(Why.SESSION, extent=do.Extent.SESSION)
        if why in (Why.SUPERSEDED, Why.CANCELLED, Why.ENDED):
            return self._finish(why)
        return self._interrupt(connection, is_clean=True, is_end=True)

    def _read_echo(self, connection: Connection, event_id: str) -> None:
        if self._state is State.JUDGING:
            connection.gathered.note_echo(event_id)
        elif self._state is State.FLOWING:
            self._track.echo(event_id)

    def _read_end(self, *, is_clean: bool) -> None:
        connection = self._connection
        if self._state not in READING or connection is None:
            return
        self._is_connected = False
        connection.gathered.note_end()
        if self._state is State.JUDGING:
            self._judge(connection)
        if connection.kind is Kind.JSON and is_clean and self._state is State.FLOWING:
            self._answer(connection, connection.json)
        if self._state in READING:
            self._interrupt(connection, is_clean=is_clean)

    # --- the verdict

    def _judge(self, connection: Connection) -> None:
        verdict = classify_resume(connection.gathered.evidence(self._requests.ids))
        if isinstance(verdict, Pending):
            return self._wait_on(connection, verdict)
        self._pacing.end_judging()
        self._verdict = verdict
        self._do(do.Report(verdict))
        match verdict:
            case New() | NotResumable():
                self._begin(connection)
            case Resumed():
                self._resume(connection, verdict)
            case Forged():
                self._finish(verdict.why, extent=do.Extent.SESSION, evidence=verdict.evidence)
            case Gap() | Reoriginated() | Unverifiable():
                self._lose(connection, verdict)
            case _:
                assert_never(verdict)
        return None

    def _wait_on(self, connection: Connection, verdict: Pending) -> None:
        if not connection.gathered.has_waited:
            return
        if verdict.next is Next.RETRY:
            self._close()
            self._interrupt(connection, is_clean=False)
        elif not self._told_pending:
            self._told_pending = True
            self._do(do.TellPending(connection.gathered.evidence(self._requests.ids)))

    def _begin(self, connection: Connection) -> None:
        if connection.asked.how is not Asked.FIRST:
            self._track.start(self._mint_epoch())
        self._takes_loss = False
        self._delivery.is_at_most_once = False
        self._token = connection.token
        self._step(Step.CONTINUED)
        self._track.begin_at(connection.gathered.echo_id, connection.gathered.base)
        self._do(do.Keep(self.record))

    def _resume(self, connection: Connection, verdict: Resumed) -> None:
        self._gives_up_overlap = False
        self._step(Step.CONTINUED)
        if verdict.next is Next.DONE:
            return self._finish(Why.ENDED, evidence=verdict.evidence)
        if connection.gathered.echo_id and self._track.scheme is Scheme.FOREIGN:
            self._track.echo(connection.gathered.echo_id)
        return None

    def _lose(self, connection: Connection, verdict: _LOST) -> None:
        if connection.gathered.session is Session.REPLACED:
            return self._finish(Why.SESSION, extent=do.Extent.SESSION, evidence=verdict.evidence)
        if isinstance(verdict, Unverifiable) and self._may_deliver_unverified(connection):
            self._track.start(self._mint_epoch())
            self._delivery.is_at_most_once = True
            self._step(Step.CONTINUED)
            self._do(do.Keep(self.record))
            return None
        if self._settings.kind is StreamKind.STANDALONE:
            return self._lose_standalone()
        is_gone = verdict.next is Next.RECONCILE and (
            isinstance(verdict, Gap) or verdict.executed is Executed.NO or connection.kind is Kind.CLAIM
        )
        if is_gone:
            return self._finish(verdict.why, executed=verdict.executed, evidence=verdict.evidence)
        self._step(Step.BROKEN)
        return None

    def _may_deliver_unverified(self, connection: Connection) -> bool:
        wanted = self._settings.on_unverifiable is OnUnverifiable.AT_MOST_ONCE
        return wanted and connection.kind is Kind.STREAM

    def _lose_standalone(self) -> None:
        self._close()
        self._track.start(self._mint_epoch())
        self._step(Step.LOST)
        self._do(do.Keep(self.record))
        if self._settings.on_lost_stream is OnLostStream.ACCEPT:
            self._accept_loss()

    def _accept_loss(self) -> None:
        self._step(Step.ACCEPTED)
        self._takes_loss = True
        why = self._pacing.plan(self._now, is_poll=False, retry_ms=None, retry_after_ms=None)
        return None if why is None else self._finish(why)

    # --- events

    def _read_event(self, connection: Connection, event: SseEvent[bytes]) -> None:
        arrived = Arrived(event.event, event.data, event.id)
        if self._state is State.JUDGING:
            connection.gathered.note_first(self._track.compare_first(arrived, connection.asked))
            self._judge(connection)
        trusts = connection.gathered.has_claim
        if self._state is State.FLOWING:
            self._obey(connection, self._delivery.read_continuous(arrived, trusts_inband_errors=trusts))
        elif self._state is State.ANSWER_ONLY:
            why = Why.SIGNALLED if self._verdict is None else self._verdict.why
            self._obey(
                connection, self._delivery.read_for_the_answer(arrived, why, trusts_inband_errors=trusts)
            )
        elif self._state is State.JUDGING:
            self._answer(connection, arrived.data)

    def _obey(self, connection: Connection, read: Read) -> None:
        self._out += read.commands
        if read.is_progress:
            self._pacing.refill()
        self._end_if_answered()
        if read.fault is not None:
            return self._break(connection, read.fault.why, read.fault.next)
        self._pacing.note_level()
        if self._state in READING:
            self._out += self._delivery.pause_if_full()
        return None

    def _answer(self, connection: Connection, data: bytes) -> None:
        trusts = connection.gathered.has_claim
        answers = self._delivery.settle_with(data, trusts_inband_errors=trusts)
        self._out += answers
        if answers:
            self._pacing.refill()
        self._end_if_answered()

    def _end_if_answered(self) -> None:
        if self._settings.kind is StreamKind.CALL and self._requests.are_settled:
            self._finish(Why.ENDED)

    # --- between connections

    def _fail_to_connect(self, *, was_sent: bool) -> None:
        connection = self._connection
        if self._state is not State.OPENING or connection is None:
            return None
        self._is_connected = False
        if connection.is_post:
            executed = Executed.UNKNOWN if was_sent else Executed.NO
            return self._finish(Why.NO_CURSOR if was_sent else Why.UNSENT, executed=executed)
        return self._ask_again_later(connection, is_poll=False)

    def _break(self, connection: Connection, why: Why, following: Next) -> None:
        if self._state not in READING:
            return None
        self._close()
        self._do(do.TellFault(why))
        if following is Next.STOP:
            return self._finish(why)
        return self._interrupt(connection, is_clean=False)

    def _interrupt(self, connection: Connection, *, is_clean: bool, is_end: bool = False) -> None:
        verdict = self._verdict
        if self._state is State.ANSWER_ONLY and verdict is not None and verdict.next is not Next.CONTINUE:
            return self._finish(verdict.why, executed=_executed(verdict), evidence=verdict.evidence)
        if not self._settings.is_resumable:
            return self._finish(Why.REVISION)
        if self._cannot_ask():
            return self._finish(Why.NO_CURSOR)
        has_retry = connection.retry_ms is not None and self._track.has_cursor
        return self._ask_again_later(connection, is_poll=is_clean and (has_retry or is_end))

    def _ask_again_later(self, connection: Connection, *, is_poll: bool) -> None:
        why = self._pacing.plan(
            self._now,
            is_poll=is_poll,
            retry_ms=connection.retry_ms,
            retry_after_ms=connection.retry_after_ms,
        )
        if why is not None:
            return self._finish(why)
        self._step(Step.INTERRUPTED)
        return None

    # --- time

    def _look_at_the_time(self) -> None:
        if self._pacing.is_over(self._now):
            return self._finish(Why.DEADLINE)
        if self._state is State.WAITING and self._pacing.is_time_to_open(self._now):
            return self._ask()
        connection = self._connection
        if connection is not None and self._state in READING:
            self._look_at_the_connection(connection)
        return None

    def _look_at_the_connection(self, connection: Connection) -> None:
        if self._pacing.is_time_to_judge(self._now):
            self._pacing.end_judging()
            connection.gathered.note_waited()
            self._judge(connection)
            if self._state is State.JUDGING and self._track.is_probe(connection.asked):
                # Silence: the overlap does not show; ask once more with the newest id.
                self._gives_up_overlap = True
                self._close()
                return self._interrupt(connection, is_clean=False)
        if self._pacing.is_behind(self._now):
            return self._break(connection, Why.BEHIND, Next.RETRY)
        return None

    def _plan_wake(self) -> None:
        if self._state is State.ENDED:
            return
        earliest = self._pacing.earliest
        if earliest is not None and earliest != self._wake_at:
            self._do(do.WakeAt(earliest))
        self._wake_at = earliest

    # --- ends

    def _finish(
        self,
        why: Why,
        *,
        extent: do.Extent = do.Extent.STREAM,
        executed: Executed | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        if self._state is State.ENDED:
            return
        self._close()
        for settled in self._requests.settle_all(outcome_without_answer(why, executed, evidence)):
            self._do(settled)
        self._step(Step.FINISHED)
        self._do(do.End(extent=extent, why=why))

    def _close(self) -> None:
        if self._is_connected:
            self._is_connected = False
            self._do(do.Close())

    def _step(self, step: Step) -> None:
        self._state = advance(self._state, step)

    def _do(self, command: do.Command) -> None:
        self._out.append(command)


def _executed(verdict: ResumeVerdict) -> Executed | None:
    return verdict.executed if isinstance(verdict, Gap | Reoriginated | Unverifiable) else None
