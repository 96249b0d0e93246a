"""Transactional handlers through the SQLite ledger, `synchronous = FULL`, against SQL written by hand.

Time on the wall, because what is paid for here is the disk too; the CPU of both is told beside it.  Ours and
the hand-written loops take turns on the same file system.  A stream is measured twice: each event given when
the one before it is durable, and with events that wait, as after a resume.  What it does not show: handlers
of more than one statement, where our share shrinks.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import anyio
from bars import Bar, Context, run_alone
from counterfoil import Delivery, Handlers, Scope, SqliteLedger, Transaction
from counterfoil.adapters.dispatcher import Dispatcher
from counterfoil.model.ledger_keys import EventPlace, encode_key, encode_stream
from counterfoil.model.ledger_rows import LedgerRow, RowKind, RowState, StreamMark, encode_mark
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent

SCOPE = Scope(principal="bench", session="s-1")
STREAMS = 64
#: Of one round.  Rounds are short and many, because a disk that others use is slow for seconds at a time.
BATCHES = 12
SINGLE = 12
BACKLOG = 64
SKUS = 1000
UPDATE = "update stock set level = ? where sku = ?"
MARK = "INSERT OR REPLACE INTO counterfoil_streams (key, body) VALUES (?, ?)"
READ = "SELECT body, expires_at IS NULL FROM counterfoil_rows WHERE key = ?"


def make_shop(path: Path) -> None:
    """A stock of a thousand articles, with the ledger's tables beside it."""
    with SqliteLedger(path).blocking():
        pass
    shop = sqlite3.connect(path)
    shop.execute("create table stock (sku text primary key, level int)")
    shop.executemany("insert into stock values (?, 0)", [(f"A{n}",) for n in range(SKUS)])
    shop.commit()
    shop.close()


def place(position: int, stream: str) -> EventPlace:
    return EventPlace(
        server="https://mcp.example/mcp",
        stream=stream,
        epoch="f3k9x0a1b2",
        position=position,
        event_id=f"cf1.Qm9yZWQgb2YgZ3Vlc3Npbmc.f3k9x0a1b2.k1AbCdEfGhIjKlMn.{position}.x9Yz01AbCdE",
    )


class Spent:
    """Time on the wall and CPU, from when it is made."""

    def __init__(self) -> None:
        self.wall_s, self.cpu_s = -time.perf_counter(), -time.process_time()

    def stop(self) -> None:
        self.wall_s += time.perf_counter()
        self.cpu_s += time.process_time()


class Ours:
    """An open ledger, and streams that go on from round to round."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger
        #: Where each set of streams is; a hole would leave a row behind every event after it.
        self.positions: dict[int, int] = {}
        self.commits_per_event = 0.0

    async def run(self, streams: int, events: int) -> Spent:
        """A stream's task is there before its events are, so the clock starts when all of them wait."""
        first = self.positions.get(streams, 0) + 1
        self.positions[streams] = first + events - 1
        before, begin = self.ledger.commits, anyio.Event()
        async with anyio.create_task_group() as group:
            for number in range(streams):
                group.start_soon(
                    self._one, begin, number, f"stream-{streams}-{number}", range(first, first + events)
                )
            await anyio.wait_all_tasks_blocked()
            spent = Spent()
            begin.set()
        spent.stop()
        self.commits_per_event = (self.ledger.commits - before) / (streams * events)
        return spent

    async def _one(self, begin: anyio.Event, number: int, stream: str, positions: range) -> None:
        await begin.wait()
        for position in positions:
            sku = f"A{(position + number) * 7 % SKUS}"

            def handler(transaction: Transaction, level: int = position, sku: str = sku) -> None:
                transaction.execute(UPDATE, (level, sku))

            intent = Intent(scope=SCOPE, key=place(position, stream), kind=RowKind.TRANSACTIONAL)
            await self.ledger.apply(intent, handler)


