"""Whatever happens, in whatever order.

Typed errors only, one end per request, nothing delivered before its verdict.
"""

from __future__ import annotations

from typing import Any

from counterfoil.errors import StreamStateError
from counterfoil.model.tokens import Next, StreamKind, VerdictToken, Why
from counterfoil.model.verdicts import New, NotResumable, Resumed
from counterfoil.native import encode_event
from counterfoil.protocol.client_stream import commands as do
from counterfoil.protocol.client_stream import inputs
from counterfoil.protocol.client_stream.states import State
from counterfoil.protocol.continuity import (
    CommentKind,
    ConnectionComment,
    ContinuityClaim,
    write_claim,
    write_comment,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EPOCHS = st.sampled_from([None, "AAAAAAAAAAA", "BBBBBBBBBBA"])
SEQUENCES = st.one_of(st.none(), st.integers(0, 5))
CLAIMS = st.builds(
    ContinuityClaim,
    verdict=st.sampled_from(VerdictToken),
    why=st.sampled_from(Why),
    next=st.one_of(st.none(), st.sampled_from(Next)),
    after=SEQUENCES,
    last=SEQUENCES,
    epoch=EPOCHS,
    digest=EPOCHS,
)
COMMENTS = st.builds(
    ConnectionComment,
    kind=st.sampled_from(CommentKind),
    epoch=st.sampled_from(["AAAAAAAAAAA", "BBBBBBBBBBA"]),
    last=SEQUENCES,
    why=st.one_of(st.none(), st.sampled_from([Why.SLOW, Why.SESSION, Why.SUPERSEDED, Why.ENDED])),
)
DATA = st.sampled_from(
    [
        b"",
        b"{}",
        b"no json",
        b'{"jsonrpc":"2.0","method":"notifications/x"}',
        b'{"jsonrpc":"2.0","id":7,"result":{}}',
        b'{"jsonrpc":"2.0","id":"7","result":{}}',
    ]
)


def pieces(make_server: Any) -> st.SearchStrategy[bytes]:
    ids: list[str | None] = [None, "", "42", "9f3c51d0-77a4-4b1e-8c2d-6e0f1a2b3c4d", "cf1.broken"]
    for epoch in ("AAAAAAAAAAA", "BBBBBBBBBBA"):
        server = make_server(epoch=epoch)
        for n in range(4):
            server.append(b"%d" % n)
        ids += [str(server.id(n)) for n in range(5)]
    frames = st.builds(
        encode_event,
        DATA,
        event=st.sampled_from([None, None, "prime"]),
        id=st.sampled_from(ids),
        retry=st.sampled_from([None, 0, 50]),
    )
    return st.one_of(frames, CLAIMS.map(write_comment), COMMENTS.map(write_comment), st.binary(max_size=30))


def heads() -> st.SearchStrategy[inputs.HeadReceived]:
    headers = st.fixed_dictionaries(
        {},
        optional={
            "content-type": st.sampled_from(["text/event-stream", "application/json", "text/html"]),
            "stream-continuity": st.one_of(CLAIMS.map(write_claim), st.text(max_size=20)),
            "mcp-session-id": st.sampled_from(["s", "s", "other"]),
            "retry-after": st.sampled_from(["1", "soon"]),
        },
    )
    statuses = st.sampled_from([200, 200, 200, 202, 400, 401, 404, 405, 409, 429, 503])
    return st.builds(inputs.HeadReceived, status=statuses, headers=headers)


# The fixtures only make things; nothing of one example is left in them for the next.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), kind=st.sampled_from(StreamKind))
def test_any_order_of_anything(data: st.DataObject, kind: StreamKind, connect: Any, make_server: Any) -> None:
    happening = st.one_of(
        st.just(inputs.OpenRequested()),
        heads(),
        heads(),
        pieces(make_server).map(inputs.BytesReceived),
        pieces(make_server).map(inputs.BytesReceived),
        pieces(make_server).map(inputs.BytesReceived),
        st.builds(inputs.BodyEnded, clean=st.booleans()),
        st.builds(inputs.ConnectionFailed, sent=st.booleans()),
        st.just(inputs.TimePassed()),
        st.builds(inputs.EventsProcessed, through=st.integers(-1, 9)),
        st.just(inputs.LossAccepted()),
    )
    driver = connect(kind)
    driver.open()
    settled: list[int | str] = []
    verdict: object = None
    for happened in data.draw(st.lists(happening, max_size=25)):
        before = driver.stream.state
        try:
            commands = driver.tell(happened, after_s=data.draw(st.sampled_from([0.0, 0.1, 6.0])))
        except StreamStateError:
            assert driver.stream.state is before
            continue
        if before is State.ENDED:
            assert commands == []
        for command in commands:
            match command:
                case do.Open():
                    verdict = None
                case do.Report():
                    verdict = command.verdict
                case do.Answer() | do.Settle():
                    settled.append(command.request_id)
                case do.Deliver():
                    assert isinstance(verdict, New | Resumed | NotResumable)
                case _:
                    pass
    assert settled in ([], [7])
    if driver.stream.state is State.ENDED and kind is StreamKind.CALL:
        assert settled == [7]
