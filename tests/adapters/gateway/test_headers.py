"""Hop-by-hop fields stay on their hop, and each leg makes its own framing."""

from __future__ import annotations

from counterfoil.adapters.gateway.headers import cors_of, pass_answer_headers, pass_request_headers


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
