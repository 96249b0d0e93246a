"""An event-stream parser in pure Python, as fast as the language allows: the yardstick for what Rust buys.

It conforms for every way of cutting and is linear, but has no bounds.  Benches only.
"""

from __future__ import annotations

import codecs

Event = tuple[str, str, str, int | None]


class PureParser:
    """`feed` gives (type, last event ID, data, retry) of each completed event."""

    __slots__ = ("_after_cr", "_data", "_decode", "_event", "_id", "_retry", "_started", "_unfinished")

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._started = False
        self._after_cr = False
        self._unfinished: list[str] = []
        self._data: list[str] = []
        self._event = ""
        self._id = ""
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        text = self._decode(chunk)
        if not text:
            return []
        if not self._started:
            self._started = True
            text = text.removeprefix("\ufeff")
        if self._after_cr:
            self._after_cr = False
            text = text.removeprefix("\n")
        if "\r" in text:
            self._after_cr = text[-1] == "\r"
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        tail = lines.pop()
        unfinished = self._unfinished
        if lines and unfinished:
            unfinished.append(lines[0])
            lines[0] = "".join(unfinished)
            unfinished.clear()
        if tail:
            unfinished.append(tail)
        return self._take_lines(lines) if lines else []

    def _take_lines(self, lines: list[str]) -> list[Event]:
        found: list[Event] = []
        data = self._data
        for line in lines:
            if line.startswith("data: "):
                data.append(line[6:])
            elif line == "":
                if data:
                    value = data[0] if len(data) == 1 else "\n".join(data)
                    found.append((self._event or "message", self._id, value, self._retry))
                    data.clear()
                self._event = ""
                self._retry = None
            elif line.startswith("id: "):
                if "\0" not in line:
                    self._id = line[4:]
            elif line[0] != ":":
                self._take_field(line)
        return found

    def _take_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self._retry = int(value)
