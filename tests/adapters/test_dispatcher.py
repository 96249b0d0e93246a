"""The dispatcher: row first, intent, handler, outcome, acknowledgement, whatever happens in between."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from counterfoil import Limits, Scope
from counterfoil.adapters.dispatcher import Dispatcher, DispatchReport, DispatchTicket
from counterfoil.errors import LedgerBusy, LedgerError, NotApplied, UnsafeHandler
from counterfoil.handlers import Delivery, Handlers
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.tokens import OutcomeToken
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_memory import MemoryLedger
from counterfoil.stores.ledger_sqlite import SqliteLedger

SCOPE = Scope(principal="p")
QUICK = Limits(attempt_backoff_ms=1)
KINDS = ("transactional", "idempotent", "at_most_once")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.execute("create table stock (sku text, level int)")
    shop.close()
    return tmp_path / "shop.db"


def stock(path: Path) -> list[str]:
    shop = sqlite3.connect(path)
    try:
        return [sku for (sku,) in shop.execute("select sku from stock order by sku")]
    finally:
        shop.close()


def delivery(
    position: int = 1, *, name: str = "n", stream: str = "st", epoch: str = "e", **params: Any
) -> Delivery:
    place = EventPlace(
        server="s", stream=stream, epoch=epoch, position=position, event_id=f"{epoch}-{position}"
    )
    return Delivery(scope=SCOPE, place=place, name=name, params=params, data=repr(params).encode())


class Effects:
    """A sink outside: counts raw calls, and applies each idempotency key once."""

    def __init__(self) -> None:
        self.raw: list[str] = []
        self.keys: set[str] = set()


def register(handlers: Handlers, kind: str, effects: Effects, body: Callable[[], Any] | None = None) -> None:
    """Register a handler of `kind` for `n` that has an effect and then runs `body`."""

    def run() -> None:
        if body is not None:
            body()

    if kind == "transactional":

        @handlers.on("n", kind=kind)
        def transactional(transaction: Transaction, delivery: Delivery) -> None:
            effects.raw.append("t")
            transaction.execute("insert into stock values (?, 1)", (f"e{delivery.place.position}",))
            run()
    elif kind == "idempotent":

        @handlers.on("n", kind=kind)
        async def idempotent(delivery: Delivery, *, idempotency_key: str) -> None:
            effects.raw.append(idempotency_key)
            effects.keys.add(idempotency_key)
            run()
    else:

        @handlers.on("n", kind=kind)
        async def at_most_once(delivery: Delivery) -> None:
            effects.raw.append("o")
            run()


async def processed(ledger: SqliteLedger | MemoryLedger, stream: str = "st") -> int | None:
    mark = await ledger.mark(SCOPE, server="s", stream=stream)
    return mark.processed if mark is not None else None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.anyio
async def test_each_event_has_its_effect_once_and_a_copy_is_acknowledged(path: Path, kind: str) -> None:
    handlers, effects = Handlers(), Effects()
    register(handlers, kind, effects)
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        first = await dispatcher.dispatch(delivery(1))
        copy = await dispatcher.dispatch(delivery(1))
        assert (first.outcome, first.repeated) == (OutcomeToken.COMPLETED, False)
        assert (copy.outcome, copy.repeated) == (OutcomeToken.COMPLETED, True)
        assert await processed(ledger) == 1
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        assert (await dispatcher.dispatch(delivery(1))).repeated
    assert len(effects.raw) == 1


@pytest.mark.anyio
async def test_events_of_a_stream_run_in_order_and_streams_beside_each_other(path: Path) -> None:
    handlers = Handlers()
    seen: list[tuple[str, int]] = []
    gate = anyio.Event()

    @handlers.on("n", kind="at_most_once")
    async def handle(delivery: Delivery) -> None:
        if delivery.place.stream == "slow":
            await gate.wait()
        seen.append((delivery.place.stream, delivery.place.position))

    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        slow = [dispatcher.dispatch(delivery(n, stream="slow")) for n in (1, 2)]
        for n in (1, 2, 3):
            await dispatcher.dispatch(delivery(n, stream="fast"))
        assert seen == [("fast", 1), ("fast", 2), ("fast", 3)]
        gate.set()
        for ticket in slow:
            await ticket
    assert seen[3:] == [("slow", 1), ("slow", 2)]


@pytest.mark.anyio
async def test_an_event_without_handler_counts_as_completed(path: Path) -> None:
    handlers = Handlers()
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        report = await dispatcher.dispatch(delivery(1, name="unknown"))
        assert (report.outcome, report.why) == (OutcomeToken.COMPLETED, "no-handler")
        assert await processed(ledger) == 1


# --- exceptions ---


class Flaky:
    """Raises for the first `times` runs."""

    def __init__(self, times: int, error: type[Exception] = RuntimeError) -> None:
        self.left = times
        self.error = error

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            raise self.error("flaky")


@pytest.mark.parametrize("error", [RuntimeError, NotApplied])
@pytest.mark.parametrize("kind", ["transactional", "idempotent"])
@pytest.mark.anyio
async def test_an_exception_is_tried_again_and_cured(path: Path, kind: str, error: type[Exception]) -> None:
    """Table 2, B4: the same key, at most `attempts` times."""
    handlers, effects = Handlers(), Effects()
    register(handlers, kind, effects, Flaky(2, error))
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers, limits=QUICK) as dispatcher:
        report = await dispatcher.dispatch(delivery(1))
        assert report.outcome is OutcomeToken.COMPLETED
    assert len(effects.raw) == 3
    assert len(effects.keys) <= 1
    assert stock(path) == (["e1"] if kind == "transactional" else [])


@pytest.mark.parametrize("policy", ["end_stream", "park"])
@pytest.mark.parametrize("kind", ["transactional", "idempotent"])
@pytest.mark.anyio
async def test_a_failed_event_is_reported_and_never_vanishes(path: Path, kind: str, policy: Any) -> None:
    """L21, Table 2: at the attempt limit it is failed; by default the stream ends, and can be reopened."""
    handlers, effects = Handlers(), Effects()
    register(handlers, kind, effects, Flaky(3))
    reports: list[DispatchReport] = []
    async with (
        SqliteLedger(path) as ledger,
        Dispatcher(ledger, handlers, limits=QUICK, on_failed=policy, on_report=reports.append) as dispatcher,
    ):
        failing, behind = dispatcher.dispatch(delivery(1)), dispatcher.dispatch(delivery(2))
        report = await failing
        assert (report.outcome, report.ends_stream) == (OutcomeToken.FAILED, policy == "end_stream")
        assert isinstance(report.error, RuntimeError)
        if policy == "end_stream":
            assert (await behind).outcome is OutcomeToken.NOT_APPLIED
            assert (await dispatcher.dispatch(delivery(2))).outcome is OutcomeToken.NOT_APPLIED
            dispatcher.reopen(SCOPE, server="s", stream="st")
            behind = dispatcher.dispatch(delivery(2))
        assert (await behind).outcome is OutcomeToken.COMPLETED
        assert await processed(ledger) == 2
        again = await dispatcher.dispatch(delivery(1))
        assert again.outcome in (OutcomeToken.FAILED, OutcomeToken.COMPLETED)
        assert again.repeated
    assert [one.outcome for one in reports if one.why == "attempts"] == [OutcomeToken.FAILED]
    assert len(effects.raw) == 4
    assert stock(path) == (["e2"] if kind == "transactional" else [])


@pytest.mark.parametrize("policy", ["end_stream", "park"])
@pytest.mark.anyio
async def test_an_exception_of_an_at_most_once_handler_is_a_doubt(path: Path, policy: Any) -> None:
    handlers, effects = Handlers(), Effects()
    register(handlers, "at_most_once", effects, Flaky(1))
    reports: list[DispatchReport] = []
    async with (
        SqliteLedger(path) as ledger,
        Dispatcher(ledger, handlers, on_indeterminate=policy, on_report=reports.append) as dispatcher,
    ):
        report = await dispatcher.dispatch(delivery(1))
        assert (report.outcome, report.ends_stream) == (OutcomeToken.INDETERMINATE, policy == "end_stream")
        assert "RuntimeError" in report.evidence
        assert "flaky" not in report.evidence
        (entry,) = [entry async for entry in ledger.indeterminate()]
        assert entry.parked
        assert await processed(ledger) == 1
        dispatcher.reopen(SCOPE, server="s", stream="st")
        assert (await dispatcher.dispatch(delivery(1))).repeated
        assert (await dispatcher.dispatch(delivery(2))).outcome is OutcomeToken.COMPLETED
        await ledger.resolve(entry, "completed", note="looked")
    assert [one.outcome for one in reports] == [OutcomeToken.INDETERMINATE]
    assert len(effects.raw) == 2


@pytest.mark.anyio
async def test_not_applied_of_an_at_most_once_handler_is_tried_again(path: Path) -> None:
    handlers, effects = Handlers(), Effects()
    register(handlers, "at_most_once", effects, Flaky(1, NotApplied))
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers, limits=QUICK) as dispatcher:
        assert (await dispatcher.dispatch(delivery(1))).outcome is OutcomeToken.COMPLETED
    assert len(effects.raw) == 2


@pytest.mark.anyio
async def test_plain_handlers_of_the_other_kinds_run_beside_the_loop(path: Path) -> None:
    handlers, calls = Handlers(), []

    @handlers.on("keyed", kind="idempotent")
    def keyed(delivery: Delivery, *, idempotency_key: str) -> None:
        calls.append(idempotency_key)

    @handlers.on("bare", kind="at_most_once")
    def bare(delivery: Delivery) -> None:
        calls.append(delivery.event_id)

    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        report = await dispatcher.dispatch(delivery(1, name="keyed"))
        await dispatcher.dispatch(delivery(2, name="bare"))
    assert calls == [report.idempotency_key, "e-2"]


@pytest.mark.anyio
async def test_what_prepare_fetched_reaches_the_handler_and_its_failure_is_tried_again(path: Path) -> None:
    handlers, flaky = Handlers(), Flaky(1)

    async def fetch(delivery: Delivery) -> str:
        flaky()
        return str(delivery.params["sku"])

    @handlers.on("n", kind="transactional", prepare=fetch)
    def apply(transaction: Transaction, delivery: Delivery, sku: str) -> None:
        transaction.execute("insert into stock values (?, 1)", (sku,))

    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers, limits=QUICK) as dispatcher:
        assert (await dispatcher.dispatch(delivery(1, sku="A1"))).outcome is OutcomeToken.COMPLETED
    assert stock(path) == ["A1"]


@pytest.mark.anyio
async def test_a_transactional_handler_that_hands_back_an_awaitable_fails(path: Path) -> None:
    handlers = Handlers()

    async def later() -> None: ...

    handlers.on("n", kind="transactional")(lambda transaction, delivery: later())
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers, limits=QUICK) as dispatcher:
        report = await dispatcher.dispatch(delivery(1))
        assert report.outcome is OutcomeToken.FAILED
        assert isinstance(report.error, UnsafeHandler)


@pytest.mark.anyio
async def test_other_bytes_under_a_known_event_run_nothing(path: Path) -> None:
    handlers = Handlers()

    @handlers.on("n", kind="at_most_once")
    async def fail(delivery: Delivery) -> None:
        raise RuntimeError

    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        await dispatcher.dispatch(delivery(1, level=1))
        dispatcher.reopen(SCOPE, server="s", stream="st")
        report = await dispatcher.dispatch(delivery(1, level=2))
        assert (report.outcome, report.why, report.ends_stream) == (
            OutcomeToken.NOT_APPLIED,
            "fingerprint",
            True,
        )


@pytest.mark.anyio
async def test_work_named_by_its_payload_is_done_once_whatever_stream_brings_it(path: Path) -> None:
    """L16: and the sink sees one key for it."""
    handlers, keys = Handlers(), []

    @handlers.on("n", kind="idempotent", payload_key=lambda delivery: delivery.params.get("task"))
    async def handle(delivery: Delivery, *, idempotency_key: str) -> None:
        keys.append(idempotency_key)

    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        await dispatcher.dispatch(delivery(1, task="t9"))
        report = await dispatcher.dispatch(delivery(1, stream="other", epoch="f", task="t9"))
        assert (report.outcome, report.repeated) == (OutcomeToken.COMPLETED, True)
        await dispatcher.dispatch(delivery(2))  # has no key of its own
    assert len(keys) == 2


def _raise_key_error(delivery: Delivery) -> str:
    return str(delivery.params["task"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "payload_key",
    [_raise_key_error, lambda delivery: 9, lambda delivery: "\ud800"],
    ids=["raises", "int", "half"],
)
@pytest.mark.anyio
async def test_work_whose_name_cannot_be_found_is_not_applied_and_ends_its_stream_alone(
    path: Path, kind: str, payload_key: Any
) -> None:
    handlers, effects = Handlers(), Effects()
    register(handlers, kind, effects)
    handlers._handlers["broken"] = msgspec.structs.replace(
        handlers._handlers["n"], name="broken", payload_key=payload_key
    )
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        before = dispatcher.dispatch(delivery(1))
        broken = dispatcher.dispatch(delivery(2, name="broken"))
        behind = dispatcher.dispatch(delivery(3))
        elsewhere = dispatcher.dispatch(delivery(1, stream="other"))
        report = await broken
        assert (report.outcome, report.why, report.ends_stream) == (
            OutcomeToken.NOT_APPLIED,
            "payload-key",
            True,
        )
        assert report.error is not None
        assert (await before).outcome is OutcomeToken.COMPLETED
        assert (await behind).outcome is OutcomeToken.NOT_APPLIED
        assert (await elsewhere).outcome is OutcomeToken.COMPLETED
        assert await processed(ledger) == 1
    assert len(effects.raw) == 2


@pytest.mark.anyio
async def test_a_ticket_is_settled_even_where_the_report_of_it_raises(path: Path) -> None:
    handlers = Handlers()
    register(handlers, "at_most_once", Effects(), lambda: 1 / 0)

    def refuse(report: DispatchReport) -> None:
        raise RuntimeError("the application's own")

    ticket: DispatchTicket | None = None
    with pytest.raises(ExceptionGroup) as raised:
        async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers, on_report=refuse) as dispatcher:
            ticket = dispatcher.dispatch(delivery(1))
    assert raised.group_contains(RuntimeError, match="own")
    assert ticket is not None
    assert ticket.outcome is OutcomeToken.INDETERMINATE


@pytest.mark.anyio
async def test_two_streams_that_bring_the_same_work_at_once_run_it_once(path: Path) -> None:
    handlers, runs = Handlers(), []

    @handlers.on("n", kind="idempotent", payload_key=lambda delivery: "the-work")
    async def handle(delivery: Delivery, *, idempotency_key: str) -> None:
        runs.append(delivery.place.stream)
        await anyio.sleep(0.02)

    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        tickets = [dispatcher.dispatch(delivery(1, stream=f"s{n}")) for n in range(8)]
        reports = [await ticket for ticket in tickets]
    assert len(runs) == 1
    assert sorted(report.repeated for report in reports) == [False] + [True] * 7


# --- cancelling ---


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.anyio
async def test_a_cancelled_ticket_says_none_or_done_or_doubt(path: Path, kind: str, begun: bool) -> None:
    """Table 3, B3 and B4: at most once is a doubt once it has begun, the others run again."""
    handlers, started = Handlers(), anyio.Event()
    runs: list[int] = []

    if kind == "transactional":

        @handlers.on("n", kind=kind)
        def transactional(transaction: Transaction, delivery: Delivery) -> None:
            runs.append(delivery.place.position)

        started.set()
    elif kind == "idempotent":

        @handlers.on("n", kind=kind)
        async def idempotent(delivery: Delivery, *, idempotency_key: str) -> None:
            runs.append(delivery.place.position)
            started.set()
            if begun and len(runs) == 1:
                await anyio.sleep_forever()
    else:

        @handlers.on("n", kind=kind)
        async def at_most_once(delivery: Delivery) -> None:
            runs.append(delivery.place.position)
            started.set()
            await anyio.sleep_forever()

    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        ticket = dispatcher.dispatch(delivery(1))
        if begun and kind != "transactional":
            await started.wait()
        elif begun:
            await ticket
        ticket.cancel()
        report = await ticket
        if not begun:
            assert (report.outcome if isinstance(report, DispatchReport) else None) is not None
        expected = {
            ("at_most_once", True): OutcomeToken.INDETERMINATE,
            ("idempotent", True): OutcomeToken.INDETERMINATE,
            ("transactional", True): OutcomeToken.COMPLETED,
        }.get((kind, begun), OutcomeToken.NOT_APPLIED)
        assert ticket.outcome is expected
        await anyio.wait_all_tasks_blocked()
        dispatcher.reopen(SCOPE, server="s", stream="st")
        if kind != "at_most_once" or not begun:
            if kind == "at_most_once":
                return
            again = await dispatcher.dispatch(delivery(1))
            assert again.outcome is OutcomeToken.COMPLETED
        else:
            assert (await dispatcher.dispatch(delivery(1))).outcome is OutcomeToken.INDETERMINATE
            assert len([entry async for entry in ledger.indeterminate()]) == 1


BOUNDARIES = ("B1", "B2", "B3", "B4", "B5", "B6", "B7")


async def cancel_at(
    path: Path, kind: str, boundary: str, cancel: Callable[[], None] | None
) -> DispatchTicket:
    """Run one event and cancel the dispatcher's owner when the dispatcher reaches a boundary."""
    handlers, effects = Handlers(), Effects()

    if kind == "transactional":
        register(handlers, kind, effects)
    elif kind == "idempotent":

        @handlers.on("n", kind=kind)
        async def idempotent(delivery: Delivery, *, idempotency_key: str) -> None:
            effects.raw.append("i")
            await anyio.lowlevel.checkpoint()
    else:

        @handlers.on("n", kind=kind)
        async def at_most_once(delivery: Delivery) -> None:
            effects.raw.append("o")
            await anyio.lowlevel.checkpoint()

    reached: list[str] = []
    tickets: list[DispatchTicket] = []

    async with SqliteLedger(path) as ledger:
        with anyio.CancelScope() as scope:

            def reach(name: str) -> None:
                if name == boundary and not reached:
                    reached.append(name)
                    (cancel or scope.cancel)()

            try:
                async with Dispatcher(ledger, handlers, _reach=reach) as dispatcher:
                    tickets.append(dispatcher.dispatch(delivery(1)))
                    await anyio.sleep(5 if kind != "transactional" or boundary == "B1" else 0)
            except asyncio.CancelledError:
                if cancel is None:
                    raise
    (ticket,) = tickets
    # The ledger is closed, so everything durable is decided: a ticket that still says pending would lie.
    assert ticket.outcome != "pending"
    applied = bool(stock(path)) if kind == "transactional" else bool(effects.raw)
    if ticket.outcome is OutcomeToken.COMPLETED:
        assert applied
    if ticket.outcome is OutcomeToken.NOT_APPLIED:
        assert not applied
    # The next incarnation ends where the tables say.
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers) as dispatcher:
        report = await dispatcher.dispatch(delivery(1))
        count = len(stock(path)) if kind == "transactional" else len(effects.raw)
        doubts = [entry async for entry in ledger.indeterminate()]
        if kind == "at_most_once":
            assert count <= 1
            assert report.outcome is OutcomeToken.COMPLETED or doubts
            # Before the handler nothing has begun: the next process runs it, without any doubt.
            assert count == 1
        elif kind == "transactional":
            assert count == 1
        else:
            assert count >= 1
            assert report.outcome is OutcomeToken.COMPLETED
    return ticket


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.anyio
async def test_cancelled_at_every_boundary_the_ticket_tells_the_truth(
    path: Path, kind: str, boundary: str
) -> None:
    """Table 3 and P12, by the backend's own cancellation."""
    await cancel_at(path, kind, boundary, None)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_native_task_cancel_at_every_boundary_leaves_a_true_ticket(
    path: Path, kind: str, boundary: str
) -> None:
    """P12 on asyncio: `Task.cancel()` passes every shield of anyio."""

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        ticket = await cancel_at(path, kind, boundary, lambda: loop.call_soon(task.cancel))
        assert ticket.outcome != "pending"

    asyncio.run(main())


