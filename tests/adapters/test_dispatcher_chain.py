"""Events of one stream that wait share a commit, and none is run before the one before it is completed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest
from counterfoil import Limits, Scope
from counterfoil.adapters.dispatcher import Dispatcher, DispatchTicket, Policy
from counterfoil.errors import LedgerClosed, NotApplied
from counterfoil.handlers import Delivery, Handlers
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.tokens import OutcomeToken
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_sqlite import SqliteLedger

SCOPE = Scope(principal="p")
QUICK = Limits(attempts=2, attempt_backoff_ms=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.execute("create table stock (number integer primary key, position int)")
    shop.close()
    return tmp_path / "shop.db"


def applied(path: Path) -> list[int]:
    """The positions in the order of their effects."""
    shop = sqlite3.connect(path)
    try:
        return [position for (position,) in shop.execute("select position from stock order by number")]
    finally:
        shop.close()


def delivery(position: int, name: str = "n", stream: str = "st") -> Delivery:
    place = EventPlace(server="s", stream=stream, epoch="e", position=position, event_id=f"e-{position}")
    return Delivery(scope=SCOPE, place=place, name=name, data=b"%d" % position)


def register(handlers: Handlers, body: Callable[[int], object] = lambda position: None) -> list[int]:
    """Register a transactional handler; gives the positions of its calls."""
    calls: list[int] = []

    @handlers.on("n", kind="transactional")
    def insert(transaction: Transaction, delivery: Delivery) -> None:
        calls.append(delivery.place.position)
        transaction.execute("insert into stock (position) values (?)", (delivery.place.position,))
        body(delivery.place.position)

    return calls


async def outcomes(tickets: list[DispatchTicket]) -> list[str]:
    return [str((await ticket).outcome) for ticket in tickets]


@pytest.mark.anyio
async def test_a_backlog_is_applied_in_order_and_shares_its_commits(path: Path) -> None:
    handlers = Handlers()
    calls = register(handlers)
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        before = ledger.commits
        tickets = [dispatcher.dispatch(delivery(position)) for position in range(1, 501)]
        assert set(await outcomes(tickets)) == {"completed"}
        assert [(await ticket).processed for ticket in tickets] == list(range(1, 501))
        assert ledger.commits - before <= 100
        assert await ledger.prove(SCOPE, server="s", stream="st") is None
    assert applied(path) == calls == list(range(1, 501))


@pytest.mark.anyio
async def test_events_that_nothing_handles_and_copies_keep_their_place_in_a_backlog(path: Path) -> None:
    handlers = Handlers()
    register(handlers)
    order = [1, 2, 2, 3, 4, 5, 3, 6]
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        tickets = [
            dispatcher.dispatch(delivery(position, "unknown" if position == 4 else "n")) for position in order
        ]
        assert set(await outcomes(tickets)) == {"completed"}
        assert [(await ticket).repeated for ticket in tickets] == [
            place in (2, 6) for place in range(len(order))
        ]
        mark = await ledger.mark(SCOPE, server="s", stream="st")
        assert mark is not None
        assert mark.processed == 6
    assert applied(path) == [1, 2, 3, 5, 6]


@pytest.mark.parametrize("policy", ["park", "end_stream"])
@pytest.mark.anyio
async def test_nothing_behind_an_event_that_fails_is_run_before_it_is_settled(
    path: Path, policy: Policy
) -> None:
    handlers = Handlers()

    def fail_at_five(position: int) -> None:
        if position == 5:
            raise ValueError("always")

    calls = register(handlers, fail_at_five)
    async with (
        SqliteLedger(path) as ledger,
        Dispatcher(ledger, handlers, limits=QUICK, on_failed=policy) as dispatcher,
    ):
        tickets = [dispatcher.dispatch(delivery(position)) for position in range(1, 101)]
        told = await outcomes(tickets)
    behind = "completed" if policy == "park" else "not_applied"
    assert told == ["completed"] * 4 + ["failed"] + [behind] * 95
    assert applied(path) == [n for n in range(1, 101) if n < 5 or (policy == "park" and n > 5)]
    assert calls[:6] == [1, 2, 3, 4, 5, 5]
    assert calls[6:] == (list(range(6, 101)) if policy == "park" else [])


@pytest.mark.anyio
async def test_a_stream_that_was_opened_again_shares_commits_as_before(path: Path) -> None:
    handlers = Handlers()
    failing = [3]

    def fail_once(position: int) -> None:
        if position in failing:
            raise ValueError("no")

    register(handlers, fail_once)
    limits = Limits(attempts=1)
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers, limits=limits) as dispatcher:
        tickets = [dispatcher.dispatch(delivery(position)) for position in range(1, 41)]
        assert await outcomes(tickets) == ["completed"] * 2 + ["failed"] + ["not_applied"] * 37
        await anyio.wait_all_tasks_blocked()
        dispatcher.reopen(SCOPE, server="s", stream="st")
        before = ledger.commits
        tickets = [dispatcher.dispatch(delivery(position)) for position in range(4, 41)]
        assert set(await outcomes(tickets)) == {"completed"}
        assert ledger.commits - before <= 15
    assert applied(path) == [1, 2, *range(4, 41)]


@pytest.mark.anyio
async def test_an_event_that_succeeds_at_its_second_try_comes_before_those_behind_it(path: Path) -> None:
    handlers = Handlers()
    failed: list[int] = []

    def fail_once(position: int) -> None:
        if position in (1, 20, 90) and position not in failed:
            failed.append(position)
            raise NotApplied("not yet")

    calls = register(handlers, fail_once)
    async with (
        SqliteLedger(path) as ledger,
        Dispatcher(ledger, handlers, limits=QUICK) as dispatcher,
    ):
        tickets = [dispatcher.dispatch(delivery(position)) for position in range(1, 101)]
        assert set(await outcomes(tickets)) == {"completed"}
    assert applied(path) == list(range(1, 101))
    assert sorted(calls) == sorted([*range(1, 101), 1, 20, 90])


class Gate:
    """Holds the ledger's thread inside the first handler, with the rest of the backlog behind it."""

    def __init__(self) -> None:
        self.held, self.opened = threading.Event(), threading.Event()

    def pass_first(self, position: int) -> None:
        if position == 1:
            self.held.set()
            assert self.opened.wait(10)

    async def wait_held(self) -> None:
        assert await anyio.to_thread.run_sync(self.held.wait, 10)
        await anyio.wait_all_tasks_blocked()


