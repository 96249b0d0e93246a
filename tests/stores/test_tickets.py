"""Tickets: given at once, waited for from anywhere, cancelled without harm, and never lying."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest
from counterfoil.errors import LedgerBusy, LedgerFailed, StillPending
from counterfoil.model.tokens import OutcomeToken
from counterfoil.stores.tickets import Ticket, settled_ticket, wake


def settle_from_thread(ticket: Ticket[int], value: int) -> threading.Thread:
    thread = threading.Thread(target=lambda: wake(ticket.settle(value)))
    thread.start()
    return thread


@pytest.mark.anyio
async def test_a_ticket_is_pending_until_its_work_is_durable() -> None:
    ticket: Ticket[int] = Ticket()
    assert ticket.outcome == "pending"
    with pytest.raises(StillPending):
        ticket.result()
    thread = settle_from_thread(ticket, 7)
    assert await ticket == 7
    assert (ticket.outcome, ticket.result(), await ticket.wait()) == (OutcomeToken.COMPLETED, 7, 7)
    thread.join()


@pytest.mark.anyio
async def test_any_number_of_tasks_and_threads_wait_for_one_ticket() -> None:
    ticket: Ticket[int] = Ticket()
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(ticket.wait_blocking())) for _ in range(3)]
    for thread in threads:
        thread.start()

    async def wait() -> None:
        got.append(await ticket)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        thread = settle_from_thread(ticket, 1)
    thread.join()
    for one in threads:
        one.join()
    assert got == [1] * 8


@pytest.mark.anyio
async def test_cancelling_the_wait_cancels_nothing_else() -> None:
    """P12: the ticket still says pending, then what became of the work."""
    ticket: Ticket[int] = Ticket()
    with anyio.move_on_after(0.01):
        await ticket
    assert ticket.outcome == "pending"
    wake(ticket.settle(3))
    assert await ticket == 3


def test_a_native_task_cancel_stops_the_waiting_only() -> None:
    """P12 on asyncio: `Task.cancel()` passes anyio's shields, so nothing of the work may hang on one."""

    async def main() -> None:
        ticket: Ticket[int] = Ticket()
        task = asyncio.create_task(ticket.wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ticket.outcome == "pending"
        wake(ticket.settle(5))
        assert await ticket == 5

    asyncio.run(main())


def test_a_loop_that_ended_is_no_obstacle() -> None:
    ticket: Ticket[int] = Ticket()

    async def wait() -> None:
        task = asyncio.ensure_future(ticket.wait())
        await asyncio.sleep(0)
        del task

    loop = asyncio.new_event_loop()
    loop.run_until_complete(wait())
    pending = asyncio.all_tasks(loop)
    wakers = ticket.settle(1)
    for task in pending:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.close()
    wake(wakers)
    assert ticket.result() == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (LedgerBusy("busy"), OutcomeToken.NOT_APPLIED),
        (LedgerFailed("full"), OutcomeToken.NOT_APPLIED),
        (LedgerFailed("sync", True), OutcomeToken.INDETERMINATE),
    ],
)
def test_an_error_says_whether_the_disk_may_have_taken_it(error: Exception, outcome: OutcomeToken) -> None:
    ticket: Ticket[int] = settled_ticket(error=error)
    assert ticket.outcome is outcome
    with pytest.raises(type(error)):
        ticket.wait_blocking()


def test_work_can_be_withdrawn_until_it_begins() -> None:
    ticket: Ticket[int] = Ticket()
    assert ticket.withdraw()
    assert ticket.outcome is OutcomeToken.NOT_APPLIED
    assert not ticket.begin()
    begun: Ticket[int] = Ticket()
    assert begun.begin()
    assert not begun.withdraw()
    assert begun.outcome == "pending"


def test_a_ticket_is_settled_once() -> None:
    ticket: Ticket[int] = Ticket()
    ticket.settle(1)
    assert ticket.settle(2) == ()
    assert ticket.result() == 1
    seen: list[str] = []
    ticket.when_settled(lambda: seen.append("at once"))
    later: Ticket[int] = Ticket()
    later.when_settled(lambda: seen.append("later"))
    wake(later.settle(1))
    assert seen == ["at once", "later"]


def test_what_follows_from_one_ticket_cannot_keep_the_others_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ticket: Ticket[int] = Ticket()
    seen: list[str] = []
    ticket.when_settled(lambda: [][0])
    ticket.when_settled(lambda: seen.append("told"))
    wake(ticket.settle(1))
    assert seen == ["told"]
    assert "follows from a ticket failed" in caplog.text


def test_a_thread_may_stop_waiting() -> None:
    ticket: Ticket[int] = Ticket()
    with pytest.raises(StillPending):
        ticket.wait_blocking(timeout_s=0.001)
    wake(ticket.settle(1))
    assert ticket.wait_blocking(timeout_s=0.001) == 1
