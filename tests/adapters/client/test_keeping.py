"""What the ledger keeps of a connection's streams is bounded: those that have ended are forgotten in time."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from counterfoil.adapters.client.opening import connect
from counterfoil.handlers import Delivery, Handlers
from counterfoil.stores.ledger_sqlite import SqliteLedger
from counterfoil.testing.exchanges import Exchange
from counterfoil.testing.scripted import Wire, open_scripted
from counterfoil.testing.scripted_mcp import ScriptedSession, note, result_of

pytestmark = pytest.mark.anyio
DAY_S = 86_400


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


async def play(_exchange: Exchange, wire: Wire, message: Any) -> None:
    await wire.stream()
    await wire.event(event_id=f"p-{message['id']}")
    await wire.event(note(1), event_id=f"n-{message['id']}")
    await wire.event(result_of(message["id"]), event_id=f"a-{message['id']}")
    await wire.end()


def streams_in(database: Path) -> int:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return int(connection.execute("select count(*) from counterfoil_streams").fetchone()[0])
    finally:
        connection.close()


async def test_marks_of_answered_calls_are_forgotten_and_the_sessions_are_not(tmp_path: Path) -> None:
    clock, database, handled = Clock(), tmp_path / "calls.db", []
    handlers = Handlers()

    @handlers.on("notifications/message", kind="idempotent")
    async def take(delivery: Delivery, *, idempotency_key: str) -> None:
        handled.append(idempotency_key)

    with anyio.fail_after(20):
        async with (
            open_scripted(ScriptedSession(play)) as server,
            SqliteLedger(database, clock=clock) as ledger,
            connect(server.url, ledger=ledger, handlers=handlers, standalone=False) as connection,
        ):

            async def call(day: int) -> None:
                await connection.request("tools/call", {"n": day}, idempotency_key=f"k-{day}")
                await connection.request("tools/call", {"n": day})
                while len(handled) < 2 * (day + 1):  # noqa: ASYNC110 - handlers run beside the calls
                    await anyio.sleep(0.005)

            await call(0)
            # One commit more, behind the ends.
            await connection.request("tools/call", idempotency_key="other")
            after_one_day = streams_in(database)
            for day in range(1, 6):
                clock.now += 2 * DAY_S
                await call(day)
            await connection.request("tools/call", idempotency_key="last")
            after_six = streams_in(database)
    assert len(set(handled)) == len(handled)
    # What was not swept yet may still be there; six times as much would be.
    assert after_six < 3 * after_one_day
