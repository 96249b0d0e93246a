"""The client's stream, told the incidents one by one; the bytes are real frames with real ids."""

from __future__ import annotations

import json
from typing import Any

import pytest
from counterfoil.errors import StreamStateError
from counterfoil.model.stream import StreamRecord
from counterfoil.model.tokens import Executed, Next, OutcomeToken, StreamKind, VerdictToken, Why
from counterfoil.model.verdicts import Forged, Gap, New, NotResumable, Reoriginated, Resumed, Unverifiable
from counterfoil.native import EventId, encode_event
from counterfoil.protocol.client_stream import commands as do
from counterfoil.protocol.client_stream import inputs
from counterfoil.protocol.client_stream.settings import OnLostStream, OnUnverifiable
from counterfoil.protocol.client_stream.states import State
from counterfoil.protocol.continuity import CommentKind, ContinuityClaim, write_comment
from counterfoil.protocol.inband_error import InbandError, write_inband_error

STANDALONE = StreamKind.STANDALONE


def note(n: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": n}}).encode()


def result(request_id: int | str = 7) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": {"ok": True}}).encode()


def started(driver: Any, server: Any, count: int = 0) -> None:
    """A call whose first connection is open, with this many notifications received."""
    driver.open()
    driver.answer(server.new(), server.echo(0), *(server.append(note(n)) for n in range(1, count + 1)))


def processed(driver: Any, through: int) -> None:
    driver.tell(inputs.EventsProcessed(through=through))


def outcomes(driver: Any) -> list[tuple[OutcomeToken, Why | None]]:
    return [(c.outcome.token, c.outcome.why) for c in driver.all(do.Settle)]


# --- the plain way


def test_call_is_sent_delivered_and_answered(connect: Any, server: Any) -> None:
    driver = connect()
    (opened,) = [c for c in driver.open() if isinstance(c, do.Open)]
    assert not opened.resumes
    assert "last-event-id" not in opened.headers
    driver.answer(server.new(), server.echo(0), server.append(note(1)), server.append(result()))
    assert driver.delivered() == [1]
    (answer,) = driver.all(do.Answer)
    assert (answer.request_id, json.loads(answer.data)["result"]) == (7, {"ok": True})
    assert answer.place is not None
    assert answer.place.position == 2
    assert isinstance(driver.all(do.Report)[0].verdict, New)
    assert driver.stream.state is State.ENDED


def test_json_answer_settles_the_call(connect: Any) -> None:
    driver = connect()
    driver.open()
    driver.head(content_type="application/json")
    driver.bytes(result()[:9])
    driver.bytes(result()[9:])
    driver.drop(clean=True)
    assert [a.data for a in driver.all(do.Answer)] == [result()]


def test_json_answer_cut_short_is_indeterminate(connect: Any) -> None:
    driver = connect()
    driver.open()
    driver.head(content_type="application/json")
    driver.bytes(result()[:-4])
    driver.drop()
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.NO_CURSOR)]


def test_events_are_the_same_for_every_cut(connect: Any, server: Any) -> None:
    frames = [server.echo(0), server.append(note(1)), server.append(note(2)), server.append(result())]
    body = write_comment(server.new()) + b"".join(frames)
    expected = None
    for size in (1, 2, 3, 7, 64, len(body)):
        driver = connect()
        driver.open()
        driver.head(claim=server.new())
        for start in range(0, len(body), size):
            driver.bytes(body[start : start + size])
        got = (driver.delivered(), [a.data for a in driver.all(do.Answer)])
        expected = expected or got
        assert got == expected
    assert expected == ([1, 2], [result()])


# --- resumed


def test_resume_asks_with_the_processed_event_and_suppresses_what_runs(connect: Any, server: Any) -> None:
    """Decision L1: the events after the mark come again while their handlers still run."""
    driver = connect()
    started(driver, server, 3)
    processed(driver, 1)
    driver.drop()
    opened = driver.reopen()
    assert opened.resumes
    assert EventId.parse(opened.headers["last-event-id"]).sequence == 1
    driver.answer(server.resumed(1), server.echo(1), *server.frames[2:], server.append(note(4)))
    assert driver.delivered() == [1, 2, 3, 4]
    assert [c.place.position for c in driver.all(do.PassOver)] == [2, 3]
    verdict = driver.stream.verdict
    assert isinstance(verdict, Resumed)
    assert (verdict.why, verdict.after, verdict.missed) == (Why.CLAIM, 1, 2)


def test_events_settled_while_the_question_is_under_way_do_not_run_again(connect: Any, server: Any) -> None:
    """Asked from the mark, and the mark moves before the answer comes.

    What is replayed was received before.
    """
    driver = connect()
    started(driver, server, 4)
    driver.drop()
    assert EventId.parse(driver.reopen().headers["last-event-id"]).sequence == 0
    processed(driver, 4)
    driver.answer(server.resumed(0), *server.frames[1:], server.append(note(5)))
    assert driver.delivered() == [1, 2, 3, 4, 5]


