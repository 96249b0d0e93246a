"""With a ledger: one effect per key and per event, through cuts, re-issues, restarts and `kill -9`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from counterfoil.adapters.client.connection import Connection
from counterfoil.adapters.client.keys import CALL_META
from counterfoil.adapters.client.opening import connect
from counterfoil.decisions.reconnect import ReconnectLimits
from counterfoil.errors import (
    DeliveryStopped,
    Indeterminate,
    KeyConflict,
    NotApplied,
    RequestFailed,
    StreamLost,
    UnsafeHandler,
)
from counterfoil.handlers import Delivery, Handlers
from counterfoil.model.tokens import Next, VerdictToken, Why
from counterfoil.native import EventId, KeyRing, Scope, StreamToken
from counterfoil.protocol.continuity import CallToken, ContinuityClaim, write_claim, write_comment
from counterfoil.stores.ledger_memory import MemoryLedger
from counterfoil.stores.ledger_sqlite import SqliteLedger
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.scripted import Wire, open_scripted
from counterfoil.testing.scripted_mcp import ScriptedSession, note, result_of

pytestmark = pytest.mark.anyio
QUICK = ReconnectLimits(failures=4, first_delay_ms=5, longest_delay_ms=20)
RING = KeyRing.from_secret(b"a key of thirty-two bytes, fixed", made_s=1)
OFFERED = {"stream-continuity": write_claim(ContinuityClaim(call=CallToken.OFFERED))}
ORDER = {"name": "order", "arguments": {"sku": "A1"}}


async def until(fact: Any) -> None:
    while not fact():  # noqa: ASYNC110 - what is waited for is no event
        await anyio.sleep(0.005)


class Log:
    """A standalone stream with ids of ours, as a server that knows us would keep it."""

    def __init__(self) -> None:
        self.token = StreamToken.mint(kind="standalone", random=bytes(12))
        self.epoch = "AAAAAAAAAAA"
        chain = RING.digest_chain(Scope(session="s-1"), stream=self.token, epoch=self.epoch)
        self._digests = [chain.current]
        self.grown = anyio.Event()
        self._chain = chain
        self.lost = False
        self._is_cutting = False

    @property
    def last(self) -> int:
        return len(self._digests) - 1

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            number = self.last + 1
            self._digests.append(self._chain.append(number, data=repr(number).encode()))
        self._wake()

    def id_of(self, number: int) -> str:
        return str(
            RING.event_id(
                Scope(session="s-1"),
                stream=self.token,
                epoch=self.epoch,
                sequence=number,
                digest=self._digests[number],
            )
        )

    def _claim(self, text: str | None, wants_new: bool) -> tuple[ContinuityClaim, int]:
        verdict, after = VerdictToken.NEW, 0
        if wants_new:
            after = self.last
        elif text is not None:
            verdict, after = VerdictToken.RESUMED, EventId.parse(text).sequence
        claim = ContinuityClaim(
            verdict=verdict,
            next=Next.CONTINUE,
            epoch=self.epoch,
            after=after,
            digest=self._digests[after],
        )
        return claim, after

    async def play(self, exchange: Exchange, wire: Wire) -> None:
        wants_new = "new" in exchange.headers["stream-continuity"]
        if self.lost and not wants_new:
            claim = ContinuityClaim(
                verdict=VerdictToken.GAP,
                why=Why.TRIMMED,
                next=Next.RECONCILE,
                epoch=self.epoch,
                first=2,
                last=5,
            )
            await wire.refuse(409, {"stream-continuity": write_claim(claim)})
            return
        self.lost = False
        claim, position = self._claim(exchange.headers.get("last-event-id"), wants_new)
        await wire.stream({"stream-continuity": write_claim(claim)})
        await wire.raw(write_comment(claim))
        while True:
            grown = self.grown
            while position < self.last:
                position += 1
                await wire.event(note(position, "notifications/stock"), event_id=self.id_of(position))
            await grown.wait()
            if self._is_cutting:
                self._is_cutting = False
                await wire.cut()
                return

    def cut(self) -> None:
        """Break the connection that reads the log now."""
        self._is_cutting = True
        self._wake()

    def _wake(self) -> None:
        self.grown.set()
        self.grown = anyio.Event()


@asynccontextmanager
async def connected(
    session: ScriptedSession, ledger: Any, **options: Any
) -> AsyncIterator[tuple[Connection, str]]:
    async with open_scripted(session) as server:
        options = {"reconnect": QUICK, "standalone": session.play_get is not None, **options}
        async with connect(server.url, ledger=ledger, **options) as connection:
            yield connection, server.url


# --- keyed calls


async def test_one_key_is_sent_once_and_gives_its_result_again_in_a_later_process(tmp_path: Path) -> None:
    session = ScriptedSession()
    with anyio.fail_after(15):
        async with open_scripted(session) as server:
            for _ in range(3):
                async with (
                    SqliteLedger(tmp_path / "calls.db") as ledger,
                    connect(server.url, ledger=ledger, standalone=False) as connection,
                ):
                    for _ in range(2):
                        result = await connection.request("tools/call", ORDER, idempotency_key="order-17")
                        assert result["content"][0]["text"] == "done"
    assert len(session.calls) == 1
    own = session.calls[0]["params"]["_meta"][CALL_META]
    assert (own["v"], own["on_disconnect"]) == (1, "detach")
    assert "order-17" not in own["key"]
    assert len(own["key"]) == 32
    # The session was joined again, not opened anew.
    assert session.ended == 0


async def test_a_key_with_other_arguments_is_a_conflict_and_nothing_is_sent() -> None:
    session = ScriptedSession()
    with anyio.fail_after(10):
        async with MemoryLedger() as ledger, connected(session, ledger) as (connection, _):
            await connection.request("tools/call", ORDER, idempotency_key="k")
            other = {"name": "order", "arguments": {"sku": "B2"}}
            with pytest.raises(KeyConflict):
                await connection.request("tools/call", other, idempotency_key="k")
            again = {"arguments": {"sku": "A1"}, "name": "order", "_meta": {"progressToken": 1}}
            await connection.request("tools/call", again, idempotency_key="k")
    assert len(session.calls) == 1


async def test_a_failed_call_stays_failed_and_not_applied_frees_its_key() -> None:
    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        if message["params"]["name"] == "fail":
            error = {"code": -7, "message": "no", "data": {"x": 1}}
            await wire.json({"jsonrpc": "2.0", "id": message["id"], "error": error})
        elif len(session.calls) < 4:
            await wire.refuse(429)
        else:
            await wire.json(result_of(message["id"]))

    session = ScriptedSession(play)
    with anyio.fail_after(10):
        async with MemoryLedger() as ledger, connected(session, ledger) as (connection, _):
            for _ in range(2):
                with pytest.raises(RequestFailed) as failed:
                    await connection.request("tools/call", {"name": "fail"}, idempotency_key="f")
                assert (failed.value.code, failed.value.data) == (-7, {"x": 1})
            for _ in range(2):
                with pytest.raises(NotApplied):
                    await connection.request("tools/call", ORDER, idempotency_key="o")
            assert await connection.request("tools/call", ORDER, idempotency_key="o")
    assert len(session.calls) == 4


async def test_a_lost_call_is_not_sent_again_to_a_server_that_honours_no_keys() -> None:
    async def play(_exchange: Exchange, wire: Wire, _message: Any) -> None:
        await wire.cut()

    session = ScriptedSession(play)
    with anyio.fail_after(10):
        async with MemoryLedger() as ledger, connected(session, ledger) as (connection, _):
            for _ in range(2):
                with pytest.raises(Indeterminate) as doubt:
                    await connection.request("tools/call", ORDER, idempotency_key="order-17")
                assert doubt.value.idempotency_key == "order-17"
            doubtful = [entry async for entry in ledger.indeterminate()]
            assert [entry.idempotency_key for entry in doubtful] == ["order-17"]
            await ledger.resolve(doubtful[0], "not_applied", note="not in the warehouse")
            with pytest.raises(Indeterminate):
                await connection.request("tools/call", ORDER, idempotency_key="order-17")
    assert len(session.calls) == 2


async def cut_twice_then_answer(session: ScriptedSession, wire: Wire, message: Any) -> None:
    if len(session.calls) < 3:
        await wire.cut()
    else:
        await wire.json(result_of(message["id"]), headers=OFFERED)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_lost_call_is_sent_again_under_a_new_id_to_a_server_that_offered(revision: str) -> None:
    """Decision L12: also when it was cut before the head, so that nothing acknowledged its key."""

    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await cut_twice_then_answer(session, wire, message)

    session = ScriptedSession(play, revision=revision, headers=OFFERED)
    with anyio.fail_after(10):
        async with (
            MemoryLedger() as ledger,
            connected(session, ledger, revision=revision) as (connection, _),
        ):
            assert await connection.request("tools/call", ORDER, idempotency_key="k")
    assert len({message["id"] for message in session.calls}) == 3
    assert len({message["params"]["_meta"][CALL_META]["key"] for message in session.calls}) == 1


async def test_a_lost_call_that_may_be_repeated_is_sent_again() -> None:
    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await cut_twice_then_answer(session, wire, message)

    session = ScriptedSession(play, revision="2026-07-28")
    with anyio.fail_after(10):
        async with (
            MemoryLedger() as ledger,
            connected(session, ledger, revision="2026-07-28") as (connection, _),
        ):
            assert await connection.request("tools/call", ORDER, idempotency_key="k", may_repeat=True)
    assert len(session.calls) == 3


async def test_equal_keys_at_the_same_time_are_sent_once() -> None:
    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await anyio.sleep(0.05)
        await wire.json(result_of(message["id"]))

    session = ScriptedSession(play)
    results: list[Any] = []
    with anyio.fail_after(10):
        async with MemoryLedger() as ledger, connected(session, ledger) as (connection, _):

            async def ask() -> None:
                results.append(await connection.request("tools/call", ORDER, idempotency_key="k"))

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(ask)
    assert len(session.calls) == 1
    assert len(results) == 5


async def test_cancelling_the_wait_for_a_keyed_call_sends_nothing_and_the_ledger_gets_its_outcome() -> None:
    answered = anyio.Event()

    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        await answered.wait()
        await wire.json(result_of(message["id"]))

    session = ScriptedSession(play)
    with anyio.fail_after(10):
        async with MemoryLedger() as ledger, connected(session, ledger) as (connection, _):
            with anyio.move_on_after(0.05):
                await connection.request("tools/call", ORDER, idempotency_key="k")
            answered.set()
            assert await connection.request("tools/call", ORDER, idempotency_key="k")
    assert len(session.calls) == 1
    assert [message for message in session.posted if message["method"] == "notifications/cancelled"] == []


async def test_a_question_is_kept_for_an_equal_round_and_another_round_is_sent() -> None:
    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        if "inputResponses" in message["params"]:
            await wire.json(result_of(message["id"]))
        else:
            asked = {"resultType": "input_required", "inputRequests": {"q": 1}, "requestState": "s"}
            await wire.json({"jsonrpc": "2.0", "id": message["id"], "result": asked})

    session = ScriptedSession(play, revision="2026-07-28")
    with anyio.fail_after(10):
        async with (
            MemoryLedger() as ledger,
            connected(session, ledger, revision="2026-07-28") as (connection, _),
        ):
            for _ in range(2):
                question = await connection.request("tools/call", ORDER, idempotency_key="k")
                assert question["resultType"] == "input_required"
            answer = {**ORDER, "inputResponses": {"q": 2}, "requestState": "s"}
            result = await connection.request("tools/call", answer, idempotency_key="k")
            assert result["content"][0]["text"] == "done"
    assert len(session.calls) == 2


# --- events


def count_stock(handlers: Handlers, applied: list[int]) -> None:
    @handlers.on("notifications/stock", kind="idempotent")
    async def stock(delivery: Delivery, *, idempotency_key: str) -> None:
        applied.append(delivery.params["data"])


async def test_every_event_is_applied_once_in_order_through_cuts_and_restarts(tmp_path: Path) -> None:
    log = Log()
    session = ScriptedSession(None, log.play)
    applied: list[int] = []
    handlers = Handlers()
    count_stock(handlers, applied)
    with anyio.fail_after(20):
        async with open_scripted(session) as server:
            for turn in range(1, 4):
                async with (
                    SqliteLedger(tmp_path / "shop.db") as ledger,
                    connect(server.url, ledger=ledger, handlers=handlers, reconnect=QUICK),
                ):
                    log.append(5)
                    await until(lambda turn=turn: len(applied) == 5 * turn)
    assert applied == list(range(1, 16))
    asked = [get.headers.get("last-event-id") for get in session.gets]
    assert asked == [None, log.id_of(5), log.id_of(10)]


async def test_a_lost_standalone_stream_waits_until_its_loss_is_accepted() -> None:
    log = Log()
    session = ScriptedSession(None, log.play)
    applied: list[int] = []
    handlers = Handlers()
    count_stock(handlers, applied)
    with anyio.fail_after(10):
        async with (
            MemoryLedger() as ledger,
            open_scripted(session) as server,
            connect(server.url, ledger=ledger, handlers=handlers, reconnect=QUICK) as connection,
        ):
            log.append()
            await until(lambda: applied == [1])
            log.lost = True
            log.cut()
            with pytest.raises(StreamLost) as lost:
                await connection.run()
            assert (lost.value.stream, lost.value.verdict.why) == ("standalone", Why.TRIMMED)  # type: ignore[attr-defined]
            assert connection.waiting_streams == ("standalone",)
            connection.accept(lost.value.stream)
            await until(lambda: len(session.gets) >= 3)
            log.append()
            await until(lambda: applied == [1, 2])


async def test_a_failing_handler_stops_its_stream_and_accepting_goes_on_behind_it() -> None:
    log = Log()
    session = ScriptedSession(None, log.play)
    applied: list[int] = []
    handlers = Handlers()

    @handlers.on("notifications/stock", kind="at_most_once")
    async def stock(delivery: Delivery) -> None:
        applied.append(delivery.params["data"])
        if delivery.params["data"] == 2:
            raise RuntimeError("the warehouse burns")

    with anyio.fail_after(10):
        async with (
            MemoryLedger() as ledger,
            connected(session, ledger, handlers=handlers) as (connection, _),
        ):
            log.append(4)
            with pytest.raises(DeliveryStopped) as stopped:
                await connection.run()
            assert applied == [1, 2]
            assert stopped.value.report.outcome == "indeterminate"  # type: ignore[attr-defined]
            connection.accept("standalone")
            await until(lambda: applied == [1, 2, 3, 4])
            doubtful = [entry.label async for entry in ledger.indeterminate()]
            assert doubtful == ["notifications/stock"]


async def test_a_kind_that_is_unsafe_on_the_ledger_is_refused_at_the_start() -> None:
    handlers = Handlers()

    @handlers.on("notifications/stock", kind="transactional")
    def stock(_transaction: Any, _delivery: Delivery) -> None:
        return

    session = ScriptedSession()
    async with open_scripted(session) as server:
        with pytest.raises(UnsafeHandler):
            async with connect(server.url, handlers=handlers):
                pass
    assert server.exchanges == []


# --- kill -9

CHILD = """
import sys, anyio, counterfoil
from counterfoil.decisions.reconnect import ReconnectLimits

