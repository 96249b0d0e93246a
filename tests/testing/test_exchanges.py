"""The link sees each request whole, however its bytes arrive."""

from __future__ import annotations

import pytest
from counterfoil.testing.exchanges import RequestSplitter

TWO = (
    b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    b"GET /mcp?a=b HTTP/1.1\r\nLast-Event-ID: 7\r\n\r\n"
)


@pytest.mark.parametrize("size", [1, 3, 17, len(TWO)])
def test_requests_are_split_at_their_ends(size: int) -> None:
    splitter = RequestSplitter()
    found = [request for at in range(0, len(TWO), size) for request in splitter.feed(TWO[at : at + size])]
    assert [request[:2] for request in found] == [("POST", "/mcp"), ("GET", "/mcp?a=b")]
    assert found[0][3] == b"hello"
    assert found[1][2] == {"last-event-id": "7"}
    assert b"".join(request[4] for request in found) == TWO


def test_a_chunked_request_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="Content-Length"):
        RequestSplitter().feed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