@pytest.mark.anyio
async def test_a_backlog_of_slow_handlers_holds_up_no_other_stream(path: Path) -> None:
    """A lone event is in the next group, and a group does not go on with a backlog for long."""
    handlers, gate = Handlers(), Gate()

    def be_slow(position: int) -> None:
        gate.pass_first(position)
        time.sleep(0.005 if position < 100 else 0)

    calls = register(handlers, be_slow)
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        tickets = [dispatcher.dispatch(delivery(position)) for position in range(1, 65)]
        await gate.wait_held()
        lone = dispatcher.dispatch(delivery(100, stream="other"))
        await anyio.wait_all_tasks_blocked()
        gate.opened.set()
        assert (await lone).outcome is OutcomeToken.COMPLETED
        assert set(await outcomes(tickets)) == {"completed"}
    assert calls.index(100) < 32
    assert [position for position in applied(path) if position != 100] == list(range(1, 65))


@pytest.mark.anyio
async def test_an_event_that_the_ledger_has_early_can_be_withdrawn_until_it_is_begun(path: Path) -> None:
    handlers, gate = Handlers(), Gate()
    register(handlers, gate.pass_first)
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        # Alone in its group: what is given early waits in the queue.
        tickets = [dispatcher.dispatch(delivery(1))]
        await gate.wait_held()
        tickets += [dispatcher.dispatch(delivery(position)) for position in (2, 3, 4)]
        await anyio.wait_all_tasks_blocked()
        tickets[2].cancel()
        assert tickets[2].outcome is OutcomeToken.NOT_APPLIED
        gate.opened.set()
        told = await outcomes(tickets)
    assert told == ["completed", "completed", "not_applied", "not_applied"]
    assert applied(path) == [1, 2]


@pytest.mark.anyio
async def test_a_withdrawal_comes_too_late_for_what_is_in_the_group(path: Path) -> None:
    """The second event's handler holds the ledger, and the third is begun like it: they share a commit."""
    handlers = Handlers()
    held, opened = threading.Event(), threading.Event()

    def hold(position: int) -> None:
        if position == 3:
            held.set()
            assert opened.wait(10)

    register(handlers, hold)
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        tickets = [dispatcher.dispatch(delivery(position)) for position in (1, 2, 3, 4)]
        assert await anyio.to_thread.run_sync(held.wait, 10)
        assert not tickets[3].withdraw()
        tickets[2].cancel()
        opened.set()
        told = await outcomes(tickets)
    assert told == ["completed"] * 4
    assert applied(path) == [1, 2, 3, 4]


