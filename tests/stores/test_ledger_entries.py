"""Entries: what a person is shown, and which rows wait for one."""

from __future__ import annotations

import msgspec
import pytest
from counterfoil import Scope
from counterfoil.model.ledger_keys import CallKey, EventPlace, PayloadKey, encode_key
from counterfoil.model.ledger_rows import LedgerRow, RowKind, RowState
from counterfoil.model.tokens import OutcomeToken
from counterfoil.stores.ledger_entries import describe_entry, waits_for_a_person

SCOPE = Scope(tenant="t", session="s")
EVENT = encode_key(SCOPE, EventPlace(server="srv", stream="st", epoch="e", position=4, event_id="x"))
CALL = encode_key(SCOPE, CallKey(route="srv", key="order-17"))
PAYLOAD = encode_key(SCOPE, PayloadKey(server="srv", key="k"))
ROW = LedgerRow(
    state=RowState.SETTLED,
    kind=RowKind.CALL,
    attempt=2,
    tries=1,
    fence=5,
    serial=1,
    commit=1,
    changed_at=10.0,
    outcome=OutcomeToken.INDETERMINATE,
    why="cut",
    evidence="the answer never came",
    label="tools/call order",
)


def test_an_entry_says_whose_what_and_why() -> None:
    entry = describe_entry(CALL, ROW)
    assert (entry.what, entry.tenant, entry.principal, entry.session) == ("call", "t", None, "s")
    assert (entry.server, entry.idempotency_key, entry.label) == ("srv", "order-17", "tools/call order")
    assert (entry.state, entry.outcome, entry.why, entry.attempt) == ("settled", "indeterminate", "cut", 2)
    event = describe_entry(EVENT, ROW)
    assert (event.stream, event.epoch, event.idempotency_key) == ("st", "e", "4")


@pytest.mark.parametrize(
    ("key", "change", "waits"),
    [
        (CALL, {}, True),
        (PAYLOAD, {}, False),  # the event's own row is the one to resolve
        (CALL, {"outcome": OutcomeToken.FAILED}, False),
        (CALL, {"state": RowState.INTENDED, "outcome": None}, False),  # it may still be running
        (CALL, {"state": RowState.INTENDED, "outcome": None, "fence": 4}, True),
        (CALL, {"state": RowState.CANCELLING, "outcome": None, "fence": 4}, True),
        (EVENT, {"state": RowState.INTENDED, "kind": RowKind.AT_MOST_ONCE, "fence": 4}, True),
        (EVENT, {"state": RowState.INTENDED, "kind": RowKind.IDEMPOTENT, "fence": 4}, False),
        (CALL, {"state": RowState.AWAITING_INPUT, "outcome": None, "fence": 4}, False),
    ],
)
def test_only_what_nothing_else_can_tell_waits_for_a_person(
    key: bytes, change: dict[str, object], waits: bool
) -> None:
    assert waits_for_a_person(key, msgspec.structs.replace(ROW, **change), fence=5) is waits
