"""The demo's own client: keyed calls, and what is done with their answers, over one ledger; a child process.

It is made to be killed at any moment and started again with the same arguments; what it says on standard
output names the places at which it can be killed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import anyio
import anyio.lowlevel

from counterfoil.adapters.client.connection import Connection
from counterfoil.adapters.client.opening import connect
from counterfoil.adapters.dispatcher import Dispatcher
from counterfoil.errors import Indeterminate, NotApplied
from counterfoil.handlers import Delivery, Handlers
from counterfoil.limits import Limits
from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.tokens import HandlerKind
from counterfoil.native import Scope
from counterfoil.stores.ledger_interface import Transaction
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger

#: How each call's receipt is booked, in turn.
KINDS = (HandlerKind.TRANSACTIONAL, HandlerKind.IDEMPOTENT, HandlerKind.AT_MOST_ONCE)
#: Calls in flight at a time.
_LANES = 3
#: What a booking takes on either side of its effect.
_BOOKING_S = 0.02


def kind_of(number: int) -> HandlerKind:
    """How the receipt of the call with this number is booked."""
    return KINDS[number % len(KINDS)]


def make_handlers(folder: Path) -> Handlers:
    """One handler per kind; each books a receipt where the demo can count it."""
    handlers = Handlers()

    @handlers.on(f"receipt/{HandlerKind.TRANSACTIONAL}", kind=HandlerKind.TRANSACTIONAL)
    def book_in_database(transaction: Transaction, delivery: Delivery) -> None:
        transaction.execute("create table if not exists booked (call text)")
        transaction.execute("insert into booked values (?)", (delivery.params,))

    @handlers.on(f"receipt/{HandlerKind.IDEMPOTENT}", kind=HandlerKind.IDEMPOTENT)
    async def book_at_a_sink(delivery: Delivery, *, idempotency_key: str) -> None:
        await anyio.sleep(_BOOKING_S)
        # A sink that applies each key once: what it makes of a second request is the same file.
        (folder / f"sink-{delivery.params}-{idempotency_key}").touch()
        await anyio.sleep(_BOOKING_S)

    @handlers.on(f"receipt/{HandlerKind.AT_MOST_ONCE}", kind=HandlerKind.AT_MOST_ONCE)
    async def book_in_file(delivery: Delivery) -> None:
        await anyio.sleep(_BOOKING_S)
        with (folder / "booked").open("a", encoding="utf-8") as file:
            file.write(f"{delivery.params}\n")
        await anyio.sleep(_BOOKING_S)

    return handlers


class Client:
    """Places orders and books their receipts."""

    def __init__(self, connection: Connection, dispatcher: Dispatcher, *, steps: int, pause_ms: int) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._steps = steps
        self._pause_ms = pause_ms
        self._lanes = anyio.CapacityLimiter(_LANES)

    async def order(self, number: int, label: str) -> None:
        """Place one order under its label as key, and book the receipt once it is there."""
        async with self._lanes:
            arguments = {"call": label, "steps": self._steps, "pause_ms": self._pause_ms}
            params = {"name": "order", "arguments": arguments, "_meta": {"progressToken": label}}
            _say("asking", label)
            try:
                result = await self._connection.request(
                    "tools/call", params, idempotency_key=label, deadline_s=20
                )
            except (Indeterminate, NotApplied) as error:
                _say(type(error).__name__, label)
                return
            is_right = result["content"][0]["text"] == f"receipt for {label}"
            _say("answered" if is_right else "another's", label)
            # One event of its own per call, so that bookings do not wait for each other.
            place = EventPlace(
                server="demo", stream=label, epoch="receipts", position=1, event_id=label, foreign=True
            )
            name = f"receipt/{kind_of(number)}"
            delivery = Delivery(scope=Scope(principal="demo"), place=place, name=name, params=label)
            report = await self._dispatcher.dispatch(delivery)
            _say(f"booking-{report.outcome}", label)


async def _run(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.folder
    # Deaths at one booking count as its attempts; here they are all ours.
    limits = Limits(attempts=1_000)
    async with (
        SqliteLedger(folder / "client.db", limits=limits) as ledger,
        Dispatcher(ledger, make_handlers(folder), limits=limits, on_indeterminate="park") as dispatcher,
        connect(
            arguments.url,
            ledger=ledger,
            limits=limits,
            revision=arguments.revision,
            principal="demo",
            headers={"x-principal": "demo"},
            standalone=False,
        ) as connection,
    ):
        client = Client(connection, dispatcher, steps=arguments.steps, pause_ms=arguments.pause_ms)
        async with anyio.create_task_group() as tasks:
            for number in range(arguments.calls):
                tasks.start_soon(client.order, number, f"c{number}")
                await anyio.lowlevel.checkpoint()
    print("done", flush=True)


def _say(word: str, label: str) -> None:
    print(word, label, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="counterfoil demo client")
    parser.add_argument("--url", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--pause-ms", type=int, required=True)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="trio")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    anyio.run(_run, arguments, backend=arguments.backend)
    return 0


if __name__ == "__main__":
    sys.exit(main())