class Backlog:
    """One stream whose events wait for the dispatcher, a round's worth at a time."""

    def __init__(self, dispatcher: Dispatcher, ledger: SqliteLedger) -> None:
        self.dispatcher = dispatcher
        self.ledger = ledger
        self.last = 0
        self.commits_per_event = 0.0

    @staticmethod
    def handlers() -> Handlers:
        handlers = Handlers()

        @handlers.on("level", kind="transactional")
        def write(transaction: Transaction, delivery: Delivery) -> None:
            position = delivery.place.position
            transaction.execute(UPDATE, (position, f"A{position * 7 % SKUS}"))

        return handlers

    async def run(self) -> None:
        first, self.last = self.last + 1, self.last + BACKLOG
        before = self.ledger.commits
        tickets = [
            self.dispatcher.dispatch(Delivery(scope=SCOPE, place=place(n, "backlog"), name="level"))
            for n in range(first, self.last + 1)
        ]
        for ticket in tickets:
            report = await ticket
            assert report.outcome is OutcomeToken.COMPLETED
        self.commits_per_event = (self.ledger.commits - before) / BACKLOG


class OtherThread:
    """The least that a way to another thread and back costs: a bare lock there, a descriptor back."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._asked = threading.Lock()
        self._asked.acquire()
        self._is_over = False
        self._answer = os.eventfd(0, os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            if self._is_over:
                return
            self._work()
            os.eventfd_write(self._answer, 1)

    async def ask(self) -> None:
        for _ in range(SINGLE):
            self._asked.release()
            await anyio.wait_readable(self._answer)
            os.eventfd_read(self._answer)

    def close(self) -> None:
        self._is_over = True
        self._asked.release()
        self._thread.join()
        os.close(self._answer)


class ByHand:
    """The same file, stdlib `sqlite3`, no ledger in between."""

    def __init__(self, path: Path) -> None:
        self.shop = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.shop.execute("pragma synchronous = full")
        row = LedgerRow(
            state=RowState.SETTLED,
            kind=RowKind.TRANSACTIONAL,
            attempt=1,
            tries=1,
            fence=1,
            serial=123_456,
            commit=1 << 33,
            changed_at=1_800_000_000.0,
            outcome=OutcomeToken.COMPLETED,
            position=17,
        )
        self.marks = [
            encode_mark(
                StreamMark(
                    epoch="f3k9x0a1b2", processed=n, event_id=place(n, "s").event_id, commit=1, last=row
                )
            )
            for n in (17, 18)
        ]
        #: Counts the batches.  SQLite writes nothing for a row that stays what it was, so none may.
        self.batch = 0
        self.rows = [encode_key(SCOPE, place(n, f"hand-{n}")) for n in range(STREAMS)]
        self.streams = [encode_stream(SCOPE, "https://mcp.example/mcp", f"hand-{n}") for n in range(STREAMS)]

    def _next_batches(self, count: int) -> range:
        first, self.batch = self.batch, self.batch + count
        return range(first, first + count)

    async def every_statement(self, streams: int = STREAMS, batches: int = BATCHES) -> None:
        """What a careful author sends per event, one event of every stream per commit."""
        self.send_every_statement(streams, batches)

    def send_every_statement(self, streams: int, batches: int) -> None:
        shop = self.shop
        for batch in self._next_batches(batches):
            mark = self.marks[batch % 2]
            shop.execute("BEGIN IMMEDIATE")
            for n in range(streams):
                shop.execute(READ, (self.rows[n],)).fetchone()
                shop.execute("SAVEPOINT one")
                shop.execute(UPDATE, (batch, f"A{(batch + n) * 7 % SKUS}"))
                shop.execute("RELEASE one")
                shop.execute(MARK, (self.streams[n], mark))
            shop.execute("COMMIT")

    async def handler_alone(self) -> None:
        """The handler's own statement, 64 per commit: effects without outcome, cursor or isolation."""
        shop = self.shop
        for batch in self._next_batches(BATCHES):
            shop.execute("BEGIN IMMEDIATE")
            for n in range(STREAMS):
                shop.execute(UPDATE, (batch, f"A{(batch + n) * 7 % SKUS}"))
            shop.execute("COMMIT")

    async def bare_commits(self) -> None:
        """One statement and one commit, again and again."""
        shop = self.shop
        for n in self._next_batches(SINGLE):
            shop.execute("BEGIN IMMEDIATE")
            shop.execute(UPDATE, (n, f"A{n * 7 % SKUS}"))
            shop.execute("COMMIT")