def test_tail_rewritten_while_the_question_is_under_way_is_a_fault(connect: Any, make_server: Any) -> None:
    server, rewritten = make_server(), make_server()
    for n in range(1, 4):
        rewritten.append(note(n if n < 2 else 90 + n))
    driver = connect()
    started(driver, server, 3)
    driver.drop()
    driver.reopen()
    processed(driver, 3)
    driver.answer(rewritten.resumed(0), *rewritten.frames[1:])
    assert driver.all(do.TellFault)[-1].why is Why.DIVERGED
    assert driver.delivered() == [1, 2, 3]


def test_header_that_says_resumed_waits_for_the_first_line_however_long(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 2)
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.head(claim=server.resumed(2))
    driver.wait()
    assert len(driver.all(do.TellPending)) == 1
    driver.bytes(write_comment(server.claim(VerdictToken.GAP, first=3, last=4, next=Next.RECONCILE)))
    assert isinstance(driver.stream.verdict, Gap)


def test_idle_stream_resumes_on_the_claim_alone(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 2)
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.answer(server.resumed(2))
    assert driver.stream.state is State.FLOWING
    driver.bytes(server.append(result()))
    assert len(driver.all(do.Answer)) == 1


def test_header_alone_waits_for_the_first_line(connect: Any, server: Any) -> None:
    """A comment that says worse than the header counts."""
    driver = connect()
    started(driver, server, 2)
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.head(claim=server.resumed(2))
    assert driver.stream.state is State.JUDGING
    driver.bytes(write_comment(server.claim(VerdictToken.FORGED, why=Why.MAC)))
    assert isinstance(driver.stream.verdict, Forged)
    assert driver.all(do.End)[-1].extent is do.Extent.SESSION
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.MAC)]


def test_echo_alone_resumes_behind_a_proxy_that_strips_headers_and_comments(
    connect: Any, server: Any
) -> None:
    driver = connect()
    started(driver, server, 2)
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.answer(None, server.echo(2))
    assert driver.stream.verdict.why is Why.ECHO


def test_200_and_silence_is_never_resumed(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 2)
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.head()
    driver.wait()
    assert len(driver.all(do.TellPending)) == 1
    assert driver.stream.state is State.JUDGING
    driver.tell(inputs.TimePassed(), after_s=60)
    assert driver.stream.state is State.JUDGING
    assert len(driver.all(do.Report)) == 1


# --- not continuous


def test_card_a_hop_applies_nothing_and_still_takes_the_answer(connect: Any, make_server: Any) -> None:
    held = make_server()
    other = make_server(random=b"o" * 12, epoch="BBBBBBBBBBA")
    driver = connect()
    started(driver, held, 2)
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    for n in range(1, 14):
        other.append(note(100 + n))
    driver.answer(None, other.frames[13])
    assert isinstance(driver.stream.verdict, Reoriginated)
    assert driver.delivered() == [1, 2]
    assert driver.stream.state is State.ANSWER_ONLY
    # The answer settles its request; it proves nothing about the rest.
    driver.bytes(other.append(note(200)), other.append(result()))
    assert driver.delivered() == [1, 2]
    assert len(driver.all(do.Answer)) == 1


@pytest.mark.parametrize(("first", "verdict"), [(2, Forged), (1, Forged), (5, Gap)])
def test_card_b_first_event(connect: Any, server: Any, first: int, verdict: type) -> None:
    for n in range(1, 6):
        server.append(note(n))
    driver = connect()
    driver.open()
    driver.answer(server.new(), server.echo(0), *server.frames[1:3])
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.answer(None, server.frames[first])
    assert isinstance(driver.stream.verdict, verdict)
    assert driver.delivered() == [1, 2]


def test_gap_names_its_range_and_its_requests(connect: Any, server: Any) -> None:
    for n in range(1, 9):
        server.append(note(n))
    driver = connect()
    driver.open()
    driver.answer(server.new(), server.echo(0), *server.frames[1:3])
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.answer(None, server.frames[6])
    gap = driver.stream.verdict
    assert isinstance(gap, Gap)
    assert (gap.first, gap.last, gap.request_ids) == (3, 5, (7,))
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.JUMP)]


def test_gap_with_the_answer_still_to_come_is_read_for_the_answer(connect: Any, server: Any) -> None:
    """Decisions S2 and S3: response-only, and its suppressed events are no fault, however long it lasts."""
    driver = connect()
    started(driver, server, 2)
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    claim = server.claim(VerdictToken.GAP, why=Why.TRIMMED, first=3, last=4000, next=Next.CONTINUE)
    driver.answer(claim, server.echo(2), server.comment(CommentKind.LIVE, None))
    assert driver.stream.state is State.ANSWER_ONLY
    driver.tell(inputs.BytesReceived(server.comment(CommentKind.BEAT, None)), after_s=30)
    driver.drop()
    assert EventId.parse(driver.reopen().headers["last-event-id"]).sequence == 2
    driver.answer(claim)
    driver.bytes(encode_event(result(), id=str(server.id(2))))
    assert len(driver.all(do.Answer)) == 1
    assert driver.all(do.TellFault) == []


