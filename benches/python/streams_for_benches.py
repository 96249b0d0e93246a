"""The streams that benches read: files of the corpus, made by the generator where one is missing."""

from __future__ import annotations

from bars import Context
from counterfoil.testing.streams import KINDS, StreamKind, generate_stream

MIB = 1 << 20
SIZES: dict[StreamKind, int] = {
    "tokens": 8 * MIB,
    "mcp": 12 * MIB,
    "large": 24 * MIB,
    "multiline": 8 * MIB,
    "crlf": 12 * MIB,
    "utf8": 8 * MIB,
    "keepalive": 4 * MIB,
}


def stream_file(context: Context, kind: StreamKind) -> bytes:
    """The whole stream of one kind, a quarter of its size when the run is quick."""
    context.corpus.mkdir(parents=True, exist_ok=True)
    path = context.corpus / f"{kind}.sse"
    if not path.exists():
        path.write_bytes(generate_stream(kind, size_bytes=SIZES[kind]).raw)
    raw = path.read_bytes()
    return whole_events(raw, len(raw) // 4) if context.quick else raw


def whole_events(raw: bytes, size: int) -> bytes:
    """The longest part of at most about `size` bytes that ends with a blank line."""
    if size >= len(raw):
        return raw
    end = max(raw.rfind(b"\n\n", 0, size) + 2, raw.rfind(b"\r\n\r\n", 0, size) + 4)
    return raw[:end] if end > 4 else raw


def stream_files(context: Context) -> dict[StreamKind, bytes]:
    return {kind: stream_file(context, kind) for kind in KINDS}


def cut(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]
