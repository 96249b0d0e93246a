"""Make the golden ledger of this release: `python make_ledger_sample.py FILE`.

Run once for a released format, never again for the same one: what it wrote is history.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from counterfoil import Scope, SqliteLedger
from counterfoil.model.ledger_keys import CallKey, EventPlace, LedgerKey, PayloadKey
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_blocking import BlockingLedger

SCOPE = Scope(tenant="acme", principal="alice", session="s-1")
NOW_S = 1_800_000_000.0


def place(position: int, *, stream: str = "orders", foreign: bool = False) -> EventPlace:
    return EventPlace(
        server="https://mcp.example/mcp",
        stream=stream,
        epoch="epoch-1",
        position=position,
        event_id=f"id-{position}",
        digest=f"digest-{position}",
        foreign=foreign,
    )


def claim(ledger: BlockingLedger, key: LedgerKey, kind: RowKind, **more: object) -> Claimed:
    answer = ledger.claim(Intent(scope=SCOPE, key=key, kind=kind, **more))  # type: ignore[arg-type]
    assert isinstance(answer, Claimed)
    return answer


def call(name: str) -> CallKey:
    return CallKey(route="https://mcp.example/mcp", key=name)


def main() -> None:
    path = Path(sys.argv[1])
    path.unlink(missing_ok=True)
    shop = sqlite3.connect(path)
    shop.execute("create table stock (sku text primary key, level int)")
    shop.close()
    now = [NOW_S]
    with SqliteLedger(path, clock=lambda: now[0]).blocking() as ledger:
        old = claim(ledger, call("forgotten"), RowKind.CALL, fingerprint=b"f" * 16, label="tools/call order")
        ledger.settle(old, Settlement(outcome=OutcomeToken.COMPLETED, result=b'{"id":1}'))
        now[0] += 86_401
        for position in (1, 2):
            ledger.apply(
                Intent(
                    scope=SCOPE, key=place(position), kind=RowKind.TRANSACTIONAL, label="notifications/stock"
                ),
                lambda transaction: transaction.execute("insert into stock values (hex(randomblob(4)), 1)"),
            )
        parked = claim(ledger, place(3), RowKind.AT_MOST_ONCE, label="notifications/alert")
        ledger.settle(
            parked,
            Settlement(
                outcome=OutcomeToken.INDETERMINATE, why="exception", evidence="it raised", parked=True
            ),
        )
        ahead = claim(ledger, place(5), RowKind.IDEMPOTENT)
        ledger.settle(ahead, Settlement(outcome=OutcomeToken.FAILED, why="attempts", parked=True))
        claim(ledger, place(4), RowKind.AT_MOST_ONCE, label="notifications/alert")
        named = claim(
            ledger,
            place(1, stream="foreign", foreign=True),
            RowKind.IDEMPOTENT,
            payload_key=PayloadKey(server="https://mcp.example/mcp", key="task-9"),
        )
        ledger.settle(named, Settlement(outcome=OutcomeToken.COMPLETED))
        done = claim(ledger, call("done"), RowKind.CALL, fingerprint=b"d" * 16, label="tools/call order")
        ledger.settle(done, Settlement(outcome=OutcomeToken.COMPLETED, result=b'{"id":2}'))
        freed = claim(ledger, call("freed"), RowKind.CALL)
        ledger.settle(freed, Settlement(outcome=OutcomeToken.NOT_APPLIED, why="unsent"))
        ledger.release(claim(ledger, call("released"), RowKind.CALL))
        waiting = claim(ledger, call("asked"), RowKind.CALL, round=b"r" * 16)
        ledger.await_input(waiting, b'{"question":1}')
        cancelled = claim(ledger, call("cancelled"), RowKind.CALL)
        ledger.begin_cancelling(cancelled)
        ledger.begin_stream(SCOPE, place(9, stream="standalone"), ended="superseded", record=b"client's")
    shop = sqlite3.connect(path)
    shop.execute("pragma journal_mode = delete")
    shop.execute("vacuum")
    shop.close()
    path.with_name(path.name + "-counterfoil-owner").unlink()


if __name__ == "__main__":
    main()
