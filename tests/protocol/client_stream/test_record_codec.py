"""A kept record is read again by every later release, and a newer one is refused by its number."""

from __future__ import annotations

from pathlib import Path

import pytest
from counterfoil.errors import StreamRecordUnreadable
from counterfoil.model.stream import HeldEvent, RequestRecord, StreamRecord
from counterfoil.model.tokens import StreamKind
from counterfoil.protocol.client_stream.record_codec import decode_record, encode_record
from hypothesis import given
from hypothesis import strategies as st

RECORD = StreamRecord(
    server="https://mcp.example",
    stream="local",
    kind=StreamKind.CALL,
    session_id=None,
    principal="alice",
    revision="2025-11-25",
    epoch="e",
    processed=4,
    held=(HeldEvent(position=4, event_id="d", digest="y"),),
    request=RequestRecord(request_id="7", idempotency_key="k"),
)


def test_record_is_read_as_it_was_written() -> None:
    assert decode_record(encode_record(RECORD)) == RECORD


def test_sample_of_the_first_release_is_read() -> None:
    sample = Path(__file__).resolve().parents[2] / "compat" / "stream_record_v1.hex"
    assert decode_record(bytes.fromhex(sample.read_text())) == RECORD


def test_newer_version_is_refused_by_its_number() -> None:
    with pytest.raises(StreamRecordUnreadable, match="version 2"):
        decode_record(b"\x02" + encode_record(RECORD)[1:])
    with pytest.raises(StreamRecordUnreadable, match="version no"):
        decode_record(b"")


@given(st.binary(max_size=80))
def test_damaged_records_are_refused_with_one_error(data: bytes) -> None:
    with pytest.raises(StreamRecordUnreadable):
        decode_record(b"\x01" + data)