# --- bounds and life ---


@pytest.mark.anyio
async def test_a_stream_that_outruns_its_handlers_is_told_to_stop_reading(path: Path) -> None:
    handlers = Handlers()
    gate = anyio.Event()

    @handlers.on("n", kind="at_most_once")
    async def wait(delivery: Delivery) -> None:
        await gate.wait()

    limits = Limits(dispatch_queue=3)
    async with SqliteLedger(path) as ledger, Dispatcher(ledger, handlers, limits=limits) as dispatcher:
        tickets = [dispatcher.dispatch(delivery(1))]
        await anyio.wait_all_tasks_blocked()
        tickets += [dispatcher.dispatch(delivery(n)) for n in (2, 3, 4)]
        with pytest.raises(LedgerBusy, match="dispatch_queue"):
            dispatcher.dispatch(delivery(5))
        gate.set()
        for ticket in tickets:
            assert (await ticket).outcome is OutcomeToken.COMPLETED
        assert dispatcher._streams == {}


@pytest.mark.anyio
async def test_a_closed_dispatcher_refuses_and_leaving_finishes_what_was_accepted(path: Path) -> None:
    handlers, effects = Handlers(), Effects()
    register(handlers, "transactional", effects)
    async with SqliteLedger(path) as ledger:
        dispatcher = Dispatcher(ledger, handlers)
        with pytest.raises(LedgerError, match="not open"):
            dispatcher.dispatch(delivery(1))
        async with dispatcher:
            tickets = [dispatcher.dispatch(delivery(n)) for n in range(1, 21)]
        assert all(ticket.outcome is OutcomeToken.COMPLETED for ticket in tickets)
    assert len(stock(path)) == 20


