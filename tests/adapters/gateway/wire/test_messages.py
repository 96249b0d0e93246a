"""A message has one kind and one typed id, or nothing is promised about it."""

from __future__ import annotations

import pytest
from counterfoil.adapters.gateway.wire.messages import MessageHead, MessageKind, read_message, write_error

KIND = MessageKind


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"m"}', MessageHead(KIND.REQUEST, 1, "m")),
        (b'{"id":"1","method":"m","params":{"id":7}}', MessageHead(KIND.REQUEST, "1", "m")),
        (b'{"method":"m"}', MessageHead(KIND.NOTIFICATION, None, "m")),
        (b'{"id":3,"result":{}}', MessageHead(KIND.ANSWER, 3)),
        (b'{"id":null,"error":{}}', MessageHead(KIND.ANSWER)),
        (
            b' [{"id":1,"method":"m"}, {"method":"n"}]',
            MessageHead(
                KIND.BATCH,
                batch=(MessageHead(KIND.REQUEST, 1, "m"), MessageHead(KIND.NOTIFICATION, None, "n")),
            ),
        ),
        (b'[{"id":1,"method":"m"}, {"id":1,"method":"m"}]', MessageHead(KIND.BATCH)),
        (b'[{"id":1,"method":"m"}, 2]', MessageHead(KIND.OTHER)),
        (b"[]", MessageHead(KIND.BATCH)),
        (b'{"id":true,"method":"m"}', MessageHead(KIND.OTHER)),
        (b'{"id":1.5,"method":"m"}', MessageHead(KIND.OTHER)),
        (b'{"id":null,"method":"m"}', MessageHead(KIND.OTHER)),
        (b'{"id":1,"result":1,"error":2}', MessageHead(KIND.OTHER)),
        (b'{"id":1}', MessageHead(KIND.OTHER)),
        (b"", MessageHead(KIND.OTHER)),
        (b"{", MessageHead(KIND.OTHER)),
        (b'"text"', MessageHead(KIND.OTHER)),
        (b"\xff\xfe", MessageHead(KIND.OTHER)),
    ],
)
def test_a_body_is_classified(body: bytes, expected: MessageHead) -> None:
    read = read_message(body)
    assert read == expected
    assert type(read.request_id) is type(expected.request_id)


def test_the_requests_of_a_batch_are_known_by_their_typed_ids() -> None:
    batch = b'[{"id":1,"method":"m"},{"method":"n"},{"id":"1","method":"m"},{"id":9,"result":{}}]'
    assert read_message(batch).request_ids == (1, "1")
    assert read_message(b'{"id":7,"method":"m"}').request_ids == (7,)
    assert read_message(b'{"id":7,"result":{}}').request_ids == ()


def test_an_integer_of_any_size_is_an_id() -> None:
    assert read_message(b'{"id":%d,"method":"m"}' % 2**70).request_id == 2**70


def test_an_error_is_a_json_rpc_message() -> None:
    assert write_error(None, -1, "no", {"a": 1}) == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no","data":{"a":1}}}'
    )
