"""Splits the bytes that an HTTP/1.1 client sends into requests; knows only as much HTTP as a test link needs.

Does no I/O.  The link calls it to choose a target and a cut before the request goes on.
"""

from __future__ import annotations

import msgspec


class Exchange(msgspec.Struct, frozen=True):
    """One request as the link saw it; `number` counts the requests of the link from 1."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    raw: bytes


class RequestSplitter:
    """Cuts a byte stream of requests at their ends.  A body needs a `Content-Length`."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[str, str, dict[str, str], bytes, bytes]]:
        """Return the requests that are complete now: method, path, headers, body, raw bytes."""
        self._buffer += data
        complete = []
        while (one := self._take_request()) is not None:
            complete.append(one)
        return complete

    def _take_request(self) -> tuple[str, str, dict[str, str], bytes, bytes] | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        fields = (line.partition(":") for line in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        if "transfer-encoding" in headers:
            raise ValueError("the test link does not read chunked requests: send a Content-Length")
        length = int(headers.get("content-length", "0"))
        whole = end + 4 + length
        if len(self._buffer) < whole:
            return None
        raw = bytes(self._buffer[:whole])
        del self._buffer[:whole]
        return method, path, headers, raw[end + 4 :], raw