def test_answer_in_the_gap_fails_the_request_at_once(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 2)
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    claim = server.claim(
        VerdictToken.GAP, why=Why.TRIMMED, first=3, last=9, next=Next.RECONCILE, executed=Executed.YES
    )
    driver.head(409, claim=claim)
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.TRIMMED)]


def test_executed_no_is_not_applied(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    claim = ContinuityClaim(
        verdict=VerdictToken.UNVERIFIABLE, why=Why.UNKNOWN_STREAM, next=Next.RECONCILE, executed=Executed.NO
    )
    driver.head(409, claim=claim)
    assert outcomes(driver) == [(OutcomeToken.NOT_APPLIED, Why.UNKNOWN_STREAM)]


def test_broken_stream_that_ends_without_the_answer_settles_at_once(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    claim = ContinuityClaim(verdict=VerdictToken.UNVERIFIABLE, why=Why.KEY, next=Next.RECONCILE)
    driver.answer(claim)
    assert driver.stream.state is State.ANSWER_ONLY
    driver.drop()
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.KEY)]


def test_unverifiable_at_most_once_is_an_explicit_choice_and_flagged(connect: Any, server: Any) -> None:
    driver = connect(on_unverifiable=OnUnverifiable.AT_MOST_ONCE)
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    before = driver.stream.record.epoch
    driver.answer(None, encode_event(note(50)))
    (flagged,) = [c for c in driver.all(do.Deliver) if c.at_most_once]
    assert json.loads(flagged.data)["params"]["n"] == 50
    assert driver.stream.record.epoch != before


def test_payload_key_of_a_broken_stream_goes_to_the_ledger(connect: Any, make_server: Any) -> None:
    """Decision L16: the key was recorded under every verdict, so it is looked up first."""
    other = make_server(random=b"o" * 12, epoch="BBBBBBBBBBA")
    driver = connect(payload_key=lambda data: str(json.loads(data)["params"]["n"]))
    started(driver, make_server(), 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.answer(None, other.append(note(50)))
    (stray,) = [c for c in driver.all(do.Deliver) if c.at_most_once]
    assert stray.place.foreign
    assert stray.judgement.why is Why.KEY


# --- each event after the verdict


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        (lambda s, o: [s.frames[3]], Why.JUMP),
        (lambda s, o: [s.frames[1]], Why.ORDER),
        (lambda s, o: [o.append(note(9))], Why.STREAM),
        (lambda s, o: [encode_event(note(9))], Why.NO_IDS),
        (lambda s, o: [encode_event(note(9), id="")], Why.EMPTY_ID),
        (lambda s, o: [encode_event(note(9), id="42")], Why.SCHEME),
        (lambda s, o: [encode_event(b"no json", id=str(s.id(2)))], Why.NOT_JSON_RPC),
        (lambda s, o: [s.comment(CommentKind.END, 3)], Why.BEHIND),
        (lambda s, o: [o.comment(CommentKind.BEAT, 1)], Why.EPOCH),
    ],
    ids=lambda v: str(v) if isinstance(v, Why) else "",
)
def test_fault_closes_before_dispatch_and_resumes_from_our_position(
    connect: Any, make_server: Any, frames: Any, why: Why
) -> None:
    server, other = make_server(), make_server(random=b"o" * 12, epoch="BBBBBBBBBBA")
    for n in range(1, 4):
        server.append(note(n))
    driver = connect()
    driver.open()
    driver.answer(server.new(), server.echo(0), server.frames[1])
    processed(driver, 1)
    commands = driver.bytes(*frames(server, other))
    assert [type(c) for c in commands][:2] == [do.Close, do.TellFault]
    assert driver.all(do.TellFault)[-1].why is why
    assert driver.delivered() == [1]
    assert EventId.parse(driver.reopen().headers["last-event-id"]).sequence == 1


def test_other_bytes_at_a_received_position_are_a_fault(connect: Any, make_server: Any) -> None:
    """A lost and rewritten tail: same epoch, same number, another digest."""
    server, rewritten = make_server(), make_server()
    server.append(note(1)), server.append(note(2))
    rewritten.append(note(1)), rewritten.append(note(99))
    driver = connect()
    driver.open()
    driver.answer(server.new(), server.echo(0), *server.frames[1:])
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.answer(rewritten.resumed(1), rewritten.frames[2])
    assert driver.all(do.TellFault)[-1].why is Why.DIVERGED
    assert driver.delivered() == [1, 2]