@pytest.mark.anyio
async def test_a_kind_that_is_unsafe_on_the_ledger_starts_nothing(path: Path) -> None:
    handlers = Handlers()
    register(handlers, "transactional", Effects())
    async with MemoryLedger() as ledger:
        with pytest.raises(UnsafeHandler):
            async with Dispatcher(ledger, handlers):
                raise AssertionError("must not start")


@pytest.mark.anyio
async def test_a_store_that_fails_ends_the_stream_and_the_event_runs_when_it_is_back(path: Path) -> None:
    """Table 4: F→E for every kind."""
    for kind in KINDS:
        handlers, effects = Handlers(), Effects()
        register(handlers, kind, effects)
        limits = Limits(ledger_busy_ms=30)
        async with SqliteLedger(path, limits=limits) as ledger, Dispatcher(ledger, handlers) as dispatcher:
            shop = sqlite3.connect(path, isolation_level=None)
            shop.execute("begin immediate")
            report = await dispatcher.dispatch(delivery(1, stream=kind))
            assert (report.outcome, report.why, report.ends_stream) == (
                OutcomeToken.NOT_APPLIED,
                "store",
                True,
            )
            assert effects.raw == []
            shop.execute("rollback")
            shop.close()
            dispatcher.reopen(SCOPE, server="s", stream=kind)
            again = await dispatcher.dispatch(delivery(1, stream=kind))
            assert again.outcome is OutcomeToken.COMPLETED
            assert len(effects.raw) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["idempotent", "at_most_once"])
