"""The application that the effect tests kill: a shop whose handlers have effects that can be counted.

Imported by the programs of this folder, in processes of their own.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import counterfoil.stores.ledger_sqlite  # noqa: F401 - everything is imported before a process is forked
import trio  # noqa: F401
from counterfoil import Delivery, Handlers, Limits, Scope, SqliteLedger, Transaction
from counterfoil.adapters.dispatcher import Dispatcher
from counterfoil.model.ledger_keys import EventPlace

SCOPE = Scope(principal="shop")
KINDS = ("transactional", "idempotent", "at_most_once")
LIMITS = Limits(attempt_backoff_ms=1, ledger_busy_ms=200, attempts=100)


def delivery(position: int, stream: str = "st") -> Delivery:
    place = EventPlace(server="s", stream=stream, epoch="e", position=position, event_id=f"e-{position}")
    return Delivery(scope=SCOPE, place=place, name="n", data=b"%d" % position)


class Shop:
    """Database, sink and handlers in one folder."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder / "shop.db"
        self.sink = folder / "sink"
        self.kind = kind
        if not self.path.exists():
            shop = sqlite3.connect(self.path)
            shop.execute("create table effects (stream text, position int)")
            shop.close()

    def note(self, line: str) -> None:
        """Have an outside effect: one write that `kill -9` cannot cut."""
        descriptor = os.open(self.sink, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, line.encode() + b"\n")
        os.close(descriptor)

    def handlers(self, reach: Callable[[str, Delivery], None] = lambda name, delivery: None) -> Handlers:
        """Register the one handler; `reach` is told of the places inside it."""
        handlers = Handlers()

        if self.kind == "transactional":

            @handlers.on("n", kind="transactional")
            def transactional(transaction: Transaction, delivery: Delivery) -> None:
                reach("before-effect", delivery)
                place = delivery.place
                transaction.execute("insert into effects values (?, ?)", (place.stream, place.position))
                reach("after-effect", delivery)
        elif self.kind == "idempotent":

            @handlers.on("n", kind="idempotent")
            async def idempotent(delivery: Delivery, *, idempotency_key: str) -> None:
                reach("before-effect", delivery)
                self.note(f"{delivery.place.stream} {delivery.place.position} {idempotency_key}")
                reach("after-effect", delivery)
        else:

            @handlers.on("n", kind="at_most_once")
            async def at_most_once(delivery: Delivery) -> None:
                reach("before-effect", delivery)
                self.note(f"{delivery.place.stream} {delivery.place.position} -")
                reach("after-effect", delivery)

        return handlers

    def raw_effects(self) -> Counter[tuple[str, int]]:
        """Count every effect as it was made."""
        if self.kind == "transactional":
            shop = sqlite3.connect(self.path)
            rows = shop.execute("select stream, position from effects").fetchall()
            shop.close()
            return Counter((stream, position) for stream, position in rows)
        lines = self.sink.read_text().splitlines() if self.sink.exists() else []
        return Counter((stream, int(position)) for stream, position, _ in map(str.split, lines))

    def observed_effects(self) -> Counter[tuple[str, int]]:
        """Count effects as a sink observes them that applies each idempotency key once."""
        if self.kind != "idempotent":
            return self.raw_effects()
        lines = self.sink.read_text().splitlines() if self.sink.exists() else []
        return Counter((stream, int(position)) for stream, position, _ in map(str.split, set(lines)))

    async def run(
        self,
        streams: tuple[str, ...],
        last: int,
        *,
        reach: Callable[[str, Delivery], None] = lambda name, delivery: None,
        on_open: Callable[[], None] = lambda: None,
        ledger_reach: Callable[[str], None] | None = None,
        dispatch_reach: Callable[[str], None] | None = None,
        limits: Limits = LIMITS,
    ) -> dict[str, Any]:
        """Deliver what every stream has not processed, and the two events before it once more."""
        counts: Counter[str] = Counter()
        async with SqliteLedger(self.path, limits=limits, _reach=ledger_reach) as ledger:
            on_open()
            async with Dispatcher(
                ledger,
                self.handlers(reach),
                limits=limits,
                on_failed="park",
                on_indeterminate="park",
                _reach=dispatch_reach,
            ) as dispatcher:
                first = {}
                for stream in streams:
                    mark = await ledger.mark(SCOPE, server="s", stream=stream)
                    first[stream] = max(1, mark.processed - 1) if mark is not None else 1
                tickets = []
                for position in range(min(first.values()), last + 1):
                    due = [stream for stream in streams if position >= first[stream]]
                    tickets.extend(dispatcher.dispatch(delivery(position, stream)) for stream in due)
                for ticket in tickets:
                    report = await ticket
                    counts[report.outcome.value] += 1
                    counts["repeated"] += report.repeated
            doubts = [(entry.stream, int(entry.idempotency_key)) async for entry in ledger.indeterminate()]
            proofs = [await ledger.prove(SCOPE, server="s", stream=stream) for stream in streams]
        return {"counts": dict(counts), "doubts": doubts, "proofs": [one for one in proofs if one]}