def test_beat_above_our_position_is_a_fault_only_after_a_while(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    lost = server.append(note(2))
    driver.bytes(server.comment(CommentKind.BEAT, 2))
    assert driver.all(do.TellFault) == []
    driver.wait()
    assert driver.all(do.TellFault)[-1].why is Why.BEHIND
    # It is a gap only when the server then says so.
    driver.reopen()
    driver.answer(server.resumed(1), lost)
    assert driver.delivered() == [1, 2]


def test_beat_below_what_we_hold_shows_a_lost_tail(connect: Any, make_server: Any) -> None:
    """Asked from the mark, which the server still has; what we received beyond it, it has lost."""
    server, shorter = make_server(), make_server()
    for n in range(1, 3):
        shorter.append(note(n))
    driver = connect()
    started(driver, server, 3)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.answer(shorter.resumed(1), shorter.frames[2], shorter.comment(CommentKind.LIVE, 2))
    assert driver.all(do.TellFault)[-1].why is Why.AHEAD
    processed(driver, 3)
    assert EventId.parse(driver.reopen().headers["last-event-id"]).sequence == 3


def test_late_event_after_a_beat_is_no_fault(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    late = server.append(note(2))
    driver.bytes(server.comment(CommentKind.BEAT, 2), late)
    driver.tell(inputs.TimePassed(), after_s=60)
    assert driver.all(do.TellFault) == []


def test_unknown_event_name_takes_its_place(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server)
    driver.bytes(server.append(b"anything", event="prime"), server.append(note(2)))
    assert [c.place.position for c in driver.all(do.PassOver)] == [1]
    assert driver.delivered() == [2]


def test_response_settles_its_request_under_a_fault(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    server.append(note(2))
    driver.bytes(server.append(result()))
    assert len(driver.all(do.Answer)) == 1
    assert driver.stream.state is State.ENDED


def test_typed_ids_are_two_requests(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server)
    driver.bytes(server.append(result("7")))
    assert driver.all(do.Answer) == []
    driver.bytes(server.append(result(7)))
    assert len(driver.all(do.Answer)) == 1


# --- in-band errors


def inband(executed: Executed) -> bytes:
    return write_inband_error(InbandError(request_id=7, why=Why.DIVERGED, executed=executed))


@pytest.mark.parametrize(
    ("executed", "token"),
    [
        (Executed.NO, OutcomeToken.NOT_APPLIED),
        (Executed.YES, OutcomeToken.INDETERMINATE),
        (Executed.UNKNOWN, OutcomeToken.INDETERMINATE),
    ],
)
def test_inband_error_is_an_outcome(
    connect: Any, server: Any, executed: Executed, token: OutcomeToken
) -> None:
    driver = connect()
    started(driver, server)
    driver.bytes(server.append(inband(executed)))
    assert outcomes(driver) == [(token, Why.DIVERGED)]


def test_tool_that_imitates_our_error_is_not_believed(connect: Any) -> None:
    """Without a claim on the connection it is the server's own error, and frees no key."""
    driver = connect()
    driver.open()
    driver.answer(None, encode_event(inband(Executed.NO), id="x-1"))
    assert outcomes(driver) == []
    assert [a.data for a in driver.all(do.Answer)] == [inband(Executed.NO)]


# --- ends


def test_superseded_is_not_reopened(connect: Any, server: Any) -> None:
    driver = connect(STANDALONE)
    driver.open()
    driver.answer(server.new(), server.echo(0), server.comment(CommentKind.END, 0, Why.SUPERSEDED))
    assert driver.all(do.End)[-1] == do.End(extent=do.Extent.STREAM, why=Why.SUPERSEDED)


def test_end_of_the_session_ends_every_stream_of_it(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    driver.bytes(server.comment(CommentKind.END, 1, Why.SESSION))
    assert driver.all(do.End)[-1].extent is do.Extent.SESSION


def test_slow_reader_is_told_and_resumes(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.bytes(server.comment(CommentKind.END, 1, Why.SLOW))
    assert driver.stream.state is State.WAITING
    assert driver.reopen().headers["last-event-id"] == str(server.id(1))


def test_resumed_and_ended_without_an_answer_is_indeterminate(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    claim = server.claim(VerdictToken.RESUMED, after=1, why=Why.ENDED, next=Next.DONE, last=1)
    driver.head(405, claim=claim)
    assert isinstance(driver.stream.verdict, Resumed)
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.ENDED)]


def test_abandoned_stream_settles_what_waits(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server)
    driver.tell(inputs.Abandoned())
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.CANCELLED)]
    assert driver.all(do.Close)


# --- statuses


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 413, 415, 429])
def test_refused_call_is_not_applied(connect: Any, status: int) -> None:
    driver = connect()
    driver.open()
    driver.head(status)
    assert outcomes(driver) == [(OutcomeToken.NOT_APPLIED, Why.STATUS)]


@pytest.mark.parametrize("status", [202, 302, 408, 409, 500, 502, 503, 504])
def test_any_other_status_leaves_the_call_indeterminate(connect: Any, status: int) -> None:
    driver = connect()
    driver.open()
    driver.head(status, content_type="text/html")
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.STATUS)]


def test_503_with_retry_after_is_not_applied(connect: Any) -> None:
    driver = connect()
    driver.open()
    driver.head(503, retry_after="5")
    assert outcomes(driver) == [(OutcomeToken.NOT_APPLIED, Why.STATUS)]


