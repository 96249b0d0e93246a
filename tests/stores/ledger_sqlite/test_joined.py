"""Joined mode: the outcome is written in the caller's own transaction, and with it undone."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from counterfoil import Limits, Scope
from counterfoil.errors import (
    LedgerFenced,
    LedgerInUse,
    LedgerSchemaNewer,
    StaleAttempt,
    StillPending,
    TransactionMissing,
    TransactionOpen,
    UnsafeStore,
)
from counterfoil.model.ledger_keys import CallKey, EventPlace
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import Known, Settled
from counterfoil.model.tokens import HandlerKind, OutcomeToken
from counterfoil.protocol.ledger_steps import Intent
from counterfoil.stores.ledger_sqlite import JoinedLedger, SqliteLedger, unsafe
from counterfoil.stores.ledger_sqlite.joined import JoinedTicket

SCOPE = Scope(principal="p")


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("create table stock (sku text primary key on conflict rollback, level int)")
    connection.commit()
    yield connection
    connection.close()


def event(position: int, stream: str = "st") -> Intent:
    place = EventPlace(server="s", stream=stream, epoch="e", position=position, event_id=f"id{position}")
    return Intent(scope=SCOPE, key=place, kind=RowKind.TRANSACTIONAL)


def received(ledger: JoinedLedger, shop: sqlite3.Connection, position: int = 1) -> JoinedTicket:
    ticket = ledger.receive(shop, event(position))
    assert isinstance(ticket, JoinedTicket)
    return ticket


def processed(ledger: JoinedLedger, shop: sqlite3.Connection) -> int | None:
    mark = ledger.mark(shop, SCOPE, server="s", stream="st")
    return mark.processed if mark is not None else None


def apply(ledger: JoinedLedger, shop: sqlite3.Connection, position: int) -> JoinedTicket:
    ticket = received(ledger, shop, position)
    shop.execute("insert into stock values (?, 1)", (f"A{position}",))
    ledger.commit_in(shop, ticket)
    return ticket


def test_effect_outcome_and_mark_are_the_callers_commit(shop: sqlite3.Connection) -> None:
    ledger = JoinedLedger()
    ledger.prepare(shop)
    ledger.prepare(shop)
    ticket = apply(ledger, shop, 1)
    assert ticket.outcome == "pending"
    assert shop.in_transaction
    shop.commit()
    assert ticket.outcome == "pending"  # nobody told the ledger yet
    assert ledger.settled(shop, ticket) is OutcomeToken.COMPLETED
    assert ticket.outcome is OutcomeToken.COMPLETED
    assert isinstance(ledger.receive(shop, event(1)), Known)
    assert processed(ledger, shop) == 1
    assert (ledger.proof, ledger.kinds) == ("declared", {HandlerKind.TRANSACTIONAL})
    again = JoinedLedger()
    assert isinstance(again.receive(shop, event(1)), Known)


def test_a_rollback_undoes_the_outcome_with_the_effect(shop: sqlite3.Connection) -> None:
    """L15: commit acknowledged and lost, or rolled back after `commit_in`: `settled` reads which."""
    ledger = JoinedLedger()
    ledger.prepare(shop)
    ticket = apply(ledger, shop, 1)
    shop.rollback()
    assert ledger.settled(shop, ticket) is OutcomeToken.NOT_APPLIED
    assert processed(ledger, shop) is None
    ticket = apply(ledger, shop, 1)
    shop.commit()
    assert ledger.settled(shop, ticket) is OutcomeToken.COMPLETED
    assert shop.execute("select sku from stock").fetchall() == [("A1",)]


def test_a_conflict_that_rolled_everything_back_is_seen_before_anything_is_written(
    shop: sqlite3.Connection,
) -> None:
    """L13 in joined mode: the caller would go on in autocommit, and its outcome would stand alone."""
    ledger = JoinedLedger()
    ledger.prepare(shop)
    shop.execute("insert into stock values ('A1', 1)")
    shop.commit()
    ticket = received(ledger, shop)
    shop.execute("insert into stock values ('A2', 1)")
    with pytest.raises(sqlite3.IntegrityError):
        shop.execute("insert into stock values ('A1', 2)")
    with pytest.raises(TransactionMissing, match="begin one first"):
        ledger.commit_in(shop, ticket)
    assert ledger.settled(shop, ticket) is OutcomeToken.NOT_APPLIED


def test_the_next_event_of_a_stream_waits_until_the_one_before_is_settled(shop: sqlite3.Connection) -> None:
    ledger = JoinedLedger()
    ledger.prepare(shop)
    ticket = apply(ledger, shop, 1)
    shop.commit()
    with pytest.raises(StillPending, match="settled"):
        ledger.receive(shop, event(2))
    assert isinstance(ledger.receive(shop, event(1, "other")), JoinedTicket)
    ledger.settled(shop, ticket)
    apply(ledger, shop, 2)
    shop.commit()


def test_what_reads_the_durable_truth_refuses_an_open_transaction(shop: sqlite3.Connection) -> None:
    ledger = JoinedLedger()
    ledger.prepare(shop)
    ticket = received(ledger, shop)
    shop.execute("insert into stock values ('A1', 1)")
    for call in (
        lambda: ledger.prepare(shop),
        lambda: ledger.receive(shop, event(2)),
        lambda: ledger.settled(shop, ticket),
        lambda: ledger.mark(shop, SCOPE, server="s", stream="st"),
    ):
        with pytest.raises(TransactionOpen):
            call()
    shop.rollback()


def test_autocommit_is_refused_at_the_call(shop: sqlite3.Connection) -> None:
    ledger = JoinedLedger()
    ledger.prepare(shop)
    shop.isolation_level = None
    ticket = received(ledger, shop)
    shop.execute("insert into stock values ('A1', 1)")  # durable at once
    with pytest.raises(TransactionMissing):
        ledger.commit_in(shop, ticket)


def test_of_two_processes_that_received_an_event_one_commits(
    shop: sqlite3.Connection, tmp_path: Path
) -> None:
    one, two = JoinedLedger(), JoinedLedger()
    one.prepare(shop)
    other = sqlite3.connect(tmp_path / "shop.db")
    first, second = received(one, shop), received(two, other)
    shop.execute("insert into stock values ('A1', 1)")
    one.commit_in(shop, first)
    shop.commit()
    other.execute("insert into stock values ('A2', 1)")
    with pytest.raises(StaleAttempt, match="roll back"):
        two.commit_in(other, second)
    other.rollback()
    assert two.settled(other, second) is OutcomeToken.COMPLETED  # it is done, whoever did it
    other.close()
    assert shop.execute("select sku from stock").fetchall() == [("A1",)]


def test_a_living_owner_keeps_joined_writers_out_and_a_later_one_fences_them(
    shop: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsafe, "has_wal_reset_bug", lambda: False)
    ledger = JoinedLedger()
    ledger.prepare(shop)
    ticket = received(ledger, shop)
    with SqliteLedger(tmp_path / "shop.db").blocking() as owner:
        with pytest.raises(LedgerInUse):
            ledger.receive(shop, event(1))
        assert isinstance(owner.apply(event(5, "owned"), lambda transaction: None), Settled)
    shop.execute("insert into stock values ('A1', 1)")
    with pytest.raises(LedgerFenced):
        ledger.commit_in(shop, ticket)
    shop.rollback()
    assert ledger.settled(shop, ticket) is OutcomeToken.NOT_APPLIED
    assert isinstance(ledger.receive(shop, event(5, "owned")), Known)


def test_any_row_factory_of_the_caller_is_left_alone(shop: sqlite3.Connection) -> None:
    ledger = JoinedLedger()
    shop.row_factory = lambda cursor, row: {"columns": row}
    ledger.prepare(shop)
    ticket = apply(ledger, shop, 1)
    shop.commit()
    assert ledger.settled(shop, ticket) is OutcomeToken.COMPLETED
    assert shop.execute("select 1").fetchone() == {"columns": (1,)}


def test_only_transactional_events_join(shop: sqlite3.Connection) -> None:
    ledger = JoinedLedger()
    ledger.prepare(shop)
    for wanted in (
        Intent(scope=SCOPE, key=CallKey(route="r", key="k"), kind=RowKind.TRANSACTIONAL),
        Intent(scope=SCOPE, key=event(1).key, kind=RowKind.IDEMPOTENT),
    ):
        with pytest.raises(UnsafeStore, match="transactional events only"):
            ledger.receive(shop, wanted)


def test_connections_that_could_lose_or_corrupt_are_refused(tmp_path: Path, shop: sqlite3.Connection) -> None:
    import apsw

    ledger = JoinedLedger()
    foreign = apsw.Connection(str(tmp_path / "other.db"))
    with pytest.raises(UnsafeStore, match="not apsw"):
        ledger.prepare(foreign)  # type: ignore[arg-type]
    foreign.close()
    memory = sqlite3.connect(":memory:")
    with pytest.raises(UnsafeStore, match="no file"):
        ledger.prepare(memory)
    memory.close()
    shop.execute("pragma synchronous = normal")
    with pytest.raises(UnsafeStore, match="below FULL"):
        ledger.prepare(shop)
    shop.execute("pragma synchronous = full")
    shop.execute("pragma journal_mode = memory")
    with pytest.raises(UnsafeStore, match="journal mode"):
        ledger.prepare(shop)
    shop.execute("pragma journal_mode = delete")
    ledger.prepare(shop)
    shop.execute("update counterfoil_meta set schema_version = 9")
    shop.commit()
    with pytest.raises(LedgerSchemaNewer):
        ledger.prepare(shop)


def test_the_wal_reset_bug_is_warned_of_once_and_refused_when_strict(
    shop: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsafe, "has_wal_reset_bug", lambda: True)
    shop.execute("pragma journal_mode = wal")
    ledger = JoinedLedger(limits=Limits())
    with pytest.warns(unsafe.UnsafeSqliteWarning, match="joined mode"):
        ledger.prepare(shop)
    ledger.prepare(shop)
    with pytest.raises(UnsafeStore):
        JoinedLedger(strict_sqlite=True).prepare(shop)