async def leave_in_the_middle(path: Path, cancel: Callable[[], None] | None) -> None:
    """Cancel the dispatcher's owner while the ledger is in the first of a backlog."""
    handlers, gate = Handlers(), Gate()
    register(handlers, gate.pass_first)
    tickets: list[DispatchTicket] = []
    async with SqliteLedger(path) as ledger:
        with anyio.CancelScope() as scope:
            try:
                async with Dispatcher(ledger, handlers) as dispatcher:
                    tickets = [dispatcher.dispatch(delivery(position)) for position in range(1, 9)]
                    await gate.wait_held()
                    (cancel or scope.cancel)()
                    await anyio.sleep(5)
            except asyncio.CancelledError:
                if cancel is None:
                    raise
        gate.opened.set()
    done = applied(path)
    assert done == list(range(1, len(done) + 1))
    assert [str(ticket.outcome) for ticket in tickets] == [
        "completed" if position in done else "not_applied" for position in range(1, 9)
    ]


@pytest.mark.anyio
async def test_cancelled_in_a_backlog_every_ticket_tells_the_truth(path: Path) -> None:
    await leave_in_the_middle(path, None)


def test_a_native_task_cancel_in_a_backlog_leaves_true_tickets(path: Path) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        await leave_in_the_middle(path, lambda: loop.call_soon(task.cancel))  # type: ignore[arg-type]

    asyncio.run(main())


@pytest.mark.anyio
async def test_after_a_crash_the_first_of_a_backlog_is_counted_and_the_rest_stay_behind_it(
    path: Path,
) -> None:
    """L22: an intent of its own before the run, which may not let anything past."""
    handlers = Handlers()
    calls = register(handlers)
    async with SqliteLedger(path):
        pass
    shop = sqlite3.connect(path)
    shop.execute("update counterfoil_meta set clean = 0")
    shop.commit()
    shop.close()
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        tickets = [dispatcher.dispatch(delivery(position)) for position in range(1, 31)]
        assert set(await outcomes(tickets)) == {"completed"}
    assert applied(path) == calls == list(range(1, 31))


@pytest.mark.anyio
async def test_a_backlog_that_the_ledger_refuses_is_told_so(path: Path) -> None:
    """The bound on the ledger's queue: what is not taken early is given at its turn."""
    handlers = Handlers()
    register(handlers)
    limits = Limits(ledger_queue=3)
    async with SqliteLedger(path, limits=limits) as ledger:
        async with Dispatcher(ledger, handlers) as dispatcher:
            tickets = [dispatcher.dispatch(delivery(position)) for position in range(1, 31)]
            assert set(await outcomes(tickets)) == {"completed"}
        closed = Dispatcher(ledger, handlers)
    async with closed as dispatcher:
        late = [dispatcher.dispatch(delivery(position)) for position in range(31, 34)]
        reports = [await ticket for ticket in late]
    assert [str(report.outcome) for report in reports] == ["not_applied"] * 3
    assert isinstance(reports[0].error, LedgerClosed)
    assert applied(path) == list(range(1, 31))


@pytest.mark.anyio
async def test_events_that_name_the_same_work_are_applied_once_within_one_commit_too(path: Path) -> None:
    handlers = Handlers()

    @handlers.on("n", kind="transactional", payload_key=lambda delivery: delivery.params)
    def insert(transaction: Transaction, delivery: Delivery) -> None:
        transaction.execute("insert into stock (position) values (?)", (delivery.place.position,))

    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        before = ledger.commits
        tickets = [
            dispatcher.dispatch(msgspec.structs.replace(delivery(n), params=f"work-{n // 2}", data=b""))
            for n in range(1, 8)
        ]
        assert set(await outcomes(tickets)) == {"completed"}
        assert ledger.commits - before <= 3
        assert [(await ticket).repeated for ticket in tickets] == [n in (3, 5, 7) for n in range(1, 8)]
    assert applied(path) == [1, 2, 4, 6]


def slow_to_try_again(ledger: SqliteLedger, handlers: Handlers, waiting: anyio.Event) -> Dispatcher:
    """A dispatcher that sets `waiting` when it begins to wait before the next attempt."""

    def jitter() -> float:
        waiting.set()
        return 1.0

    limits = Limits(attempts=3, attempt_backoff_ms=60_000)
    return Dispatcher(ledger, handlers, limits=limits, jitter=jitter)


@pytest.mark.parametrize("where", ["prepare", "back-off"])
@pytest.mark.anyio
async def test_cancelled_while_nothing_is_in_the_ledger_a_ticket_says_not_applied(
    path: Path, where: str
) -> None:
    handlers, waiting = Handlers(), anyio.Event()

    async def prepare(_delivery: Delivery) -> None:
        if where == "prepare":
            waiting.set()
            await anyio.sleep_forever()

    @handlers.on("n", kind="transactional", prepare=prepare)
    def fail(transaction: Transaction, delivery: Delivery, _prepared: None) -> None:
        transaction.execute("insert into stock (position) values (1)")
        raise NotApplied("no")

    async with SqliteLedger(path) as ledger, slow_to_try_again(ledger, handlers, waiting) as dispatcher:
        ticket = dispatcher.dispatch(delivery(1))
        await waiting.wait()
        await anyio.wait_all_tasks_blocked()
        ticket.cancel()
        with anyio.fail_after(5):
            report = await ticket
    assert (report.outcome, report.why) == (OutcomeToken.NOT_APPLIED, "cancelled")
    assert applied(path) == []


