"""What is special about the ledger in SQLite: effect and outcome share one commit that nothing can split."""

# ruff: noqa: ASYNC110, ASYNC221, ASYNC222
# These tests look at another thread's progress, and wait for other processes on purpose.

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from counterfoil import Limits, Scope
from counterfoil.errors import (
    ForkedHandle,
    HandlerError,
    HandlerTooSlow,
    LedgerBusy,
    LedgerFenced,
    LedgerInUse,
    LedgerReadOnly,
    LedgerSchemaNewer,
    LedgerStalled,
    OutOfTurn,
    ReentrantCall,
    TransactionControlRefused,
    TransactionLost,
    UnsafeStore,
)
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import Claimed, Known, Running, Settled
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_interface import Rows, Transaction
from counterfoil.stores.ledger_sqlite import SqliteLedger, book, opening, schema, unsafe, writer
from counterfoil.stores.ledger_sqlite.owner_lock import is_owned, lock_path
from counterfoil.stores.tickets import Ticket

SCOPE = Scope(principal="p")
SHOP = """
create table stock (sku text primary key, level int);
create table jealous (sku text primary key on conflict rollback);
create table parent (id integer primary key);
create table child (id integer primary key, parent int references parent deferrable initially deferred);
create trigger refuse before insert on stock when new.sku = 'raise' begin select raise(rollback, 'no'); end;
"""
Handler = Callable[[Transaction], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.executescript(SHOP)
    shop.close()
    return tmp_path / "shop.db"


def read(path: Path, query: str) -> list[Any]:
    shop = sqlite3.connect(path)
    try:
        return shop.execute(query).fetchall()
    finally:
        shop.close()


def intent(stream: str, position: int = 1, kind: RowKind = RowKind.TRANSACTIONAL) -> Intent:
    place = EventPlace(server="s", stream=stream, epoch="e", position=position, event_id=f"{position}")
    return Intent(scope=SCOPE, key=place, kind=kind)


def insert(sku: str) -> Handler:
    return lambda transaction: transaction.execute("insert into stock values (?, 1)", (sku,))


async def apply_together(ledger: SqliteLedger, handlers: dict[str, Handler]) -> dict[str, Ticket[Any]]:
    """Queue all while the writer is held, so that they share one group."""
    gate = threading.Event()
    held = ledger.apply(intent("gate"), lambda transaction: gate.wait(10))
    while ledger._writer is not None and ledger._writer.handler_since is None:
        await anyio.sleep(0.001)
    tickets = {name: ledger.apply(intent(name), handler) for name, handler in handlers.items()}
    gate.set()
    await held
    for ticket in tickets.values():
        with anyio.move_on_after(20):
            try:
                await ticket
            except Exception:
                continue
    return tickets


# --- one commit ---


@pytest.mark.anyio
async def test_effect_outcome_and_mark_share_one_commit(path: Path) -> None:
    async with SqliteLedger(path) as ledger:
        settled = await ledger.apply(intent("st"), insert("A1"))
        assert isinstance(settled, Settled)
        assert settled.processed == 1
        assert isinstance(await ledger.apply(intent("st"), insert("A2")), Known)
        assert await ledger.prove(SCOPE, server="s", stream="st") is None
    assert read(path, "select sku from stock") == [("A1",)]


@pytest.mark.anyio
async def test_many_handlers_share_a_commit_and_one_exception_costs_only_itself(path: Path) -> None:
    def fail(transaction: Transaction) -> None:
        transaction.execute("insert into stock values ('bad', 1)")
        raise RuntimeError("a bug of the application")

    handlers: dict[str, Handler] = {f"s{n}": insert(f"A{n}") for n in range(20)}
    handlers["bad"] = fail
    async with SqliteLedger(path) as ledger:
        before = ledger.commits
        tickets = await apply_together(ledger, handlers)
        assert ledger.commits - before == 2  # the gate's, and one for all
        assert tickets["bad"].outcome is OutcomeToken.NOT_APPLIED
        with pytest.raises(RuntimeError, match="a bug"):
            tickets["bad"].result()
        assert isinstance(await ledger.apply(intent("bad"), insert("good")), Settled)
    assert {sku for (sku,) in read(path, "select sku from stock")} == {f"A{n}" for n in range(20)} | {"good"}


@pytest.mark.anyio
async def test_rows_are_fetched_inside_the_handler_only(path: Path) -> None:
    kept: list[Any] = []

    def look(transaction: Transaction) -> None:
        rows = transaction.execute("insert into stock values ('A', 1), ('B', 2)")
        assert (rows.rowcount, rows.lastrowid) == (2, 2)
        found = transaction.execute("select sku from stock order by sku")
        assert found.fetchone() == ("A",)
        assert found.fetchall() == [("B",)]
        assert found.fetchone() is None
        kept.extend([transaction, transaction.execute("select 1")])

    async with SqliteLedger(path) as ledger:
        await ledger.apply(intent("st"), look)
        transaction, rows = kept
        for late in (lambda: transaction.execute("select 1"), rows.fetchone, rows.fetchall):
            with pytest.raises(TransactionLost, match="inside the handler only"):
                await anyio.to_thread.run_sync(late)


# --- handlers that misbehave ---


def swallow_conflict(transaction: Transaction) -> None:
    transaction.execute("insert into stock values ('swallowed', 1)")
    for _ in range(2):
        with contextlib.suppress(Exception):
            transaction.execute("insert or rollback into stock values ('swallowed', 2)")
    with contextlib.suppress(TransactionLost):
        transaction.execute("insert into stock values ('after', 1)")


def clause_of_the_table(transaction: Transaction) -> None:
    transaction.execute("insert into jealous values ('x')")
    transaction.execute("insert into jealous values ('x')")


def raise_in_a_trigger(transaction: Transaction) -> None:
    transaction.execute("insert into stock values ('raise', 1)")


def break_a_deferred_key(transaction: Transaction) -> None:
    transaction.execute("insert into child values (1, 999)")


def select_for_ever(transaction: Transaction) -> None:
    transaction.execute(
        "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    ).fetchall()


def insert_for_ever(transaction: Transaction) -> None:
    transaction.execute(
        "insert into stock with recursive n(i) as (select 1 union all select i + 1 from n) "
        "select 'n' || i, i from n"
    )


def sleep_past_the_limit(transaction: Transaction) -> None:
    time.sleep(0.4)
    transaction.execute("insert into stock values ('slept', 1)")


def sleep_to_the_end(transaction: Transaction) -> None:
    transaction.execute("insert into stock values ('slept', 1)")
    time.sleep(0.4)


def exit_thread(transaction: Transaction) -> None:
    transaction.execute("insert into stock values ('exit', 1)")
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("nasty", "error"),
    [
        (swallow_conflict, TransactionLost),
        (clause_of_the_table, sqlite3.IntegrityError),
        (raise_in_a_trigger, sqlite3.IntegrityError),
        (break_a_deferred_key, TransactionLost),
        (select_for_ever, HandlerTooSlow),
        (insert_for_ever, HandlerTooSlow),
        (sleep_past_the_limit, HandlerTooSlow),
        (sleep_to_the_end, HandlerTooSlow),
        (exit_thread, HandlerError),
    ],
)
@pytest.mark.anyio
async def test_whatever_one_handler_does_to_the_group_the_others_lose_time_and_never_an_effect(
    path: Path, nasty: Handler, error: type[BaseException]
) -> None:
    """L13, L14: the transaction is dead for good, the group is written again, handlers one by one."""
    handlers: dict[str, Handler] = {f"a{n}": insert(f"a{n}") for n in range(5)}
    handlers["nasty"] = nasty
    handlers |= {f"b{n}": insert(f"b{n}") for n in range(5)}
    async with SqliteLedger(path, limits=Limits(handler_ms=300), foreign_keys=True) as ledger:
        tickets = await apply_together(ledger, handlers)
        assert tickets["nasty"].outcome is OutcomeToken.NOT_APPLIED
        with pytest.raises(error):
            tickets["nasty"].result()
        for name, ticket in tickets.items():
            if name != "nasty":
                assert isinstance(ticket.result(), Settled), name
                assert await ledger.prove(SCOPE, server="s", stream=name) is None
        mark = await ledger.mark(SCOPE, server="s", stream="nasty")
        assert mark is None or mark.processed == 0
    expected = sorted(f"{letter}{n}" for letter in "ab" for n in range(5))
    assert [sku for (sku,) in read(path, "select sku from stock order by sku")] == expected
    assert read(path, "select * from jealous") == read(path, "select * from child") == []


@pytest.mark.parametrize(
    "sql",
    [
        "BEGIN",
        "begin immediate",
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT mine",
        "RELEASE counterfoil",
        "ROLLBACK TO counterfoil",
        "ATTACH 'other.db' AS other",
        "DETACH main",
        "PRAGMA synchronous = OFF",
        "PRAGMA user_version",
        "SELECT * FROM pragma_table_info('stock')",
        "VACUUM",
        "SELECT * FROM counterfoil_rows",
        "DELETE FROM counterfoil_streams",
        "UPDATE Counterfoil_Meta SET fence = 0",
        "INSERT INTO counterfoil_meta VALUES (2, 1, 1, 1, x'')",
        "DROP TABLE counterfoil_rows",
        "ALTER TABLE counterfoil_rows RENAME TO mine",
        "CREATE INDEX mine ON counterfoil_rows (state)",
        "CREATE TRIGGER mine AFTER INSERT ON counterfoil_rows BEGIN SELECT 1; END",
        "SELECT load_extension('x')",
    ],
)
@pytest.mark.anyio
async def test_a_handler_cannot_reach_transaction_control_or_the_ledgers_tables(path: Path, sql: str) -> None:
    def reach(transaction: Transaction) -> None:
        transaction.execute("insert into stock values ('kept', 1)")
        with pytest.raises((TransactionControlRefused, sqlite3.OperationalError)):
            transaction.execute(sql)
        transaction.execute("insert into stock values ('too', 1)")

    async with SqliteLedger(path) as ledger:
        for position in (1, 2):
            # Twice: a text that the driver had cached would not be asked about again.
            read_or_raise = await ledger.apply(
                intent("st", position), reach if position == 1 else insert("x")
            )
            assert isinstance(read_or_raise, Settled)
        with pytest.raises((TransactionControlRefused, sqlite3.OperationalError)):
            await ledger.apply(intent("st", 3), lambda transaction: transaction.execute(sql))
        assert isinstance(await ledger.apply(intent("st", 3), insert("y")), Settled)
    skus = [sku for (sku,) in read(path, "select sku from stock order by sku")]
    assert skus == ["kept", "too", "x", "y"]


@pytest.mark.anyio
async def test_a_text_that_the_ledger_itself_has_cached_cannot_be_sent_by_a_handler(path: Path) -> None:
    """The driver asks nothing about a cached text; ours carry a comment that nobody can guess."""
    async with SqliteLedger(path) as one:
        own = one._writer
        assert own is not None
        texts = vars(own._control).values()
        assert len({text.split("/*")[1] for text in texts}) == 1
        assert all(len(text.split("/*")[1]) > 16 for text in texts)
    async with SqliteLedger(path) as two:
        other = two._writer
        assert other is not None
        assert set(vars(other._control).values()).isdisjoint(texts)


@pytest.mark.anyio
async def test_a_lone_handler_that_raises_leaves_nothing_and_the_ledger_goes_on(path: Path) -> None:
    """It has no savepoint, because the transaction is its own: all of that is rolled back and begun anew."""
    traced: list[str] = []

    def fail(transaction: Transaction) -> None:
        assert ledger._writer is not None
        assert ledger._writer._connection is not None
        ledger._writer._connection.set_trace_callback(traced.append)
        transaction.execute("insert into stock values ('lost', 1)")
        raise ValueError("no")

    async with SqliteLedger(path) as ledger:
        ledger.skip(SCOPE, EventPlace(server="s", stream="skips", epoch="e", position=1, event_id="1"))
        with pytest.raises(ValueError, match="no"):
            await ledger.apply(intent("st"), fail)
        skipped = await ledger.mark(SCOPE, server="s", stream="skips")
        based = await ledger.mark(SCOPE, server="s", stream="st")
        assert isinstance(await ledger.apply(intent("st"), insert("kept")), Settled)
    assert not [text for text in traced if text.startswith("SAVEPOINT")]
    assert [text.split()[0] for text in traced if text.startswith(("ROLLBACK", "BEGIN"))][:2] == [
        "ROLLBACK",
        "BEGIN",
    ]
    assert (skipped and skipped.processed, based and based.processed) == (1, 0)
    assert read(path, "select sku from stock") == [("kept",)]


@pytest.mark.anyio
async def test_work_that_follows_another_is_run_behind_it_or_not_at_all(path: Path) -> None:
    def fail(_transaction: Transaction) -> None:
        raise ValueError("no")

    async with SqliteLedger(path) as ledger:
        gate = threading.Event()
        held = ledger.apply(intent("gate"), lambda transaction: gate.wait(10))
        good = [ledger.apply(intent("good", 1), insert("g1"), after=held)]
        good.append(ledger.apply(intent("good", 2), insert("g2"), after=good[0]))
        copy = ledger.apply(intent("good", 1), insert("copy"), after=good[1])
        good.append(ledger.apply(intent("good", 3), insert("g3"), after=copy))
        bad = [ledger.apply(intent("bad", 1), fail)]
        bad += [ledger.apply(intent("bad", 2), insert("b2"), after=bad[0])]
        bad += [ledger.apply(intent("bad", 3), insert("b3"), after=bad[1])]
        taken_back = ledger.apply(intent("other", 1), insert("o1"))
        behind = ledger.apply(intent("other", 2), insert("o2"), after=taken_back)
        assert taken_back.withdraw()
        gate.set()
        assert [type(await ticket) for ticket in (*good, copy)] == [Settled, Settled, Settled, Known]
        with pytest.raises(ValueError, match="no"):
            await bad[0]
        for ticket in (*bad[1:], behind):
            with pytest.raises(OutOfTurn):
                await ticket
            assert ticket.outcome is OutcomeToken.NOT_APPLIED
        # In a later group it is the same, and what was not run has left no base for the mark.
        with pytest.raises(OutOfTurn):
            await ledger.apply(intent("other", 2), insert("o2"), after=bad[0])
        assert await ledger.mark(SCOPE, server="s", stream="other") is None
        assert isinstance(await ledger.apply(intent("good", 4), insert("g4"), after=good[0]), Settled)
    assert [sku for (sku,) in read(path, "select sku from stock order by sku")] == ["g1", "g2", "g3", "g4"]


@pytest.mark.anyio
async def test_an_owner_that_comes_while_a_failed_handler_is_rolled_back_fences_this_one_off(
    path: Path,
) -> None:
    """Between the rollback and the next begin nobody holds the database."""
    came: list[str] = []

    def come(text: str) -> None:
        if text.startswith("BEGIN") and not came:
            came.append(text)
            other = sqlite3.connect(path)
            other.execute("update counterfoil_meta set fence = fence + 1")
            other.commit()
            other.close()

    def fail(_transaction: Transaction) -> None:
        assert ledger._writer is not None
        assert ledger._writer._connection is not None
        ledger._writer._connection.set_trace_callback(come)
        raise ValueError("no")

    async with SqliteLedger(path) as ledger:
        with pytest.raises(LedgerFenced):
            await ledger.apply(intent("st"), fail)
        with pytest.raises(LedgerFenced):
            await ledger.apply(intent("st"), insert("late"))
    assert came
    assert read(path, "select sku from stock") == []
    assert read(path, "select count(*) from counterfoil_streams") == [(0,)]


@pytest.mark.anyio
@pytest.mark.parametrize("streams", [3, 64, 150, 300])
async def test_groups_of_every_width_are_read_and_written_whole(path: Path, streams: int) -> None:
    """Rows are read and marks written several to a statement."""
    names = [f"A{number}" for number in range(streams)]
    async with SqliteLedger(path, limits=Limits(ledger_group=512)) as ledger:
        await ledger.claim(intent(names[1], kind=RowKind.AT_MOST_ONCE))
        before = ledger.commits
        tickets = await apply_together(ledger, {name: insert(name) for name in names})
        assert ledger.commits == before + 2  # the gate's, and theirs
        found = [type(tickets[name].result()) for name in names]
        marks = [await ledger.mark(SCOPE, server="s", stream=name) for name in names]
    others = {name for name in names if name != names[1]}
    assert found == [Running if name == names[1] else Settled for name in names]
    assert [mark and mark.processed for mark in marks] == [int(name != names[1]) for name in names]
    assert {sku for (sku,) in read(path, "select sku from stock")} == others


@pytest.mark.anyio
async def test_a_row_that_cannot_be_read_fails_its_own_job_and_no_other(path: Path) -> None:
    async with SqliteLedger(path) as ledger:
        await ledger.claim(intent("newer", kind=RowKind.AT_MOST_ONCE))
    shop = sqlite3.connect(path)
    shop.execute("update counterfoil_rows set body = x'63'")
    shop.commit()
    shop.close()
    async with SqliteLedger(path) as ledger:
        tickets = await apply_together(ledger, {name: insert(name) for name in ("newer", "x", "y")})
        with pytest.raises(LedgerSchemaNewer):
            tickets["newer"].result()
        assert isinstance(tickets["x"].result(), Settled)
        assert isinstance(tickets["y"].result(), Settled)
    assert read(path, "select sku from stock order by sku") == [("x",), ("y",)]


def own_texts() -> list[str]:
    """Every statement about the ledger's own tables that its modules spell out."""
    texts = [text for module in (book, writer, opening, schema) for text in constants_of(module)]
    found = {text for text in texts if "counterfoil_" in text and text.split()[0].isupper()}
    pragmas = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = OFF")
    return sorted({text for text in found if "sqlite_master" not in text}.union(pragmas))


def constants_of(module: Any) -> list[str]:
    found: list[str] = []
    for code in codes_of(compile(inspect.getsource(module), module.__name__, "exec")):
        found += [one for one in code.co_consts if isinstance(one, str)]
    for value in vars(module).values():
        match value:
            case str():
                found.append(value)
            case dict():
                found += [one for one in value.values() if isinstance(one, str)]
            case list():
                found += [one for _, one in value]
    return found


def codes_of(code: types.CodeType) -> list[types.CodeType]:
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return [code, *(deeper for one in inner for deeper in codes_of(one))]


@pytest.mark.anyio
async def test_a_handler_cannot_send_the_ledgers_own_statements_word_for_word(path: Path) -> None:
    """The driver keeps them compiled, and asks nobody again: no handler may know their texts."""
    texts = own_texts()
    assert len(texts) > 15
    passed: list[str] = []

    def send(transaction: Transaction) -> None:
        for text in texts:
            try:
                transaction.execute(text, (b"",) * text.count("?"))
            except (TransactionControlRefused, sqlite3.OperationalError):
                continue
            except sqlite3.Error:
                pass
            passed.append(text)

    async with SqliteLedger(path) as ledger:
        # Once each of what the ledger sends in its daily work.
        await apply_together(ledger, {name: insert(name) for name in ("A1", "A2", "A3", "A4", "A5")})
        run = await ledger.claim(intent("claimed", kind=RowKind.IDEMPOTENT))
        assert isinstance(run, Claimed)
        await ledger.settle(run, Settlement(outcome=OutcomeToken.FAILED))
        await ledger.mark(SCOPE, server="s", stream="none")
        _ = [entry async for entry in ledger.indeterminate()]
        await ledger.kept_calls(b"")
        assert isinstance(await ledger.apply(intent("send"), send), Settled)
    assert passed == []


@pytest.mark.anyio
async def test_a_handler_that_calls_its_own_ledger_is_told_so(path: Path) -> None:
    async with SqliteLedger(path) as ledger:

        def enter(transaction: Transaction) -> None:
            with pytest.raises(ReentrantCall):
                ledger.apply(intent("other"), insert("x"))
            with pytest.raises(ReentrantCall):
                ledger.close_nowait()

        assert isinstance(await ledger.apply(intent("st"), enter), Settled)


@pytest.mark.anyio
async def test_a_handler_that_does_not_return_is_told_at_once_and_the_others_lose_time_only(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """L14: a thread asleep cannot be stopped; who has not begun may withdraw, and that is certain."""
    told: list[LedgerStalled] = []
    gate = threading.Event()
    with caplog.at_level(logging.ERROR, "counterfoil.ledger"):
        async with SqliteLedger(path, limits=Limits(handler_ms=50), on_stalled=told.append) as ledger:
            asleep = ledger.apply(intent("asleep"), lambda transaction: gate.wait(20))
            while not told:
                await anyio.sleep(0.005)
            assert ledger.stalled is not None
            waits = ledger.apply(intent("waits"), insert("waits"))
            gives_up = ledger.apply(intent("gives-up"), insert("gives-up"))
            assert gives_up.withdraw()
            assert gives_up.outcome is OutcomeToken.NOT_APPLIED
            assert waits.outcome == "pending"
            gate.set()
            with pytest.raises(HandlerTooSlow):
                await asleep
            assert isinstance(await waits, Settled)
            assert ledger.stalled is None
    assert len(told) == 1
    assert "holds the ledger" in caplog.text
    assert read(path, "select sku from stock") == [("waits",)]


# --- one owner ---


@pytest.mark.anyio
async def test_a_second_ledger_of_this_process_is_refused_and_a_reader_is_welcome(path: Path) -> None:
    """L26."""
    async with SqliteLedger(path) as ledger:
        for _ in range(3):
            with pytest.raises(LedgerInUse, match="this process"):
                async with SqliteLedger(path):
                    raise AssertionError("two owners")
        link = path.with_name("link.db")
        link.symlink_to(path)
        with pytest.raises(LedgerInUse):
            async with SqliteLedger(link):
                raise AssertionError("two owners by two names")
        assert is_owned(path)
        assert read(path, "select count(*) from stock") == [(0,)]
        assert isinstance(await ledger.apply(intent("st"), insert("A1")), Settled)
        assert read(path, "select count(*) from stock") == [(1,)]
    assert not is_owned(path)
    async with SqliteLedger(path):
        pass


SECOND = """
import sys
from counterfoil.errors import LedgerInUse
from counterfoil.stores.ledger_sqlite import SqliteLedger
try:
    with SqliteLedger(sys.argv[1]).blocking():
        print("opened")
except LedgerInUse as error:
    print("in use", error)
"""


@pytest.mark.anyio
async def test_a_second_process_is_refused_by_name(path: Path) -> None:
    async with SqliteLedger(path):
        out = subprocess.run(
            [sys.executable, "-c", SECOND, str(path)], capture_output=True, text=True, check=True
        )
        assert out.stdout.startswith(f"in use process {os.getpid()} owns the database")


@pytest.mark.anyio
async def test_a_forced_second_owner_fences_the_first_off(path: Path) -> None:
    """Split brain: who removes the lock by hand gets a higher fence, and the older owner writes nothing."""
    async with SqliteLedger(path) as first:
        run = await first.claim(intent("run", kind=RowKind.AT_MOST_ONCE))
        assert isinstance(run, Claimed)
        lock_path(path).unlink()
        async with SqliteLedger(path) as second:
            assert second.fence > first.fence
            for write in (
                lambda: first.apply(intent("st"), insert("stale")),
                lambda: first.settle(run, Settlement(outcome=OutcomeToken.COMPLETED)),
            ):
                with pytest.raises(LedgerFenced, match="taken this ledger over"):
                    await write()
            answer = await second.claim(intent("run", kind=RowKind.AT_MOST_ONCE))
            assert isinstance(answer, Known)
            assert answer.row is not None
            assert answer.row.outcome is OutcomeToken.INDETERMINATE
            assert isinstance(await second.apply(intent("st"), insert("current")), Settled)
    assert read(path, "select sku from stock") == [("current",)]


@pytest.mark.anyio
async def test_a_ledger_used_after_a_fork_is_refused(path: Path) -> None:
    async with SqliteLedger(path) as ledger:
        child = os.fork()
        if child == 0:
            try:
                ledger.claim(intent("st"))
            except ForkedHandle:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        # The child has neither the lock nor the connection; ours still works.
        assert isinstance(await ledger.apply(intent("st"), insert("A1")), Settled)


# --- what is refused at start ---


@pytest.mark.parametrize("name", ["", ":memory:", "file:shop.db?mode=memory"])
def test_a_ledger_needs_a_file_of_its_own_name(name: str) -> None:
    with pytest.raises(UnsafeStore):
        SqliteLedger(name)


def test_a_newer_schema_is_refused_by_name(path: Path) -> None:
    with SqliteLedger(path).blocking():
        pass
    shop = sqlite3.connect(path)
    shop.execute("update counterfoil_meta set schema_version = 2")
    shop.commit()
    shop.close()
    with pytest.raises(LedgerSchemaNewer, match="schema 2"), SqliteLedger(path).blocking():
        raise AssertionError("must not open")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(LedgerReadOnly),
        SqliteLedger(tmp_path / "missing" / "l.db").blocking(),
    ):
        raise AssertionError("must not open")


READ_ONLY = """
import os, sys
from counterfoil.errors import LedgerReadOnly
from counterfoil.stores.ledger_sqlite import SqliteLedger
with SqliteLedger(sys.argv[1] + ".other").blocking():
    pass  # everything that is imported late is imported now
os.chmod(os.path.dirname(sys.argv[1]), 0o555)
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
try:
    with SqliteLedger(sys.argv[1]).blocking():
        print("opened")
except LedgerReadOnly as error:
    print("read only")
"""


@pytest.mark.parametrize("with_lock", [False, True])
def test_a_file_that_cannot_be_written_is_refused(path: Path, with_lock: bool) -> None:
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        folder.chmod(0o755)
    if with_lock:
        lock_path(path).touch()
        lock_path(path).chmod(0o666)
    path.chmod(0o444)
    code = READ_ONLY
    try:
        out = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
        )
    finally:
        path.parent.chmod(0o755)
    assert out.stdout == "read only\n", out.stderr


