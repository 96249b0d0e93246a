"""Hop-by-hop fields stay on their hop, and each leg makes its own framing."""

from __future__ import annotations

import pytest
from counterfoil.adapters.gateway.wire.headers import (
    HeaderPolicy,
    cors_of,
    pass_answer_headers,
    pass_request_headers,
)
from counterfoil.errors import ConfigError


def test_fields_of_the_hop_and_those_it_nominates_are_not_forwarded() -> None:
    sent = [
        (b"connection", b"close, X-Secret"),
        (b"x-secret", b"1"),
        (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"3"),
        (b"upgrade", b"h2c"),
        (b"host", b"a"),
        (b"last-event-id", b"cf1.x"),
        (b"x-tenant", b"mallory"),
        (b"authorization", b"Bearer t"),
        (b"traceparent", b"00-1-2-01"),
    ]
    passed = pass_request_headers(sent, strip=frozenset({b"x-tenant"}))
    assert passed == ((b"authorization", b"Bearer t"), (b"traceparent", b"00-1-2-01"))


def test_an_answer_keeps_what_describes_its_body_only_with_that_body() -> None:
    answer = [
        (b"content-type", b"application/json"),
        (b"set-cookie", b"a=1"),
        (b"date", b"x"),
        (b"etag", b"e"),
    ]
    assert pass_answer_headers(answer) == (answer[0], answer[1], answer[3])
    assert pass_answer_headers(answer, new_body=True) == (answer[1],)


def test_the_fields_for_browsers_are_found() -> None:
    answer = ((b"access-control-allow-origin", b"*"), (b"vary", b"origin"), (b"x", b"y"))
    assert cors_of(answer) == answer[:2]


def test_who_only_looks_on_passes_the_cursor() -> None:
    sent = ((b"last-event-id", b"theirs"), (b"stream-continuity", b"v=1"))
    assert pass_request_headers(sent, strip=frozenset(), passes_cursor=True) == sent


def test_a_policy_drops_replaces_and_hides_fields() -> None:
    policy = HeaderPolicy(
        drop=frozenset({b"authorization"}), add=((b"x-key", b"1"),), drop_from_answers=frozenset({b"server"})
    )
    sent = ((b"authorization", b"Bearer t"), (b"x-key", b"theirs"), (b"traceparent", b"00"))
    assert policy.apply(sent) == ((b"traceparent", b"00"), (b"x-key", b"1"))
    assert policy.apply_to_answer(((b"server", b"s"), (b"x", b"y"))) == ((b"x", b"y"),)
    assert HeaderPolicy().apply(sent) is sent


@pytest.mark.parametrize(
    "name", [b"mcp-session-id", b"accept", b"host", b"connection", b"a b", b"", b"X-Upper"]
)
def test_a_field_that_the_gateway_depends_on_is_not_for_a_policy(name: bytes) -> None:
    for policy in (
        {"drop": frozenset({name})},
        {"add": ((name, b"1"),)},
        {"drop_from_answers": frozenset({name})},
    ):
        with pytest.raises(ConfigError):
            HeaderPolicy(**policy)  # type: ignore[arg-type]


def test_a_value_that_would_break_the_line_is_refused() -> None:
    with pytest.raises(ConfigError, match="x-key"):
        HeaderPolicy(add=((b"x-key", b"a\r\nb: c"),))
