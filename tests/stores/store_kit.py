"""What the tests of the replay store share: a clock that is set, messages, and frames read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from counterfoil import KeyRing, Limits, ReplayStore, Scope, SseEvent, SseParser, StreamEnded
from counterfoil.stores.replay.reader import Reader

KEYS = KeyRing.from_secret(b"k" * 32, made_s=0)
SCOPE = Scope(tenant="t", principal="p", session="s")


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def make_store(
    *, keys: KeyRing = KEYS, clock: Callable[[], float] | None = None, **limits: Any
) -> ReplayStore:
    return ReplayStore(keys=keys, clock=clock or Clock(), limits=Limits(**limits))


def note(number: int, *, size: int = 0) -> bytes:
    """A notification that says its number."""
    params = {"n": number} | ({"pad": "x" * size} if size else {})
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/note", "params": params}).encode()


def ask(request_id: int | str) -> bytes:
    """A request of the server to the client."""
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "elicitation/create"}).encode()


def answer(request_id: int | str, *, size: int = 0) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": {"pad": "x" * size}}).encode()


def events_in(frames: bytes) -> list[SseEvent[str]]:
    parser = SseParser()
    events = parser.feed(frames)
    assert not parser.end().truncated
    return list(events)


def read_all(reader: Reader, *, piece: int = 4096) -> bytes:
    """Everything that can be read now; the end of the stream is no error here."""
    frames = []
    while True:
        try:
            more = reader.read(piece)
        except StreamEnded:
            break
        if not more:
            break
        frames.append(more)
    return b"".join(frames)


def data_of(reader: Reader) -> list[bytes]:
    return [event.data.encode() for event in events_in(read_all(reader))]