@pytest.mark.parametrize(
    ("version", "has_bug"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_the_releases_with_the_wal_reset_bug_are_known(version: tuple[int, int, int], has_bug: bool) -> None:
    assert unsafe.has_wal_reset_bug(version) is has_bug


@pytest.mark.anyio
async def test_another_connection_that_writes_is_warned_of_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsafe, "has_wal_reset_bug", lambda: True)
    async with SqliteLedger(path) as ledger:
        assert isinstance(await ledger.apply(intent("st", 1), insert("A1")), Settled)
        shop = sqlite3.connect(path)
        shop.execute("insert into stock values ('other', 1)")
        shop.commit()
        shop.close()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for position in range(2, 30):
                applied = await ledger.apply(intent("st", position), insert(f"A{position}"))
                assert isinstance(applied, Settled)
        assert [one.category for one in warned] == [unsafe.UnsafeSqliteWarning]
        assert "WAL-reset bug" in str(warned[0].message)


def test_strict_sqlite_refuses_a_library_with_the_bug(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsafe, "has_wal_reset_bug", lambda: True)
    with pytest.raises(UnsafeStore, match="WAL-reset bug"), SqliteLedger(path, strict_sqlite=True).blocking():
        raise AssertionError("must not open")
    monkeypatch.setattr(unsafe, "has_wal_reset_bug", lambda: False)
    with SqliteLedger(path, strict_sqlite=True).blocking():
        pass


def test_a_file_that_a_second_sqlite_library_has_open_is_refused(path: Path) -> None:
    import apsw

    connection = apsw.Connection(str(path))
    try:
        with pytest.raises(UnsafeStore, match="apsw"), SqliteLedger(path).blocking():
            raise AssertionError("must not open")
    finally:
        connection.close()
    with SqliteLedger(path).blocking():
        pass


# --- waiting ---


@pytest.mark.anyio
async def test_a_lock_held_by_others_is_waited_for_and_then_named(path: Path) -> None:
    """Table 4: within the busy deadline it is tried again; beyond it nothing was written."""
    async with SqliteLedger(path, limits=Limits(ledger_busy_ms=100)) as ledger:
        shop = sqlite3.connect(path, isolation_level=None)
        shop.execute("begin immediate")
        with pytest.raises(LedgerBusy, match="another connection"):
            await ledger.apply(intent("st"), insert("A1"))
        waiting = ledger.apply(intent("st"), insert("A2"))
        shop.execute("rollback")
        shop.close()
        assert isinstance(await waiting, Settled)
    assert read(path, "select sku from stock") == [("A2",)]


@pytest.mark.anyio
async def test_a_full_queue_is_refused_by_name(path: Path) -> None:
    gate = threading.Event()
    async with SqliteLedger(path, limits=Limits(ledger_queue=3)) as ledger:
        held = ledger.apply(intent("gate"), lambda transaction: gate.wait(10))
        while ledger._writer is not None and ledger._writer.handler_since is None:
            await anyio.sleep(0.001)
        waiting = [ledger.apply(intent(f"s{n}"), insert(f"A{n}")) for n in range(3)]
        with pytest.raises(LedgerBusy, match="ledger_queue"):
            ledger.apply(intent("more"), insert("more"))
        gate.set()
        for ticket in (held, *waiting):
            assert isinstance(await ticket, Settled)


@pytest.mark.anyio
async def test_leaving_finishes_what_was_queued(path: Path) -> None:
    async with SqliteLedger(path) as ledger:
        tickets = [ledger.apply(intent(f"s{n}"), insert(f"A{n}")) for n in range(200)]
    assert all(isinstance(ticket.result(), Settled) for ticket in tickets)
    assert read(path, "select count(*) from stock") == [(200,)]


@pytest.mark.anyio
async def test_a_cancelled_caller_loses_the_wait_and_not_the_work(path: Path) -> None:
    """P12."""
    async with SqliteLedger(path) as ledger:
        gate = threading.Event()
        with anyio.move_on_after(0.05):
            ticket = ledger.apply(
                intent("st"), lambda transaction: (gate.wait(10), insert("A1")(transaction))
            )
            await ticket
        assert ticket.outcome == "pending"
        gate.set()
        assert isinstance(await ticket, Settled)


@pytest.mark.anyio
async def test_opening_can_be_cancelled_and_leaves_no_owner_behind(path: Path) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with SqliteLedger(path):
            raise AssertionError("was cancelled")
    async with SqliteLedger(path) as ledger:
        assert isinstance(await ledger.apply(intent("st"), insert("A1")), Settled)


# --- after an unclean end ---


CRASH = """
import os, sys
from counterfoil import Limits, Scope
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.ledger_rows import RowKind
from counterfoil.protocol.ledger_steps import Intent
from counterfoil.stores.ledger_sqlite import SqliteLedger

def die(transaction):
    transaction.execute("insert into stock values ('dies', 1)")
    os.kill(os.getpid(), 9)

place = EventPlace(server="s", stream="st", epoch="e", position=int(sys.argv[2]), event_id="x")
wanted = Intent(scope=Scope(principal="p"), key=place, kind=RowKind.TRANSACTIONAL)
with SqliteLedger(sys.argv[1], limits=Limits(attempts=3)).blocking() as ledger:
    print(ledger.apply(wanted, die))
"""


def test_a_transactional_handler_that_kills_the_process_is_given_up_in_the_end(path: Path) -> None:
    """L22: after an unclean end the first event behind the mark is counted before it runs."""
    outputs = []
    for _ in range(5):
        out = subprocess.run(
            [sys.executable, "-c", CRASH, str(path), "1"], capture_output=True, text=True, check=False
        )
        outputs.append(out.stdout)
    # The first run of all was not counted: the end before it had been clean.
    assert ["failed" in out for out in outputs] == [False, False, False, False, True]
    with SqliteLedger(path).blocking() as ledger:
        mark = ledger.mark(SCOPE, server="s", stream="st")
        assert mark is not None
        assert mark.processed == 1
        assert isinstance(ledger.apply(intent("st", 2), insert("next")), Settled)
    assert read(path, "select sku from stock") == [("next",)]


@pytest.mark.anyio
async def test_after_an_unclean_end_a_run_that_only_raises_can_be_tried_again(path: Path) -> None:
    """L22: the counted intent is taken back, so that the next try is not taken for a run that lives."""
    subprocess.run([sys.executable, "-c", CRASH, str(path), "1"], capture_output=True, check=False)

    def fail(transaction: Transaction) -> None:
        raise RuntimeError("once")

    async with SqliteLedger(path) as ledger:
        for nasty in (fail, swallow_conflict, fail):
            with pytest.raises((RuntimeError, TransactionLost)):
                await ledger.apply(intent("st"), nasty)
        settled = await ledger.apply(intent("st"), insert("A1"))
        assert isinstance(settled, Settled)
    assert read(path, "select sku from stock") == [("A1",)]


@pytest.mark.anyio
async def test_a_counted_intent_whose_run_the_disk_refused_is_not_waited_for(path: Path) -> None:
    """L22: it is on the disk, its caller was told of a failure, and nothing has run under it."""
    subprocess.run([sys.executable, "-c", CRASH, str(path), "1"], capture_output=True, check=False)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    counted: list[str] = []

    def reach(boundary: str) -> None:
        if boundary == "B7" and not counted:
            counted.append(boundary)
            other.execute("begin immediate")

    with anyio.fail_after(20):
        async with SqliteLedger(path, limits=Limits(ledger_busy_ms=20), _reach=reach) as ledger:
            with pytest.raises(LedgerBusy):
                await ledger.apply(intent("st"), insert("A1"))
            other.execute("rollback")
            assert isinstance(await ledger.apply(intent("st"), insert("A1")), Settled)
    other.close()
    assert read(path, "select sku from stock") == [("A1",)]


def test_what_a_statement_gives_is_narrow() -> None:
    """A handler gets no cursor and no connection: nothing on what it is lent leads out of the transaction."""
    assert {name for name in dir(Rows) if not name.startswith("_")} == {
        "fetchall",
        "fetchone",
        "lastrowid",
        "rowcount",
    }
    assert {name for name in dir(Transaction) if not name.startswith("_")} == {"execute"}
