"""One answer: what its head opens, and the items that its body completes."""

from __future__ import annotations

from typing import Any

import pytest
from counterfoil.errors import LimitExceeded
from counterfoil.limits import Limits
from counterfoil.model.evidence import Asked, Progress, Session, Token, Window
from counterfoil.model.tokens import VerdictToken
from counterfoil.protocol.client_stream.connection import Connection, Kind
from counterfoil.protocol.client_stream.foreign_ids import Declared, Order
from counterfoil.protocol.client_stream.track import AskedWith
from counterfoil.protocol.continuity import ContinuityClaim, write_claim

CLAIM = write_claim(ContinuityClaim(verdict=VerdictToken.UNVERIFIABLE))


def make(*, is_post: bool = False, number: int | None = None, limits: Limits | None = None) -> Connection:
    asked = AskedWith(Asked.SPARSE, "40", None, number)
    return Connection(asked, limits=limits or Limits(), is_resumable=True, is_post=is_post)


def head(connection: Connection, status: int, **headers: str) -> Kind:
    return connection.read_head(
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        session_id="s",
        declared=Declared(order=Order.SPARSE, token_header="x-token", window_header="x-window"),
        token="t",
    )


@pytest.mark.parametrize(
    ("status", "content_type", "is_post", "kind"),
    [
        (200, "text/event-stream", False, Kind.STREAM),
        (200, "Text/Event-Stream; charset=utf-8", False, Kind.STREAM),
        (200, "application/json", True, Kind.JSON),
        (200, "application/json", False, Kind.REFUSAL),
        (200, "text/html", True, Kind.REFUSAL),
        (202, "", True, Kind.REFUSAL),
        (302, "text/event-stream", False, Kind.REFUSAL),
        (404, "text/event-stream", False, Kind.REFUSAL),
    ],
)
def test_what_a_head_opens(status: int, content_type: str, is_post: bool, kind: Kind) -> None:
    assert head(make(is_post=is_post), status, content_type=content_type) is kind


def test_claim_counts_on_any_status() -> None:
    for status in (400, 404, 405, 409, 503):
        connection = make()
        assert head(connection, status, stream_continuity=CLAIM) is Kind.CLAIM
        assert connection.gathered.progress is Progress.READ


def test_another_session_is_noted() -> None:
    connection = make()
    head(connection, 200, content_type="text/event-stream", mcp_session_id="other")
    assert connection.gathered.session is Session.REPLACED
    same = make()
    head(same, 200, content_type="text/event-stream", mcp_session_id="s")
    assert same.gathered.session is Session.SAME


def test_token_and_window_of_sparse_ids() -> None:
    connection = make(number=40)
    head(connection, 200, content_type="text/event-stream", x_token="t", x_window="10-90")
    assert (connection.gathered.token, connection.gathered.window) == (Token.SAME, Window.CONTAINS)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("5", 5_000), ("0", 0), ("-1", None), ("soon", None), ("9" * 20, None), ("²", None)],
)
def test_retry_after(text: str, milliseconds: int | None) -> None:
    connection = make()
    head(connection, 503, retry_after=text)
    assert connection.retry_after_ms == milliseconds


def test_body_of_a_refusal_is_not_kept() -> None:
    connection = make()
    head(connection, 500)
    assert connection.feed(b"x" * 10_000) == []
    assert connection.json == b""


def test_json_body_is_bounded() -> None:
    connection = make(is_post=True, limits=Limits(event_bytes=100))
    head(connection, 200, content_type="application/json")
    connection.feed(b"x" * 100)
    with pytest.raises(LimitExceeded, match="event_bytes") as found:
        connection.feed(b"x")
    assert (found.value.bound, found.value.limit) == ("event_bytes", 100)


def test_comments_and_echoes_are_seen(server: Any) -> None:
    connection = make()
    head(connection, 200, content_type="text/event-stream")
    items = connection.feed(b": hello\n\n" + server.echo(0, retry=9) + b"id: x\n\n")
    assert [type(item).__name__ for item in items] == ["SseComment", "SseEvent", "SseBlock"]
    assert connection.retry_ms == 9
