"""The two records that a ledger keeps, a row per key and a mark per stream, and how they are written to disk.

The layout is `docs/disk.md`; fields are only ever added at the end, with a default.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from counterfoil.errors import LedgerSchemaNewer
from counterfoil.model.tokens import OutcomeToken

#: The version byte before every stored record.
RECORD_VERSION = 1


class RowState(StrEnum):
    """Where a key stands (decision L29); *parked* is settled with the mark behind it."""

    INTENDED = "intended"
    RELEASED = "released"
    AWAITING_INPUT = "awaiting_input"
    CANCELLING = "cancelling"
    SETTLED = "settled"
    TOMBSTONE = "tombstone"


class RowKind(StrEnum):
    """What may be done when a run ends without an outcome; fixed when the intent is written."""

    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"
    AT_MOST_ONCE = "at_most_once"
    CALL = "call"
    NONE = "none"


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What became of one key.

    `attempt` counts every start, `tries` those since the key was last free; `fence` is the incarnation that
    wrote the row and `serial` the write within it; times are seconds since 1970.  `event_id` and `digest`
    are kept while a run is open.  `adopted` counts the callers that took the call over.  `run` names who
    carries the run on, where several processes share the ledger: its process, and which of its runs.
    """

    state: RowState
    kind: RowKind
    attempt: int
    tries: int
    fence: int
    serial: int
    commit: int
    changed_at: float
    outcome: OutcomeToken | None = None
    result: bytes | None = None
    why: str = ""
    evidence: str = ""
    note: str = ""
    label: str = ""
    fingerprint: bytes = b""
    position: int | None = None
    payload_key: bytes | None = None
    question: bytes | None = None
    round: bytes = b""
    parked: bool = False
    delivered: bool = False
    event_id: str = ""
    digest: str = ""
    adopted: int = 0
    run: bytes = b""


class Ahead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event settled above the mark, which has to wait for the ones before it."""

    position: int
    event_id: str
    digest: str
    key: bytes


class StreamMark(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """How far a stream is processed: every event up to `processed` is completed, finally failed or parked.

    `event_id` and `digest` are those of the event at the mark, and `last` is its outcome, written by the
    commit that moved the mark there.  `record` is whatever the reader of the stream keeps beside it.
    """

    epoch: str
    processed: int = 0
    event_id: str = ""
    digest: str = ""
    commit: int = 0
    last: LedgerRow | None = None
    ahead: tuple[Ahead, ...] = ()
    ended: str = ""
    record: bytes = b""


_ENCODE = msgspec.msgpack.Encoder().encode
_ROW = msgspec.msgpack.Decoder(LedgerRow).decode
_MARK = msgspec.msgpack.Decoder(StreamMark).decode
_PREFIX = bytes([RECORD_VERSION])


def encode_row(row: LedgerRow) -> bytes:
    """Write a row as it is stored."""
    return _PREFIX + _ENCODE(row)


def decode_row(stored: bytes) -> LedgerRow:
    """Read a stored row; raises LedgerSchemaNewer for a version that this release does not know."""
    _check_version(stored)
    return _ROW(memoryview(stored)[1:])


def encode_mark(mark: StreamMark) -> bytes:
    """Write a mark as it is stored."""
    return _PREFIX + _ENCODE(mark)


def decode_mark(stored: bytes) -> StreamMark:
    """Read a stored mark; raises LedgerSchemaNewer for a version that this release does not know."""
    _check_version(stored)
    return _MARK(memoryview(stored)[1:])


def _check_version(stored: bytes) -> None:
    if stored[:1] != _PREFIX:
        found = stored[0] if stored else 0
        raise LedgerSchemaNewer(
            f"this record has version {found}, and this release reads {RECORD_VERSION}: upgrade counterfoil"
        )


def is_unresolved(row: LedgerRow) -> bool:
    """Say whether a row must never expire: nobody knows yet what became of it (decision L24)."""
    if row.state is RowState.SETTLED:
        return row.outcome is OutcomeToken.INDETERMINATE
    return row.state in (RowState.INTENDED, RowState.AWAITING_INPUT, RowState.CANCELLING)