@pytest.mark.parametrize(
    ("status", "extent"),
    [(404, do.Extent.SESSION), (401, do.Extent.STREAM), (403, do.Extent.STREAM), (405, do.Extent.STREAM)],
)
def test_status_that_ends_a_resume(connect: Any, server: Any, status: int, extent: do.Extent) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.head(status)
    assert driver.all(do.End)[-1].extent is extent
    assert outcomes(driver)[0][0] is OutcomeToken.INDETERMINATE


@pytest.mark.parametrize("status", [200, 302, 400, 409, 429, 500, 502, 503, 504])
def test_other_refusals_keep_the_cursor_and_are_never_resumed(connect: Any, server: Any, status: int) -> None:
    """A 200 of another content type among them.

    409 is an upstream that still holds the half-open connection.
    """
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.head(status, content_type="text/html")
    assert driver.stream.state is State.WAITING
    assert driver.reopen().headers["last-event-id"] == str(server.id(1))
    assert len(driver.all(do.Report)) == 1


def test_connect_refused_is_certain(connect: Any) -> None:
    driver = connect()
    driver.open()
    driver.tell(inputs.ConnectionFailed(sent=False))
    assert outcomes(driver) == [(OutcomeToken.NOT_APPLIED, Why.UNSENT)]


def test_call_cut_before_its_head_is_indeterminate(connect: Any) -> None:
    driver = connect()
    driver.open()
    driver.tell(inputs.ConnectionFailed(sent=True))
    assert outcomes(driver)[0][0] is OutcomeToken.INDETERMINATE


def test_call_cut_before_its_first_id_is_not_asked_for_again(connect: Any, server: Any) -> None:
    """A GET without a cursor is the standalone stream, not this call's."""
    driver = connect()
    driver.open()
    driver.answer(server.new())
    driver.drop()
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.NO_CURSOR)]


# --- sessions and revisions


def test_replaced_session_is_reoriginated_and_ends_it(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.head(claim=server.resumed(1), mcp_session_id="another")
    driver.bytes(write_comment(server.resumed(1)))
    assert isinstance(driver.stream.verdict, Reoriginated)
    assert driver.stream.verdict.against == (Why.CLAIM,)
    assert driver.all(do.End)[-1].extent is do.Extent.SESSION


def test_revision_without_resumption_flows_and_is_never_asked_again(connect: Any, server: Any) -> None:
    driver = connect(revision="2026-07-28", session_id=None)
    driver.open()
    driver.answer(None, server.append(note(1)))
    assert isinstance(driver.stream.verdict, NotResumable)
    assert driver.delivered() == [1]
    driver.drop()
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.REVISION)]


# --- refusals that are no verdict


def test_retry_claim_is_asked_again_with_the_same_cursor(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    claim = ContinuityClaim(verdict=VerdictToken.UNVERIFIABLE, why=Why.STORE, next=Next.RETRY)
    driver.answer(claim, server.echo(1, retry=2_000))
    assert driver.stream.state is State.JUDGING
    driver.drop(clean=True)
    before = driver.now
    assert driver.reopen().headers["last-event-id"] == str(server.id(1))
    assert driver.now - before >= 2
    assert [type(c.verdict) for c in driver.all(do.Report)] == [New]
    assert driver.all(do.TellPending) == []


def test_old_refusal_kept_by_a_proxy_gives_way_to_our_own_event(connect: Any, make_server: Any) -> None:
    server, old = make_server(), make_server(epoch="BBBBBBBBBBA")
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.head(claim=old.claim(VerdictToken.REORIGINATED, why=Why.EPOCH, next=Next.RECONCILE))
    driver.bytes(server.echo(1))
    assert driver.stream.state is State.JUDGING
    driver.bytes(server.append(note(2)))
    assert driver.stream.verdict.why in (Why.ECHO, Why.NEXT_EVENT)
    assert driver.delivered() == [1, 2]


def test_refusal_of_another_epoch_counts_after_a_while(connect: Any, make_server: Any) -> None:
    server, new = make_server(), make_server(epoch="BBBBBBBBBBA")
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.answer(new.claim(VerdictToken.REORIGINATED, why=Why.EPOCH, next=Next.RECONCILE))
    assert driver.stream.state is State.JUDGING
    driver.wait()
    assert isinstance(driver.stream.verdict, Reoriginated)


# --- budgets


def test_server_that_accepts_and_closes_is_given_up(connect: Any, server: Any) -> None:
    """B09: 200, empty, closed, for ever; a new echo is no progress."""
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    asked = 0
    while driver.stream.state is not State.ENDED:
        driver.reopen()
        driver.answer(server.resumed(1), server.echo(1))
        driver.drop()
        asked += 1
    assert asked == 8
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.BUDGET)]