url, database, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
handlers = counterfoil.Handlers()

@handlers.on("notifications/stock", kind="transactional")
def stock(transaction, delivery):
    transaction.execute("create table if not exists stock (number integer)")
    transaction.execute("insert into stock values (?)", (delivery.params["data"],))

async def main():
    async with (
        counterfoil.SqliteLedger(database) as ledger,
        counterfoil.connect(url, ledger=ledger, handlers=handlers) as connection,
    ):
        print("ready", flush=True)
        result = await connection.request("tools/call", {"name": "slow"}, idempotency_key="call-1")
        print("answered", flush=True)
        await anyio.sleep_forever()

anyio.run(main, backend=sys.argv[4])
"""


async def test_kill_minus_nine_loses_and_doubles_nothing(
    tmp_path: Path, anyio_backend: str, scaled: Any
) -> None:
    """The events' effects are rows of the same database; the call's answer comes after the third death."""
    log = Log()
    turns = scaled(4, 40)
    answering = anyio.Event()
    call_log = Log()
    call_log.token = StreamToken.mint(kind="call", random=bytes([7] * 12))
    request_ids: list[Any] = []

    async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
        request_ids.append(message["id"])
        claim = ContinuityClaim(verdict=VerdictToken.NEW, epoch=log.epoch, after=0)
        await wire.stream({"stream-continuity": write_claim(claim)})
        await wire.event(event_id=call_log.id_of(0))

    async def play_get(exchange: Exchange, wire: Wire) -> None:
        text = exchange.headers.get("last-event-id")
        if text is None or EventId.parse(text).stream == log.token:
            await log.play(exchange, wire)
            return
        claim, _ = call_log._claim(text, False)
        await wire.stream({"stream-continuity": write_claim(claim)})
        await answering.wait()
        call_log.append()
        await wire.event(result_of(request_ids[0]), event_id=call_log.id_of(1))
        await wire.end()

    session = ScriptedSession(play, play_get)
    database = tmp_path / "shop.db"
    known = 0
    with anyio.fail_after(20 + 4 * turns):
        async with open_scripted(session) as server:
            for turn in range(1, turns + 1):
                command = [
                    sys.executable,
                    "-W",
                    "ignore",
                    "-c",
                    CHILD,
                    server.url,
                    str(database),
                    "1",
                    anyio_backend,
                ]
                async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None) as child:
                    assert child.stdout is not None
                    said = BufferedByteReceiveStream(child.stdout)
                    assert await said.receive_until(b"\n", 100) == b"ready"
                    log.append(20)
                    if turn == 3:
                        answering.set()
                    if turn >= 3:
                        assert await said.receive_until(b"\n", 100) == b"answered"
                    else:
                        await until(lambda: bool(request_ids))
                        await anyio.sleep(0.02 * turn)
                    # Three deaths at one event would be taken for its fault (decision L22).
                    await until(lambda known=known: count_rows(database) > known)
                    known = count_rows(database)
                    child.kill()
                    await child.wait()
            async with (
                SqliteLedger(database) as ledger,
                connect(server.url, ledger=ledger, handlers=handlers_of_stock()),
            ):
                await until(lambda: count_rows(database) >= log.last)
                assert [entry async for entry in ledger.indeterminate()] == []
    assert rows_of(database) == list(range(1, log.last + 1))
    assert len(request_ids) == 1


def handlers_of_stock() -> Handlers:
    handlers = Handlers()

    @handlers.on("notifications/stock", kind="transactional")
    def stock(transaction: Any, delivery: Delivery) -> None:
        transaction.execute("create table if not exists stock (number integer)")
        transaction.execute("insert into stock values (?)", (delivery.params["data"],))

    return handlers


def rows_of(database: Path) -> list[int]:
    import sqlite3

    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return [row[0] for row in connection.execute("select number from stock order by rowid")]
    except sqlite3.OperationalError:
        return []  # no event was handled yet
    finally:
        connection.close()


def count_rows(database: Path) -> int:
    return len(rows_of(database))
