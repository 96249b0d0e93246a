"""A request is read in one way or refused."""

from __future__ import annotations

from typing import Any

import pytest
from counterfoil.adapters.gateway.arrival.inbound import Inbound, read_inbound
from counterfoil.errors import RequestRefused


def read(*headers: tuple[bytes, bytes], **scope: Any) -> Inbound:
    whole: dict[str, Any] = {"method": "GET", "path": "/mcp", "headers": list(headers), **scope}
    return read_inbound(whole, max_header_bytes=1_000)


def test_the_fields_that_matter_are_read() -> None:
    inbound = read(
        (b"Mcp-Session-Id", b"s1"),
        (b"Last-Event-ID", b"\xff"),
        (b"accept", b"application/json, text/event-stream"),
        client=("10.0.0.1", 9),
        raw_path=b"/mcp%20x",
        query_string=b"a=1",
    )
    assert (inbound.session, inbound.cursor, inbound.peer) == ("s1", b"\xff", "10.0.0.1")
    assert inbound.target == b"/mcp%20x?a=1"
    assert inbound.accepts_sse
    assert inbound.accepts_json


def test_the_target_is_the_path_behind_the_mount_point() -> None:
    assert read(path="/mcp/deep", root_path="/mcp").target == b"/deep"


@pytest.mark.parametrize("name", [b"mcp-session-id", b"last-event-id", b"content-length", b"host", b"origin"])
def test_a_field_that_two_readers_could_read_in_two_ways_is_refused(name: bytes) -> None:
    with pytest.raises(RequestRefused) as refused:
        read((name, b"1"), (name, b"1"))
    assert refused.value.status == 400


def test_too_many_header_bytes_are_refused() -> None:
    with pytest.raises(RequestRefused) as refused:
        read((b"x", b"y" * 1_000))
    assert refused.value.status == 431


def test_a_packed_body_is_refused_as_no_bound_holds_for_it() -> None:
    with pytest.raises(RequestRefused) as refused:
        read((b"content-encoding", b"gzip"))
    assert refused.value.status == 415
    assert read((b"content-encoding", b"identity")).cursor is None


@pytest.mark.parametrize("value", [b"caf\xc3\xa9", b"a\x7f", b"x" * 129])
def test_a_session_id_that_cannot_be_one_is_refused(value: bytes) -> None:
    with pytest.raises(RequestRefused):
        read((b"mcp-session-id", value))


@pytest.mark.parametrize(
    "path",
    [b"/mcp/../admin", b"/mcp/%2e%2E/admin", b"/./mcp", b"/mcp/..%2fadmin", b"/mcp/..%5Cx", b"/m\xc3\xa9"],
)
def test_a_path_that_an_upstream_would_resolve_elsewhere_is_refused(path: bytes) -> None:
    with pytest.raises(RequestRefused) as refused:
        read(raw_path=path)
    assert (refused.value.status, refused.value.field) == (400, "path")


def test_dots_inside_a_segment_are_a_name() -> None:
    assert read(raw_path=b"/mcp/..x/a.b/...").target == b"/mcp/..x/a.b/..."