def test_progress_refills_the_budget(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    for n in range(2, 40):
        driver.reopen()
        driver.answer(server.resumed(n - 1), server.append(note(n)))
        processed(driver, n)
        driver.drop()
    assert driver.delivered() == list(range(1, 40))


def test_polls_use_no_failure_and_end_at_the_deadline(connect: Any, server: Any) -> None:
    driver = connect(deadline=30.0)
    started(driver, server, 1)
    processed(driver, 1)
    for _ in range(20):
        driver.bytes(server.echo(1, retry=500))
        driver.drop(clean=True)
        driver.reopen()
        driver.answer(server.resumed(1))
    assert driver.now >= 10
    driver.bytes(server.echo(1, retry=3_600_000))
    driver.drop(clean=True)
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.DEADLINE)]


def test_deadline_settles_a_silent_call(connect: Any, server: Any) -> None:
    driver = connect(deadline=30.0)
    started(driver, server)
    driver.tell(inputs.TimePassed(), after_s=30)
    assert outcomes(driver) == [(OutcomeToken.INDETERMINATE, Why.DEADLINE)]
    assert driver.all(do.Close)


# --- standalone streams


def test_lost_standalone_stream_waits_for_the_application(connect: Any, make_server: Any) -> None:
    server, other = make_server(kind="standalone"), make_server(epoch="BBBBBBBBBBA", kind="standalone")
    driver = connect(STANDALONE)
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.answer(None, other.append(note(50)))
    assert driver.stream.state is State.LOST
    assert driver.delivered() == [1]
    driver.tell(inputs.LossAccepted())
    opened = driver.reopen()
    assert "last-event-id" not in opened.headers
    assert "new" in opened.headers["stream-continuity"]
    driver.answer(
        other.claim(VerdictToken.NEW, after=1, why=Why.WANTED), other.echo(1), other.append(note(51))
    )
    assert driver.stream.verdict.why is Why.WANTED
    assert driver.delivered() == [1, 51]


def test_lost_standalone_stream_starts_anew_by_policy(connect: Any, server: Any) -> None:
    driver = connect(STANDALONE, on_lost_stream=OnLostStream.ACCEPT)
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.head(409, claim=server.claim(VerdictToken.GAP, first=2, last=9, next=Next.RECONCILE))
    assert "last-event-id" not in driver.reopen().headers


def test_standalone_drop_without_any_id_is_unverifiable(connect: Any) -> None:
    driver = connect(STANDALONE)
    driver.open()
    driver.answer(None, b": hello\n\n")
    driver.drop()
    assert "last-event-id" not in driver.reopen().headers
    driver.answer(None, encode_event(note(1)))
    assert isinstance(driver.stream.verdict, Unverifiable)
    assert driver.delivered() == []


def test_new_stream_begins_where_the_server_says(connect: Any, server: Any) -> None:
    for n in range(1, 6):
        server.append(note(n))
    driver = connect(STANDALONE)
    driver.open()
    driver.answer(server.claim(VerdictToken.NEW, after=3), server.frames[4])
    assert driver.delivered() == [4]
    other = connect(STANDALONE)
    other.open()
    other.answer(server.claim(VerdictToken.NEW, after=3), server.frames[5])
    assert other.delivered() == []
    assert other.all(do.TellFault)[-1].why is Why.JUMP


# --- foreign ids

UUIDS = [f"9f3c51d0-77a4-4b1e-8c2d-6e0f1a2b3c{n:02x}" for n in range(20)]


def foreign(*numbers: int) -> list[bytes]:
    return [encode_event(note(n), id=UUIDS[n]) for n in numbers]


def test_overlap_resumes_a_stock_server(connect: Any) -> None:
    driver = connect()
    driver.open()
    driver.answer(None, encode_event(b"", id=UUIDS[0]), *foreign(1, 2, 3))
    processed(driver, 3)
    driver.drop()
    assert driver.reopen().headers["last-event-id"] == UUIDS[2]
    driver.answer(None, *foreign(3, 4))
    assert driver.stream.verdict.why is Why.OVERLAP
    assert driver.delivered() == [1, 2, 3, 4]


def test_inclusive_replay_is_an_overlap_too(connect: Any) -> None:
    driver = connect()
    driver.open()
    driver.answer(None, *foreign(1, 2))
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.answer(None, *foreign(1, 2, 3))
    assert isinstance(driver.stream.verdict, Resumed)
    assert driver.delivered() == [1, 2, 3]


@pytest.mark.parametrize("refusal", ["status", "silence"])
def test_refused_overlap_is_tried_once_more_with_the_newest_id(connect: Any, refusal: str) -> None:
    driver = connect()
    driver.open()
    driver.answer(None, *foreign(1, 2, 3))
    processed(driver, 3)
    driver.drop()
    assert driver.reopen().headers["last-event-id"] == UUIDS[2]
    if refusal == "status":
        driver.head(400)
    else:
        driver.head()
    assert driver.reopen().headers["last-event-id"] == UUIDS[3]
    driver.answer(None, *foreign(4))
    verdict = driver.stream.verdict
    assert isinstance(verdict, Unverifiable)
    assert verdict.why is Why.NO_OVERLAP
    assert driver.delivered() == [1, 2, 3]


