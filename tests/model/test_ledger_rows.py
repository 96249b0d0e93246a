"""The stored records: what is written is read back, and a newer one is refused by name."""

from __future__ import annotations

import msgspec
import pytest
from counterfoil.errors import LedgerSchemaNewer
from counterfoil.model.ledger_rows import (
    Ahead,
    LedgerRow,
    RowKind,
    RowState,
    StreamMark,
    decode_mark,
    decode_row,
    encode_mark,
    encode_row,
    is_unresolved,
)
from counterfoil.model.tokens import OutcomeToken

ROW = LedgerRow(
    state=RowState.SETTLED,
    kind=RowKind.CALL,
    attempt=2,
    tries=1,
    fence=3,
    serial=4,
    commit=5,
    changed_at=6.5,
    outcome=OutcomeToken.FAILED,
    result=b"answer",
    label="tools/call",
)


def test_records_round_trip() -> None:
    mark = StreamMark(
        epoch="e", processed=4, event_id="id", last=ROW, ahead=(Ahead(6, "six", "d", b"k"),), record=b"r"
    )
    assert decode_row(encode_row(ROW)) == ROW
    assert decode_mark(encode_mark(mark)) == mark


@pytest.mark.parametrize("stored", [b"", b"\x02" + encode_row(ROW)[1:], b"\xff"])
def test_another_version_is_refused_by_name(stored: bytes) -> None:
    with pytest.raises(LedgerSchemaNewer, match="upgrade counterfoil"):
        decode_row(stored)
    with pytest.raises(LedgerSchemaNewer):
        decode_mark(stored)


def test_a_record_of_this_version_with_fewer_fields_is_still_read() -> None:
    short = bytes([1]) + msgspec.msgpack.encode(msgspec.to_builtins(ROW)[:9])
    assert decode_row(short).outcome is OutcomeToken.FAILED


@pytest.mark.parametrize(
    ("state", "outcome", "open_"),
    [
        (RowState.INTENDED, None, True),
        (RowState.AWAITING_INPUT, None, True),
        (RowState.CANCELLING, None, True),
        (RowState.RELEASED, None, False),
        (RowState.TOMBSTONE, None, False),
        (RowState.SETTLED, OutcomeToken.INDETERMINATE, True),
        (RowState.SETTLED, OutcomeToken.COMPLETED, False),
        (RowState.SETTLED, OutcomeToken.FAILED, False),
        (RowState.SETTLED, OutcomeToken.NOT_APPLIED, False),
    ],
)
def test_what_nobody_knows_yet_never_expires(
    state: RowState, outcome: OutcomeToken | None, open_: bool
) -> None:
    assert is_unresolved(msgspec.structs.replace(ROW, state=state, outcome=outcome)) is open_
