"""What is special about the ledger in memory; the contract is in `test_ledger_interface.py`."""

from __future__ import annotations

import os

import pytest
from counterfoil import Scope
from counterfoil.errors import ForkedHandle, LedgerClosed, UnsafeHandler
from counterfoil.model.ledger_keys import CallKey
from counterfoil.model.ledger_rows import RowKind
from counterfoil.protocol.ledger_steps import Intent
from counterfoil.stores.ledger_memory import MemoryLedger

INTENT = Intent(scope=Scope(), key=CallKey(route="r", key="k"), kind=RowKind.TRANSACTIONAL)


def test_it_has_no_transaction_to_lend() -> None:
    """P8: no combination starts that could not keep its promise."""
    with MemoryLedger().blocking(), pytest.raises(UnsafeHandler, match="SqliteLedger"):
        MemoryLedger().apply(INTENT, lambda transaction: None)


def test_it_is_opened_once_at_a_time() -> None:
    ledger = MemoryLedger()
    with ledger.blocking():
        assert repr(ledger) == "<MemoryLedger open>"
        with pytest.raises(LedgerClosed, match="already"):
            ledger.open_nowait()
    assert repr(ledger) == "<MemoryLedger closed>"


def test_a_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger()
    with ledger.blocking():
        own = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: own + 1)
        with pytest.raises(ForkedHandle):
            ledger.claim(INTENT)
        monkeypatch.undo()