def bars(context: Context) -> list[Bar]:
    """Many streams at once, and one alone, on both event loops."""
    measured: list[Bar] = []
    for backend in ("trio", "asyncio"):
        folder = context.build / "bench-ledger"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            measured += anyio.run(measure, folder, 15 if context.quick else 60, backend, backend=backend)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return measured


async def measure(folder: Path, rounds: int, loop: str) -> list[Bar]:
    """Let everybody take turns; a bar is the median of the ratios of neighbours in time."""
    # Files of their own: two connections on one file would pay for each other's log.
    for name in ("ours", "hand"):
        make_shop(folder / f"{name}.db")
    hand = ByHand(folder / "hand.db")
    other = OtherThread(lambda: hand.send_every_statement(1, 1))
    async with (
        SqliteLedger(folder / "ours.db") as ledger,
        Dispatcher(ledger, Backlog.handlers()) as dispatcher,
    ):
        ours, backlog = Ours(ledger), Backlog(dispatcher, ledger)
        peers: dict[str, Callable[[], Awaitable[Spent | None]]] = {
            "ours": lambda: ours.run(STREAMS, BATCHES),
            "statements": hand.every_statement,
            "handler": hand.handler_alone,
            "lone": lambda: hand.every_statement(1, SINGLE),
            "single": lambda: ours.run(1, SINGLE),
            "bare": hand.bare_commits,
            "other thread": other.ask,
            "backlog": backlog.run,
        }
        times: dict[str, list[float]] = {name: [] for name in peers}
        cpu: dict[str, list[float]] = {name: [] for name in peers}
        order, per_event = list(peers), 0.0
        for number in range(rounds + 1):
            for name in order:
                whole = Spent()
                own = await peers[name]()
                whole.stop()
                if number:  # the first round fills caches
                    times[name].append((own or whole).wall_s)
                    cpu[name].append((own or whole).cpu_s)
                if name == "ours":
                    per_event = ours.commits_per_event
            # Neighbours stay neighbours, and each of them comes first as often as the other.
            order = order[::-1] if number % 2 else order[3:] + order[:3]
    other.close()
    hand.shop.close()

    def ratio(one: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(times[one], times[other], strict=True))

    def cpu_us(name: str) -> float:
        return statistics.median(cpu[name]) / events * 1e6

    events = STREAMS * BATCHES
    rate = events / statistics.median(times["ours"])
    commit_us = statistics.median(times["bare"]) / SINGLE * 1e6
    return [
        Bar(
            f"{loop}, 64 streams, vs the same statements by hand",
            ratio("statements", "ours"),
            0.3,
            0.6,
            "x",
            note=f"{rate:,.0f} events/s, {per_event:.4f} commits per event; "
            f"CPU {cpu_us('ours'):.0f} us an event, {cpu_us('statements'):.0f} by hand",
        ),
        Bar(
            f"{loop}, 64 streams, vs the handler's statement alone",
            ratio("handler", "ours"),
            None,
            None,
            "x",
            note="by hand without outcome, cursor and savepoint",
        ),
        Bar(
            f"{loop}, one stream, each event alone, time per event vs a bare commit",
            ratio("single", "bare"),
            1.3,
            None,
            "x",
            better="lower",
            note=f"a bare commit takes {commit_us:,.0f} us on this file system",
        ),
        Bar(
            f"{loop}, the same by hand through a second thread, vs a bare commit",
            ratio("other thread", "bare"),
            None,
            None,
            "x",
            better="lower",
            note="the least that an event loop pays that must not wait for the disk itself",
        ),
        Bar(
            f"{loop}, one stream, {BACKLOG} events waiting, time per event vs a bare commit",
            ratio("backlog", "bare") * SINGLE / BACKLOG,
            1.3,
            None,
            "x",
            better="lower",
            note=f"through the dispatcher, {backlog.commits_per_event:.3f} commits per event",
        ),
        Bar(
            f"{loop}, one stream, each event alone, vs the same statements by hand",
            ratio("single", "lone"),
            None,
            None,
            "x",
            better="lower",
            note=f"which take {ratio('lone', 'bare'):.2f} bare commits, without a thread",
        ),
    ]


if __name__ == "__main__":
    raise SystemExit(run_alone(bars))
