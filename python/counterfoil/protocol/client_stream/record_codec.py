"""Write down what a client keeps of a stream, and read it again in a later release.

The layout is one version byte and a msgpack map; fields are only added, with a default.
"""

from __future__ import annotations

import msgspec

from counterfoil.errors import StreamRecordUnreadable
from counterfoil.model.stream import StreamRecord

RECORD_VERSION = 1
_PREFIX = bytes([RECORD_VERSION])
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(StreamRecord)


def encode_record(record: StreamRecord) -> bytes:
    """Return the record as it is stored."""
    return _PREFIX + _ENCODER.encode(record)


def decode_record(stored: bytes) -> StreamRecord:
    """Read a stored record.

    Raises `StreamRecordUnreadable` for a newer version, by its number, and for bytes that are no record.
    """
    if stored[:1] != _PREFIX:
        found = stored[0] if stored else "no"
        raise StreamRecordUnreadable(
            f"a stream record of version {found}; this release reads {RECORD_VERSION}: upgrade counterfoil"
        )
    try:
        return _DECODER.decode(memoryview(stored)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise StreamRecordUnreadable(f"these bytes are no stream record: {problem}") from None