@pytest.mark.anyio
async def test_cancelled_between_two_tries_an_at_most_once_ticket_says_not_applied(path: Path) -> None:
    handlers, waiting = Handlers(), anyio.Event()
    runs: list[int] = []

    @handlers.on("n", kind="at_most_once")
    async def refuse(delivery: Delivery) -> None:
        runs.append(delivery.place.position)
        raise NotApplied("no")

    async with SqliteLedger(path) as ledger, slow_to_try_again(ledger, handlers, waiting) as dispatcher:
        ticket = dispatcher.dispatch(delivery(1))
        await waiting.wait()
        await anyio.wait_all_tasks_blocked()
        ticket.cancel()
        with anyio.fail_after(5):
            report = await ticket
    assert (report.outcome, report.why, runs) == (OutcomeToken.NOT_APPLIED, "cancelled", [1])


@pytest.mark.anyio
async def test_a_cancelled_copy_of_a_run_elsewhere_is_a_doubt(path: Path) -> None:
    handlers, started, release = Handlers(), anyio.Event(), anyio.Event()

    @handlers.on("n", kind="at_most_once")
    async def slow(delivery: Delivery) -> None:
        started.set()
        await release.wait()

    async with (
        SqliteLedger(path) as ledger,
        Dispatcher(ledger, handlers) as one,
        Dispatcher(ledger, handlers) as other,
    ):
        first = one.dispatch(delivery(1))
        await started.wait()
        copy = other.dispatch(delivery(1))
        await anyio.sleep(0.02)
        copy.cancel()
        with anyio.fail_after(5):
            report = await copy
        release.set()
        assert (await first).outcome is OutcomeToken.COMPLETED
    assert (report.outcome, report.why, report.ends_stream) == (OutcomeToken.INDETERMINATE, "cancelled", True)


@pytest.mark.anyio
async def test_cancelled_while_an_outcome_cannot_be_written_a_ticket_is_a_doubt_and_no_copy_waits(
    path: Path,
) -> None:
    handlers, waiting = Handlers(), anyio.Event()
    other = sqlite3.connect(path, isolation_level=None)

    @handlers.on("n", kind="at_most_once")
    async def work(delivery: Delivery) -> None:
        other.execute("begin immediate")

    limits = Limits(ledger_busy_ms=1)
    async with SqliteLedger(path, limits=limits) as ledger:
        async with slow_to_try_again(ledger, handlers, waiting) as dispatcher:
            ticket = dispatcher.dispatch(delivery(1))
            await waiting.wait()
            await anyio.wait_all_tasks_blocked()
            ticket.cancel()
            with anyio.fail_after(5):
                report = await ticket
        other.execute("rollback")
        other.close()
        async with Dispatcher(ledger, handlers) as dispatcher:
            with anyio.fail_after(5):
                again = await dispatcher.dispatch(delivery(1))
    assert (report.outcome, report.why, report.ends_stream) == (OutcomeToken.INDETERMINATE, "store", True)
    assert (again.outcome, again.why) == (OutcomeToken.INDETERMINATE, "interrupted")


@pytest.mark.anyio
async def test_cancelled_while_a_failure_is_written_a_ticket_says_what_the_ledger_says(path: Path) -> None:
    handlers = Handlers()
    register(handlers, lambda position: 1 // 0)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    held = threading.Event()

    def hold(boundary: str) -> None:
        if boundary == "B7" and not held.is_set():
            other.execute("begin immediate")
            held.set()

    limits = Limits(attempts=1, ledger_busy_ms=60_000)
    async with SqliteLedger(path, _reach=hold, limits=limits) as ledger:
        async with Dispatcher(ledger, handlers, limits=limits) as dispatcher:
            ticket = dispatcher.dispatch(delivery(1))
            assert await anyio.to_thread.run_sync(held.wait, 10)
            await anyio.wait_all_tasks_blocked()
            ticket.cancel()
            await anyio.wait_all_tasks_blocked()
            other.execute("rollback")
            with anyio.fail_after(20):
                report = await ticket
        assert (report.outcome, report.why) in [
            (OutcomeToken.FAILED, "attempts"),
            (OutcomeToken.NOT_APPLIED, "cancelled"),
        ]
        mark = await ledger.mark(SCOPE, server="s", stream="st")
        assert mark is not None
        assert mark.processed == (report.outcome is OutcomeToken.FAILED)
    other.close()
    assert applied(path) == []
