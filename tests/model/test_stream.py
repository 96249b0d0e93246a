"""What a client keeps of a stream survives being written down."""

from __future__ import annotations

import pickle

import msgspec
from counterfoil.model.stream import HeldEvent, Place, RequestRecord, StreamRecord
from counterfoil.model.tokens import StreamKind

RECORD = StreamRecord(
    server="https://mcp.example",
    stream="local",
    kind=StreamKind.CALL,
    session_id="s",
    principal="alice",
    revision="a-date",
    epoch="e",
    processed=4,
    held=(HeldEvent(position=3, event_id="c", digest="x"), HeldEvent(position=4, event_id="d", digest="y")),
    request=RequestRecord(request_id=7, method="tools/call", idempotency_key="k", fingerprint=b"f"),
)


def test_record_survives_json_msgpack_and_pickle() -> None:
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(RECORD), type=StreamRecord) == RECORD
    assert pickle.loads(pickle.dumps(RECORD)) == RECORD


def test_typed_request_ids_stay_typed() -> None:
    for request_id in (7, "7"):
        record = msgspec.structs.replace(RECORD, request=RequestRecord(request_id=request_id))
        again = msgspec.json.decode(msgspec.json.encode(record), type=StreamRecord)
        assert again.request is not None
        assert again.request.request_id == request_id
        assert type(again.request.request_id) is type(request_id)


def test_place_is_a_value() -> None:
    place = Place(stream="s", epoch="e", position=1, event_id="i", digest="d", foreign=True)
    assert hash(place) == hash(msgspec.structs.replace(place))