@pytest.mark.parametrize("raises", [False, True])
async def test_a_run_whose_outcome_could_not_be_written_is_not_waited_for_by_the_next_copy(
    path: Path, kind: str, raises: bool
) -> None:
    """The store fails behind the handler, and comes back: its row is an intent of a run that is over."""
    handlers, runs = Handlers(), []
    shop = sqlite3.connect(path, isolation_level=None)

    async def work() -> None:
        runs.append(kind)
        if len(runs) == 1:
            shop.execute("begin immediate")
            if raises:
                raise ValueError("no")

    if kind == "idempotent":

        @handlers.on("n", kind=kind)
        async def idempotent(delivery: Delivery, *, idempotency_key: str) -> None:
            await work()
    else:

        @handlers.on("n", kind=kind)
        async def at_most_once(delivery: Delivery) -> None:
            await work()

    limits = Limits(ledger_busy_ms=20, attempt_backoff_ms=1)
    with anyio.fail_after(20):
        async with (
            SqliteLedger(path, limits=limits) as ledger,
            Dispatcher(ledger, handlers, limits=limits) as dispatcher,
        ):
            report = await dispatcher.dispatch(delivery(1))
            # The handler has run: nobody can say that nothing happened.
            assert (report.outcome, report.why) == (OutcomeToken.INDETERMINATE, "store")
            shop.execute("rollback")
            dispatcher.reopen(SCOPE, server="s", stream="st")
            again = await dispatcher.dispatch(delivery(1))
    shop.close()
    if kind == "idempotent":
        assert (again.outcome, len(runs)) == (OutcomeToken.COMPLETED, 2)
    else:
        assert (again.outcome, len(runs)) == (OutcomeToken.INDETERMINATE, 1)
