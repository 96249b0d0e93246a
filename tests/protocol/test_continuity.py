"""`Stream-Continuity`: what is written is read back, and a token outside its set is an error."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from counterfoil import SseParser
from counterfoil.errors import ContinuityError, UnknownContinuityToken, UnknownContinuityVersion
from counterfoil.model.tokens import Executed, Next, VerdictToken, Why
from counterfoil.native import SseComment
from counterfoil.protocol.continuity import (
    CallToken,
    CommentKind,
    ConnectionComment,
    ContinuityClaim,
    ContinuityRequest,
    Want,
    read_claim,
    read_comment,
    read_request,
    write_claim,
    write_comment,
    write_request,
)
from counterfoil.protocol.dictionary import MAX_INTEGER
from hypothesis import given
from hypothesis import strategies as st

strings = st.none() | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
integers = st.none() | st.integers(0, MAX_INTEGER)


def maybe(closed: Any) -> st.SearchStrategy[Any]:
    return st.none() | st.sampled_from(closed)


claims = st.builds(
    ContinuityClaim,
    verdict=maybe(VerdictToken),
    why=maybe(Why),
    next=maybe(Next),
    executed=maybe(Executed),
    call=maybe(CallToken),
    **dict.fromkeys(("after", "first", "last", "window"), integers),
    **dict.fromkeys(("epoch", "digest", "echo", "via"), strings),
)
connections = st.builds(
    ConnectionComment,
    kind=st.sampled_from(CommentKind),
    epoch=st.text("abc", max_size=11),
    last=integers,
    why=maybe(Why),
)
requests = st.builds(ContinuityRequest, want=st.frozensets(st.sampled_from(Want)))


@given(claims)
def test_a_claim_survives_the_header_and_the_comment(claim: ContinuityClaim) -> None:
    text = write_claim(claim)
    assert text.isascii()
    assert text.isprintable()
    assert read_claim(text) == read_claim(text.encode()) == claim
    assert write_comment(claim) == f": stream-continuity {text}\n\n".encode()


@given(claims | connections)
def test_a_comment_survives_the_stream(comment: ContinuityClaim | ConnectionComment) -> None:
    (read,) = SseParser(comments=True).feed(write_comment(comment))
    assert isinstance(read, SseComment)
    assert read_comment(read.text) == comment


@given(requests)
def test_a_request_survives_the_header(request: ContinuityRequest) -> None:
    assert read_request(write_request(request)) == request


def test_members_are_exactly_those_of_the_format() -> None:
    every = ContinuityClaim(
        verdict=VerdictToken.GAP,
        why=Why.TRIMMED,
        next=Next.CONTINUE,
        executed=Executed.UNKNOWN,
        call=CallToken.DETACH,
        after=5,
        first=6,
        last=9,
        window=100,
        epoch="AAAAAAAAAAA",
        digest="BBBBBBBBBBA",
        echo="cf1.x",
        via="worker-2",
    )
    assert write_claim(every) == (
        "v=1, verdict=gap, why=trimmed, next=continue, executed=unknown, call=detach, after=5, first=6, "
        'last=9, window=100, epoch="AAAAAAAAAAA", digest="BBBBBBBBBBA", echo="cf1.x", via="worker-2"'
    )


def test_every_token_travels() -> None:
    for name, closed in (
        ("verdict", VerdictToken),
        ("next", Next),
        ("executed", Executed),
        ("call", CallToken),
    ):
        for token in closed:
            assert getattr(read_claim(f"v=1, {name}={token}"), name) is token
    for why in Why:
        assert read_claim(f"v=1, why={why}").why is why


@pytest.mark.parametrize("name", ["verdict", "next", "executed", "call"])
def test_a_token_outside_its_closed_set_is_an_error(name: str) -> None:
    with pytest.raises(UnknownContinuityToken, match=f"{name}=resumed-ish"):
        read_claim(f"v=1, {name}=resumed-ish")


def test_an_unknown_reason_is_kept_as_a_signal() -> None:
    assert read_claim("v=1, verdict=gap, why=mars").why is Why.SIGNALLED


def test_a_format_that_grew_is_still_read() -> None:
    assert read_claim('v=1, verdict=new, mood=?1, extra="x";p=1') == ContinuityClaim(verdict=VerdictToken.NEW)
    assert read_request("v=1, want=(strict later), x=1") == ContinuityRequest(want=frozenset({Want.STRICT}))


@pytest.mark.parametrize("text", ["", "verdict=resumed", "v=2, verdict=resumed", 'v="1"', "v", "v=a"])
def test_another_version_is_told(text: str) -> None:
    for read in (read_claim, read_request):
        with pytest.raises(UnknownContinuityVersion):
            read(text)


@pytest.mark.parametrize(
    "text",
    [
        "v=1, verdict=forged, verdict=resumed",
        'v=1, verdict="resumed"',
        "v=1, after=-1",
        'v=1, after="1"',
        "v=1, after=1.0",
        "v=1, epoch=abc",
        "v=1, epoch",
        "v=1, verdict=resumed, verdict",
        "v=1 verdict=resumed",
        "v=1, verdict=résumé",
    ],
)
def test_a_claim_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ContinuityError):
        read_claim(text)
    with pytest.raises(ContinuityError):
        read_claim(text.encode())


@pytest.mark.parametrize("text", ["v=1, want=strict", 'v=1, want=("strict")', "v=1, want"])
def test_a_want_that_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(ContinuityError):
        read_request(text)


def test_comments_of_others_are_not_ours() -> None:
    for text in ("", "ping", "stream-continuity", "Stream-Continuity v=1", "keepalive 12"):
        assert read_comment(text) is None


@pytest.mark.parametrize("text", ["live v=1", "beat v=1, last=1", "end v=2", "pause v=1", "", "live"])
def test_a_comment_of_ours_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ContinuityError):
        read_comment(f"stream-continuity {text}")


def test_a_response_only_connection_names_its_epoch_alone() -> None:
    comment = ConnectionComment(kind=CommentKind.BEAT, epoch="AAAAAAAAAAA")
    assert write_comment(comment) == b': stream-continuity beat v=1, epoch="AAAAAAAAAAA"\n\n'


def test_a_sequence_beyond_the_integers_of_the_format_is_refused_not_clamped() -> None:
    with pytest.raises(ContinuityError, match="after"):
        write_claim(ContinuityClaim(after=MAX_INTEGER + 1))


def test_errors_keep_their_position_when_pickled() -> None:
    with pytest.raises(ContinuityError) as raised:
        read_claim("v=1, after=")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), again.args, again.position) == (ContinuityError, raised.value.args, 11)


def test_values_are_frozen_and_hashable() -> None:
    assert hash(ContinuityClaim()) == hash(ContinuityClaim())
    with pytest.raises(AttributeError):
        ContinuityClaim().verdict = VerdictToken.NEW  # type: ignore[misc]
    assert msgspec.structs.fields(ContinuityRequest)
