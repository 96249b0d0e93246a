"""As much of a JSON-RPC message as the stream needs, with typed ids."""

from __future__ import annotations

import pytest
from counterfoil.model.events import Body
from counterfoil.protocol.client_stream.envelope import read_envelope
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("data", "body", "answers"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', Body.JSON_RPC, (1,)),
        (b'{"jsonrpc":"2.0","id":"1","result":{}}', Body.JSON_RPC, ("1",)),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', Body.JSON_RPC, (1,)),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}', Body.JSON_RPC, ()),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', Body.JSON_RPC, ()),
        (b'{"jsonrpc":"2.0","method":"notifications/x"}', Body.JSON_RPC, ()),
        (
            b'[{"jsonrpc":"2.0","id":1,"result":0},{"jsonrpc":"2.0","id":2,"result":0}]',
            Body.JSON_RPC,
            (1, 2),
        ),
        (b"{}", Body.EMPTY_OBJECT, ()),
        (b" { } ".replace(b" }", b"}").replace(b"{ ", b"{"), Body.EMPTY_OBJECT, ()),
        (b"[]", Body.OTHER, ()),
        (b'{"jsonrpc":"1.0","id":1,"result":{}}', Body.OTHER, ()),
        (b'{"jsonrpc":"2.0","id":1}', Body.OTHER, ()),
        (b'{"jsonrpc":"2.0","id":true,"result":{}}', Body.OTHER, ()),
        (b'{"jsonrpc":"2.0","id":1.5,"result":{}}', Body.OTHER, ()),
        (b"no json", Body.OTHER, ()),
        (b'"\xff"', Body.OTHER, ()),
        (b"[" * 100_000, Body.OTHER, ()),
    ],
)
def test_envelope(data: bytes, body: Body, answers: tuple[int | str, ...]) -> None:
    envelope = read_envelope(data)
    assert (envelope.body, envelope.answers) == (body, answers)
    assert [type(each) for each in envelope.answers] == [type(each) for each in answers]


def test_a_request_and_a_notification_are_told_apart_by_their_id() -> None:
    request = read_envelope(b'{"jsonrpc":"2.0","id":"7","method":"ping"}')
    notification = read_envelope(b'{"jsonrpc":"2.0","method":"notifications/x","params":{}}')
    assert (request.method, request.request_id) == ("ping", "7")
    assert (notification.method, notification.request_id) == ("notifications/x", None)


def test_line_separator_inside_a_string_is_no_line_end() -> None:
    """B87: a result with U+2028 in it is still seen as the result."""
    text = '{"jsonrpc":"2.0","id":7,"result":{"text":"a\u2028b"}}'
    assert read_envelope(text.encode()).answers == (7,)


@given(st.binary(max_size=200))
def test_any_bytes_have_an_envelope(data: bytes) -> None:
    assert read_envelope(data).body in Body
