"""The gateway as its users meet it: a real SDK client, the gateway, a real SDK server."""

from __future__ import annotations

from counterfoil.adapters.gateway.upstream import header_of


def test_header_of_finds_the_first_field_of_a_name() -> None:
    assert header_of(((b"a", b"1"), (b"b", b"2"), (b"b", b"3")), b"b") == b"2"
    assert header_of(((b"a", b"1"),), b"b") is None
