"""Makes event streams of seven kinds, of any size, with the events that a correct parser gets from them.

Deterministic: one kind, size and seed give the same bytes on every machine.  For tests and benches.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, get_args

import msgspec

StreamKind = Literal["tokens", "mcp", "large", "multiline", "crlf", "utf8", "keepalive"]
KINDS: tuple[StreamKind, ...] = get_args(StreamKind)

#: Type, last event ID, data, and the event's own retry in milliseconds.
ExpectedEvent = tuple[str, str, str, int | None]


class GeneratedStream(msgspec.Struct, frozen=True):
    """The bytes of a stream, and what they mean."""

    kind: StreamKind
    raw: bytes
    events: tuple[ExpectedEvent, ...]


def digest_events(events: Iterable[ExpectedEvent]) -> str:
    """SHA-256 over all events, each field with its length, so that no byte moves between fields."""
    sha = hashlib.sha256()
    for event in events:
        for field in event:
            raw = b"-" if field is None else str(field).encode("utf-8", "surrogatepass")
            sha.update(b"%d:" % len(raw) + raw)
    return sha.hexdigest()


def generate_stream(kind: StreamKind, *, size_bytes: int, seed: int = 1) -> GeneratedStream:
    """Make whole events until there are at least `size_bytes`.  Raises ``ValueError`` for another kind."""
    if kind not in _MAKERS:
        raise ValueError(f"{kind!r} is no kind of stream: choose from {', '.join(KINDS)}")
    pieces: list[bytes] = []
    events: list[ExpectedEvent] = []
    length = 0
    for raw, event in _MAKERS[kind](random.Random(f"{kind} {seed}")):
        pieces.append(raw)
        length += len(raw)
        if event is not None:
            events.append(event)
            if length >= size_bytes:
                break
    return GeneratedStream(kind, b"".join(pieces), tuple(events))


_Pieces = Iterator[tuple[bytes, ExpectedEvent | None]]

# fmt: off
_WORDS = [
    "ring", "window", "cursor", "epoch", "stream", "event", "gap", "replay", "reader", "writer", "fence",
    "ledger", "effect", "outcome", "verdict", "evidence", "claim", "echo", "tag", "scope", "tenant",
    "session", "key", "digest", "chain", "byte", "frame", "line", "chunk", "block", "field", "value",
    "comment", "colon", "space", "blank", "digit", "number", "letter", "word", "text", "page", "river",
    "stone", "cloud", "paper", "lamp", "table", "glass", "bread", "salt", "wind",
]
# fmt: on
_SCRIPTS = (
    "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜金生丽水玉出昆冈",
    "いろはにほへとちりぬるをわかよたれそつねならむうゐのおくやまけふこえてあさきゆめみしゑひもせす",
    "다람쥐헌쳇바퀴에타고파키스의고유조건은입술끼리만나야하고특별한기술이필요치않다",
)
_RARE = ("😀", "🧾", "👩\u200d🔧", "e\u0301", "ß", "Ж", "ع", "ไทย", "\u0085", "\u2028", "\u2029", "𠮷")


def _pick(rng: random.Random, items: str | tuple[str, ...] | list[str]) -> str:
    return items[int(rng.random() * len(items))]


def _prose(rng: random.Random, letters: int) -> str:
    words: list[str] = []
    length = 0
    while length < letters:
        words.append(_pick(rng, _WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)


def _token(rng: random.Random) -> str:
    return base64.urlsafe_b64encode(rng.getrandbits(192).to_bytes(24, "big")).decode()


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _between(rng: random.Random, low: float, high: float) -> int:
    """More small ones than large ones, as messages are."""
    return int(low * (high / low) ** rng.random())


def _frame(lines: Iterable[str], *, event: str = "", event_id: str, retry_ms: int | None = None) -> bytes:
    text = f"event: {event}\n" if event else ""
    text += f"id: {event_id}\n"
    text += "" if retry_ms is None else f"retry: {retry_ms}\n"
    return (text + "".join(f"data: {line}\n" for line in lines) + "\n").encode()


def _tokens(rng: random.Random) -> _Pieces:
    answer = _token(rng)
    number = 0
    while True:
        number += 1
        data = _compact(
            {"answer": answer, "type": "delta", "part": number % 4, "delta": {"text": f"{_prose(rng, 3)} "}}
        )
        yield _frame([data], event_id=str(number)), ("message", str(number), data, None)


def _message(rng: random.Random, number: int) -> str:
    share = rng.random()
    if share < 0.5:
        text = _prose(rng, 120 + int(rng.random() * 150))
        params = {"progressToken": _token(rng), "progress": number % 500, "total": 500, "message": text}
        return _compact({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    if share < 0.6:
        text = _prose(rng, 150 + int(rng.random() * 300))
        params = {"level": "info", "logger": _pick(rng, _WORDS), "data": text}
        return _compact({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    text = _prose(rng, _between(rng, 450, 3_600)).replace(" stone ", ' "stone" ').replace(" page ", "\n")
    result = {
        "content": [{"type": "text", "text": text}],
        "structuredContent": {"rows": number},
        "isError": False,
    }
    return _compact({"jsonrpc": "2.0", "id": number, "result": result})


def _mcp(rng: random.Random) -> _Pieces:
    number = 0
    while True:
        event_id = f"cf1.{_token(rng)}.{number}"
        if number % 400 == 0:
            yield _frame([""], event_id=event_id, retry_ms=3000), ("message", event_id, "", 3000)
        else:
            data = _message(rng, number)
            yield _frame([data], event="message", event_id=event_id), ("message", event_id, data, None)
        number += 1


def _crlf(rng: random.Random) -> _Pieces:
    for raw, event in _mcp(rng):
        yield raw.replace(b"\n", b"\r\n"), event


def _large(rng: random.Random) -> _Pieces:
    page = _prose(rng, 1_100_000).replace(" page ", "\n")
    image = base64.b64encode(rng.getrandbits(8 * 800_000).to_bytes(800_000, "big")).decode()
    number = 0
    while True:
        number += 1
        length = _between(rng, 64_000, 1_000_000)
        start = int(rng.random() * 60_000)
        if number % 2:
            content = {"type": "text", "text": page[start : start + length]}
        else:
            content = {
                "type": "image",
                "mimeType": "image/png",
                "data": image[start : start + length // 4 * 4],
            }
        data = _compact({"jsonrpc": "2.0", "id": number, "result": {"content": [content], "isError": False}})
        event_id = f"cf1.{_token(rng)}.{number}"
        yield _frame([data], event="message", event_id=event_id), ("message", event_id, data, None)


def _multiline(rng: random.Random) -> _Pieces:
    number = 0
    while True:
        number += 1
        rows = [
            {"word": _pick(rng, _WORDS), "at": int(rng.random() * 1e6)}
            for _ in range(2 + int(rng.random() * 24))
        ]
        lines = json.dumps({"id": number, "rows": rows}, indent=2).split("\n")
        if rng.random() < 0.3:
            lines.insert(1, "")
        event_id = str(number)
        # Every way in which a writer may put the same value down.
        text = f"id:{event_id}\n"
        for line in lines:
            bare = line[:1] != " " and rng.random() < 0.5
            text += "data\n" if not line and bare else f"data:{line}\n" if bare else f"data: {line}\n"
        yield (text + "\n").encode(), ("message", event_id, "\n".join(lines), None)


def _utf8(rng: random.Random) -> _Pieces:
    number = 0
    while True:
        number += 1
        script = _pick(rng, _SCRIPTS)
        letters = [
            _pick(rng, script if rng.random() < 0.96 else _RARE) for _ in range(30 + int(rng.random() * 400))
        ]
        data = _compact(
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "".join(letters)}}
        )
        event_id = f"流-{number}" if number % 8 == 0 else str(number)
        event = "知らせ" if number % 9 == 0 else ""
        yield _frame([data], event=event, event_id=event_id), (event or "message", event_id, data, None)


def _keepalive(rng: random.Random) -> _Pieces:
    number = 0
    second = 0
    while True:
        for _ in range(35 + int(rng.random() * 30)):
            second += 15
            share = rng.random()
            if share < 0.75:
                clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
                yield f": keep-alive 2026-01-01T{clock}.{int(rng.random() * 1e6):06d}Z\n\n".encode(), None
            else:
                yield (b":\n\n" if share < 0.95 else b": beat\n"), None
        number += 1
        data = _compact(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": number}}
        )
        event_id = f"cf1.{_token(rng)}.{number}"
        yield _frame([data], event="message", event_id=event_id), ("message", event_id, data, None)


_MAKERS: dict[StreamKind, Callable[[random.Random], _Pieces]] = {
    "tokens": _tokens,
    "mcp": _mcp,
    "large": _large,
    "multiline": _multiline,
    "crlf": _crlf,
    "utf8": _utf8,
    "keepalive": _keepalive,
}
