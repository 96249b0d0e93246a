"""Plain threads get the same ledger."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from counterfoil import Scope
from counterfoil.errors import LedgerCorrupt
from counterfoil.model.ledger_keys import CallKey, EventPlace
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import Claimed, Known, Running, Settled
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_sqlite import SqliteLedger

SCOPE = Scope(principal="p")
DONE = Settlement(outcome=OutcomeToken.COMPLETED)


def place(position: int) -> EventPlace:
    return EventPlace(server="s", stream="st", epoch="e", position=position, event_id=f"id-{position}")


def test_threads_share_one_ledger_and_one_key_runs_once(tmp_path: Path) -> None:
    runs: list[Claimed] = []
    with SqliteLedger(tmp_path / "l.db").blocking() as ledger:
        barrier = threading.Barrier(16)

        def ask() -> None:
            barrier.wait()
            wanted = Intent(scope=SCOPE, key=CallKey(route="r", key="k"), kind=RowKind.CALL)
            answer = ledger.claim(wanted)
            if isinstance(answer, Claimed):
                runs.append(answer)
            else:
                assert isinstance(answer, Running | Known)

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(runs) == 1
        assert isinstance(ledger.settle(runs[0], DONE), Settled)


def test_the_whole_surface_without_an_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as shop:
        shop.execute("create table stock (sku text primary key, level int)")
    shop.close()

    def insert(transaction: Transaction) -> None:
        transaction.execute("insert into stock values ('A1', 3)")

    with SqliteLedger(path).blocking() as ledger:
        applied = ledger.apply(Intent(scope=SCOPE, key=place(1), kind=RowKind.TRANSACTIONAL), insert)
        assert isinstance(applied, Settled)
        ledger.skip(SCOPE, place(2))
        run = ledger.claim(Intent(scope=SCOPE, key=place(3), kind=RowKind.IDEMPOTENT))
        assert isinstance(run, Claimed)
        again = ledger.claim_again(run)
        ledger.release(again)
        once = ledger.claim(Intent(scope=SCOPE, key=place(3), kind=RowKind.AT_MOST_ONCE))
        assert isinstance(once, Claimed)
        ledger.settle(once, Settlement(outcome=OutcomeToken.INDETERMINATE, parked=True))
        (entry,) = ledger.indeterminate()
        assert ledger.entry(SCOPE, place(3)) == entry
        ledger.resolve(entry, "failed", note="no")
        mark = ledger.mark(SCOPE, server="s", stream="st")
        assert mark is not None
        assert mark.processed == 3
        assert ledger.begin_stream(SCOPE, place(9), record=b"r").processed == 9
    with sqlite3.connect(path) as shop:
        assert shop.execute("select level from stock").fetchall() == [(3,)]
    shop.close()


def test_a_failed_opening_is_raised_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "not.db"
    path.write_bytes(b"this is no database, however long one looks at it" * 100)
    for _ in range(2):
        with pytest.raises(LedgerCorrupt, match="no sound SQLite database"), SqliteLedger(path).blocking():
            raise AssertionError("must not open")


def test_a_view_of_an_open_ledger_does_not_close_it(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "l.db")
    with ledger.blocking():
        with ledger.blocking() as view:
            view.entry(SCOPE, place(1))
        assert ledger.is_open
    assert not ledger.is_open