@pytest.mark.parametrize("status", [429, 503])
def test_what_keeps_the_cursor_keeps_the_position_of_the_overlap(connect: Any, status: int) -> None:
    driver = connect()
    driver.open()
    driver.answer(None, *foreign(1, 2, 3))
    processed(driver, 3)
    driver.drop()
    driver.reopen()
    driver.head(status)
    assert driver.reopen().headers["last-event-id"] == UUIDS[2]


def test_server_that_replays_from_its_oldest_event_proves_nothing(connect: Any) -> None:
    """It still has an event that we know, and not the one asked with."""
    driver = connect()
    driver.open()
    driver.answer(None, *foreign(1, 2, 3))
    processed(driver, 3)
    driver.drop()
    driver.reopen()
    driver.head(400)
    assert driver.reopen().headers["last-event-id"] == UUIDS[3]
    driver.answer(None, *foreign(2, 9))
    assert isinstance(driver.stream.verdict, Unverifiable)
    assert driver.delivered() == [1, 2, 3]


def test_same_id_with_other_bytes_is_another_history(connect: Any) -> None:
    driver = connect()
    driver.open()
    driver.answer(None, *foreign(1, 2))
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.answer(None, encode_event(note(99), id=UUIDS[2]))
    assert isinstance(driver.stream.verdict, Reoriginated)
    assert driver.stream.verdict.why is Why.OVERLAP


def test_replay_that_leaves_out_what_we_hold_is_a_fault(connect: Any) -> None:
    """A lost tail behind opaque ids: events that we hold do not come again before a new one does."""
    driver = connect()
    driver.open()
    driver.answer(None, *foreign(1, 2, 3, 4))
    processed(driver, 1)
    driver.drop()
    driver.reopen()
    driver.answer(None, *foreign(2, 3, 9))
    assert driver.all(do.TellFault)[-1].why is Why.JUMP
    assert driver.delivered() == [1, 2, 3, 4]


def test_restart_can_still_prove_an_overlap(connect: Any) -> None:
    driver = connect()
    driver.open()
    driver.answer(None, *foreign(1, 2, 3))
    processed(driver, 3)
    again = connect(record=driver.stream.record)
    (opened,) = [c for c in again.open() if isinstance(c, do.Open)]
    assert opened.headers["last-event-id"] == UUIDS[2]
    again.answer(None, *foreign(3, 4))
    assert again.stream.verdict.why is Why.OVERLAP
    assert again.delivered() == [4]


def test_priming_row_replayed_as_an_empty_object_is_dropped_and_moves_the_cursor(connect: Any) -> None:
    """Stock servers' `prime` and `close` events, and data `{}`.

    Never a fault, or resuming would repeat it.
    """
    driver = connect()
    driver.open()
    driver.answer(
        None,
        encode_event(b"{}", id=UUIDS[0]),
        encode_event(b"bye", event="close", id=UUIDS[1]),
        *foreign(2),
    )
    assert driver.delivered() == [2]
    assert [c.place.event_id for c in driver.all(do.PassOver)] == UUIDS[:2]
    assert driver.all(do.TellFault) == []


# --- what survives a restart


def test_restart_resumes_from_what_was_kept(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 3)
    processed(driver, 2)
    record = driver.stream.record
    assert isinstance(record, StreamRecord)
    again = connect(record=record)
    (opened,) = [c for c in again.open() if isinstance(c, do.Open)]
    assert opened.resumes
    assert opened.headers["last-event-id"] == str(server.id(2))
    again.answer(server.resumed(2), server.frames[3], server.append(result()))
    # Received and not processed before the restart: the ledger decides whether it runs again.
    assert again.delivered() == [3]
    assert len(again.all(do.Answer)) == 1


def test_restart_of_a_call_without_cursor_is_indeterminate(connect: Any, server: Any) -> None:
    driver = connect()
    driver.open()
    again = connect(record=driver.stream.record)
    again.open()
    assert outcomes(again) == [(OutcomeToken.INDETERMINATE, Why.NO_CURSOR)]


# --- pressure


def test_unprocessed_events_are_bounded_by_pausing(connect: Any, server: Any) -> None:
    driver = connect(unprocessed_max=4)
    started(driver, server, 4)
    assert len(driver.all(do.PauseReading)) == 1
    processed(driver, 1)
    assert driver.all(do.ResumeReading) == []
    processed(driver, 2)
    assert len(driver.all(do.ResumeReading)) == 1


@pytest.mark.parametrize("data", [b"", note(1)], ids=["echo", "event"])
def test_event_id_of_a_mebibyte_is_refused_and_the_cursor_stays(connect: Any, data: bytes) -> None:
    driver = connect()
    driver.open()
    driver.answer(None, *foreign(1, 2))
    processed(driver, 2)
    driver.bytes(encode_event(data, id="x" * (1 << 20)))
    assert driver.all(do.TellFault)[-1].why is Why.TOO_LARGE
    assert driver.reopen().headers["last-event-id"] == UUIDS[1]


