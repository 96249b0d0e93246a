"""A ledger that was released is read for ever; `docs/disk.md` suffices to read one without this package."""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from counterfoil import Scope, SqliteLedger
from counterfoil.errors import LedgerSchemaNewer
from counterfoil.model.ledger_keys import CallKey, EventPlace
from counterfoil.model.ledger_rows import LedgerRow, RowKind, StreamMark
from counterfoil.model.ledger_verdicts import Asked, Claimed, Expired, Known
from counterfoil.protocol.ledger_steps import Intent
from counterfoil.stores.ledger_sqlite import schema
from counterfoil.stores.ledger_sqlite.reading import LedgerReader

V1 = Path(__file__).resolve().parent / "v1" / "ledger.db"
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "disk.md").read_text()
#: A sample that was released is history: a new form gets a new file, never an edit here.
PINNED = "86ecf80fa9bcebbb673175899be799ec7731ad250a6dff5d9467a5eff97a9e98"
SCOPE = Scope(tenant="acme", principal="alice", session="s-1")
SERVER = "https://mcp.example/mcp"
NOW_S = 1_800_000_000.0 + 86_500


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A copy, because opening a database may write beside it."""
    return Path(shutil.copy(V1, tmp_path / "ledger.db"))


def call(name: str, **more: Any) -> Intent:
    return Intent(scope=SCOPE, key=CallKey(route=SERVER, key=name), kind=RowKind.CALL, **more)


def event(position: int, stream: str = "orders", kind: RowKind = RowKind.AT_MOST_ONCE) -> Intent:
    place = EventPlace(
        server=SERVER,
        stream=stream,
        epoch="epoch-1",
        position=position,
        event_id=f"id-{position}",
        foreign=stream == "foreign",
    )
    return Intent(scope=SCOPE, key=place, kind=kind)


def test_the_sample_is_the_one_that_was_released() -> None:
    assert hashlib.sha256(V1.read_bytes()).hexdigest() == PINNED


def test_the_released_ledger_means_what_it_meant(sample: Path) -> None:
    with LedgerReader(sample) as reader:
        assert list(reader.problems()) == []
        assert {entry.idempotency_key for entry in reader.indeterminate()} == {"cancelled", "3", "4"}
    with SqliteLedger(sample, clock=lambda: NOW_S).blocking() as ledger:
        mark = ledger.mark(SCOPE, server=SERVER, stream="orders")
        assert mark is not None
        assert (mark.processed, mark.event_id, mark.digest) == (3, "id-3", "digest-3")
        assert [one.position for one in mark.ahead] == [5]
        for position in (1, 2, 3, 5):
            assert isinstance(ledger.claim(event(position)), Known)
        foreign = ledger.claim(event(9, "foreign", RowKind.IDEMPOTENT))
        assert isinstance(foreign, Claimed)
        assert isinstance(ledger.claim(event(1, "foreign", RowKind.IDEMPOTENT)), Known)
        done = ledger.claim(call("done", fingerprint=b"d" * 16))
        assert isinstance(done, Known)
        assert done.row is not None
        assert done.row.result == b'{"id":2}'
        assert isinstance(ledger.claim(call("forgotten")), Expired)
        assert isinstance(ledger.claim(call("asked", round=b"r" * 16)), Asked)
        for name in ("freed", "released"):
            again = ledger.claim(call(name))
            assert isinstance(again, Claimed)
            assert again.attempt == 2
        orphan = ledger.claim(event(4))
        assert isinstance(orphan, Known)
        assert orphan.fresh
        mark = ledger.mark(SCOPE, server=SERVER, stream="orders")
        assert mark is not None
        assert mark.processed == 5
        ended = ledger.mark(SCOPE, server=SERVER, stream="standalone")
        assert ended is not None
        assert (ended.processed, ended.ended, ended.record) == (9, "superseded", b"client's")


def test_a_newer_one_is_refused_by_name(sample: Path) -> None:
    shop = sqlite3.connect(sample)
    shop.execute("update counterfoil_meta set schema_version = schema_version + 1")
    shop.commit()
    shop.close()
    with pytest.raises(LedgerSchemaNewer, match="schema 2"), LedgerReader(sample):
        raise AssertionError("must not open")


def fields_on_the_page(name: str) -> list[str]:
    table = PAGE.split(f"<!-- fields: {name} -->\n")[1].split("\n\n")[0]
    return re.findall(r"^\| \d+ \| `(\w+)` \|", table, re.MULTILINE)


@pytest.mark.parametrize("record", [LedgerRow, StreamMark])
def test_the_page_lists_every_field_in_its_place(record: type[msgspec.Struct]) -> None:
    assert fields_on_the_page(record.__name__) == list(record.__struct_fields__)


def test_the_page_lists_every_column(sample: Path) -> None:
    shop = sqlite3.connect(sample)
    shop.execute("create table other (x)")
    for table in ("counterfoil_meta", "counterfoil_rows", "counterfoil_streams"):
        columns = [row[1] for row in shop.execute(f"pragma table_info({table})")]
        part = PAGE.split(f"| `{table}` |")[1].split("| `counterfoil_")[0]
        assert re.findall(r"^(?:\|)? ?\|? ?`(\w+)` \| [A-Z]+ \|", part, re.MULTILINE) == columns
    shop.close()
    assert f"`schema_version` | INTEGER | {schema.SCHEMA_VERSION} |" in PAGE


def test_the_page_suffices_to_read_a_ledger(sample: Path) -> None:
    """Another reader, from the page alone: SQLite and MessagePack, nothing of ours."""
    names = {kind: fields_on_the_page(kind) for kind in ("LedgerRow", "StreamMark")}

    def record(kind: str, stored: bytes) -> dict[str, Any]:
        assert stored[0] == 1
        return named(kind, msgspec.msgpack.decode(stored[1:]))

    def named(kind: str, values: list[Any]) -> dict[str, Any]:
        # An older record is shorter: fields are only ever added at the end.
        assert len(values) <= len(names[kind])
        return dict(zip(names[kind], values, strict=False))

    shop = sqlite3.connect(sample)
    rows = {}
    for key, state, outcome, body in shop.execute("select key, state, outcome, body from counterfoil_rows"):
        parts, row = msgspec.msgpack.decode(key), record("LedgerRow", body)
        assert (row["state"], row["outcome"]) == (state, outcome)
        rows[parts[0], parts[-1]] = row
    marks = {
        msgspec.msgpack.decode(key)[-1]: record("StreamMark", body)
        for key, body in shop.execute("select key, body from counterfoil_streams")
    }
    shop.close()
    assert rows["call", "done"]["result"] == b'{"id":2}'
    assert rows["call", "forgotten"]["state"] == "tombstone"
    assert rows["call", "asked"]["question"] == b'{"question":1}'
    assert rows["event", 4]["event_id"] == "id-4"
    assert rows["payload", "task-9"]["outcome"] == "completed"
    assert rows["foreign", "id-1"]["payload_key"] is not None
    orders = marks["orders"]
    last = named("LedgerRow", orders["last"])
    assert (orders["processed"], last["position"], last["commit"]) == (3, 3, orders["commit"])
    assert orders["ahead"][0][:2] == [5, "id-5"]
    assert marks["standalone"]["record"] == b"client's"