def test_absent_empty_and_zero_are_three_cursors(connect: Any) -> None:
    """B159: nothing to ask with, the cursor taken back, and the id `0`."""
    asked = {}
    for name, event_id in (("absent", None), ("empty", ""), ("zero", "0")):
        driver = connect(STANDALONE)
        driver.open()
        driver.answer(None, encode_event(note(1), id=event_id))
        processed(driver, 1)
        driver.drop()
        asked[name] = driver.reopen().headers.get("last-event-id")
    assert asked == {"absent": None, "empty": None, "zero": "0"}


def test_cursor_moves_on_after_a_resume(connect: Any, server: Any) -> None:
    """B47, B117: resume, receive more, crash, resume again: nothing of the first part comes twice."""
    driver = connect()
    started(driver, server, 2)
    processed(driver, 2)
    driver.drop()
    driver.reopen()
    driver.answer(server.resumed(2), *(server.append(note(n)) for n in range(3, 103)))
    processed(driver, 102)
    again = connect(record=driver.stream.record)
    (opened,) = [c for c in again.open() if isinstance(c, do.Open)]
    assert opened.headers["last-event-id"] == str(server.id(102))
    again.answer(server.resumed(102), server.append(note(103)))
    assert again.delivered() == [103]


def test_priming_is_read_alike_on_post_get_and_resume(connect: Any, server: Any) -> None:
    """B05: however the stream was opened, an echo is no event."""
    frames = [server.echo(0), server.append(note(1)), server.echo(1), server.append(note(2))]
    post, get = connect(), connect(STANDALONE)
    for driver in (post, get):
        driver.open()
        driver.answer(server.new(), *frames)
    resumed = connect()
    resumed.open()
    resumed.answer(server.new(), server.echo(0))
    resumed.drop()
    resumed.reopen()
    resumed.answer(server.resumed(0), *frames)
    assert post.delivered() == get.delivered() == resumed.delivered() == [1, 2]


def test_reoriginated_again_and_again_is_given_up(connect: Any, server: Any, make_server: Any) -> None:
    """B161: a cache returns the same dead answer for ever."""
    dead = make_server(epoch="BBBBBBBBBBA")
    driver = connect(STANDALONE, on_lost_stream=OnLostStream.ACCEPT)
    started(driver, server, 1)
    processed(driver, 1)
    driver.drop()
    asked = 0
    while driver.stream.state is not State.ENDED:
        driver.reopen()
        driver.head(409, claim=dead.claim(VerdictToken.REORIGINATED, why=Why.EPOCH, next=Next.RECONCILE))
        asked += 1
    assert asked <= 9
    assert driver.all(do.End)[-1].why is Why.BUDGET


def test_instant_close_with_retry_zero_keeps_its_distance(connect: Any, server: Any) -> None:
    """B123: at most 40 questions a second, whatever the server says."""
    driver = connect(STANDALONE)
    started(driver, server, 1)
    processed(driver, 1)
    for _ in range(80):
        driver.bytes(server.echo(1, retry=0))
        driver.drop(clean=True)
        driver.reopen()
        driver.answer(server.resumed(1))
    assert driver.now == pytest.approx(80 / 40)


def test_too_long_line_is_a_fault_and_never_kept(connect: Any, server: Any) -> None:
    from counterfoil.limits import Limits

    driver = connect(limits=Limits(line_bytes=1024, event_bytes=2048))
    started(driver, server, 1)
    processed(driver, 1)
    driver.bytes(b"data: " + b"x" * 4096)
    assert driver.all(do.TellFault)[-1].why is Why.TOO_LARGE


# --- misuse and lateness


def test_what_comes_late_for_a_closed_connection_is_passed_over(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server, 1)
    processed(driver, 1)
    driver.bytes(encode_event(note(9)))
    assert driver.stream.state is State.WAITING
    for late in (
        inputs.BytesReceived(server.append(note(2))),
        inputs.BodyEnded(clean=True),
        inputs.HeadReceived(status=200, headers={}),
        inputs.ConnectionFailed(sent=True),
    ):
        driver.tell(late)
    assert driver.stream.state is State.WAITING
    assert driver.delivered() == [1]


def test_opening_twice_is_an_error_of_the_caller(connect: Any) -> None:
    driver = connect()
    driver.open()
    with pytest.raises(StreamStateError):
        driver.open()


def test_nothing_follows_the_end(connect: Any, server: Any) -> None:
    driver = connect()
    started(driver, server)
    driver.bytes(server.append(result()))
    for late in (
        inputs.BytesReceived(server.append(note(5))),
        inputs.TimePassed(),
        inputs.EventsProcessed(through=9),
        inputs.BodyEnded(clean=True),
        inputs.Abandoned(),
    ):
        assert driver.tell(late, after_s=100) == []
