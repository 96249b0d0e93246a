"""`counterfoil ledger`: an operator sees why a call was not run again, and settles what nobody else can."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from counterfoil import Scope
from counterfoil.cli import main
from counterfoil.model.ledger_keys import CallKey, EventPlace, UnkeyedCall
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_sqlite import SqliteLedger

SCOPE = Scope(tenant="t", principal="alice")
DOUBT = Settlement(outcome=OutcomeToken.INDETERMINATE, why="cut", evidence="no answer came", parked=True)


def call(key: str) -> Intent:
    return Intent(
        scope=SCOPE, key=CallKey(route="https://shop", key=key), kind=RowKind.CALL, label="tools/call order"
    )


def event(position: int, kind: RowKind = RowKind.AT_MOST_ONCE) -> Intent:
    place = EventPlace(
        server="https://shop", stream="st", epoch="e", position=position, event_id=f"id{position}"
    )
    return Intent(scope=SCOPE, key=place, kind=kind, label="notifications/stock")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with one of everything: completed, in doubt, left behind by a process that ended."""
    path = tmp_path / "calls.db"
    with SqliteLedger(path).blocking() as ledger:
        for position in (1, 2):
            run = ledger.claim(event(position))
            assert isinstance(run, Claimed)
            ledger.settle(run, Settlement(outcome=OutcomeToken.COMPLETED))
        doubt = ledger.claim(call("order-17"))
        assert isinstance(doubt, Claimed)
        ledger.settle(doubt, DOUBT)
        done = ledger.claim(call("order-18"))
        assert isinstance(done, Claimed)
        ledger.settle(done, Settlement(outcome=OutcomeToken.COMPLETED, result=b"secret answer"))
        ledger.claim(event(3))
    return path


def run_ledger(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main(["ledger", *map(str, words)])
    out = capsys.readouterr()
    return code, out.out, out.err


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_show_says_what_became_of_each_key_and_how_far_streams_are(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_ledger(capsys, "show", path)
    assert code == 0
    assert "stream st  at https://shop  for t/alice/-: processed to 2" in out
    assert "indeterminate  call order-17  at https://shop  for t/alice/-" in out
    assert "why: cut: no answer came" in out
    assert "tools/call order, call, attempt 1" in out
    assert "secret answer" not in out
    _, out, _ = run_ledger(capsys, "show", path, "--json")
    found = records(out)
    assert {one["what"] for one in found} == {"stream", "call", "event"}
    assert "secret answer" not in out
    _, out, _ = run_ledger(capsys, "show", path, "--json", "--key", "order-18")
    (only,) = records(out)
    assert (only["idempotency_key"], only["outcome"]) == ("order-18", "completed")


def test_indeterminate_lists_what_waits_for_a_person_beside_a_living_owner(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """L26: a reader is welcome, and an intent of the living owner is a run in progress."""
    code, out, _ = run_ledger(capsys, "indeterminate", path, "--json")
    assert code == 0
    assert [one["idempotency_key"] for one in records(out)] == ["order-17", "3"]
    with SqliteLedger(path).blocking() as ledger:
        ledger.claim(call("running"))
        _, out, _ = run_ledger(capsys, "indeterminate", path, "--json")
        assert [one["idempotency_key"] for one in records(out)] == ["order-17", "3"]


def test_nothing_in_doubt_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SqliteLedger(tmp_path / "l.db").blocking():
        pass
    assert run_ledger(capsys, "indeterminate", tmp_path / "l.db") == (0, "nothing waits for a person\n", "")


def test_resolve_settles_by_name_or_key_and_keeps_the_note(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run_ledger(capsys, "indeterminate", path, "--json")
    by_key = {one["idempotency_key"]: one["name"] for one in records(out)}
    code, out, _ = run_ledger(
        capsys, "resolve", path, by_key["order-17"][:10], "completed", "--note", "seen in the store"
    )
    assert code == 0
    assert "note: seen in the store" in out
    code, _, _ = run_ledger(capsys, "resolve", path, "3", "not_applied", "--note", "asked them")
    assert code == 0
    _, out, _ = run_ledger(capsys, "indeterminate", path)
    assert out == "nothing waits for a person\n"
    with SqliteLedger(path).blocking() as ledger:
        assert isinstance(ledger.claim(event(3)), Claimed)
    code, _, err = run_ledger(capsys, "resolve", path, "order-17", "failed", "--note", "n")
    assert code == 2
    assert "ledger indeterminate" in err


def test_resolve_beside_a_living_owner_is_done_by_the_owner(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """L26: `resolve` goes through the owner; `show` reads beside it, `recover` never does."""
    with SqliteLedger(path).blocking() as ledger:
        code, out, _ = run_ledger(
            capsys, "resolve", path, "order-17", "completed", "--note", "seen in the store"
        )
        assert code == 0
        assert "note: seen in the store" in out
        assert [one.idempotency_key for one in ledger.indeterminate()] == ["3"]
        code, out, _ = run_ledger(capsys, "show", path, "--key", "order-17", "--json")
        assert (code, records(out)[0]["outcome"]) == (0, "completed")
        code, _, err = run_ledger(capsys, "resolve", path, "order-17", "failed", "--note", "n")
        assert code == 2
        assert "ledger indeterminate" in err
        code, _, err = run_ledger(capsys, "recover", path)
        assert code == 2
        assert "owns the database" in err


def test_an_ambiguous_name_is_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_ledger(capsys, "resolve", path, "", "completed", "--note", "n")
    assert code == 2
    assert "give more letters" in err


def test_check_proves_every_cursor_and_finds_what_was_tampered_with(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """L25: proof of atomicity is checked, not declared."""
    code, out, _ = run_ledger(capsys, "check", path)
    assert (code, out) == (0, "sound: 1 cursors, each written with the outcome at its mark\n")
    shop = sqlite3.connect(path)
    (body,) = shop.execute("select body from counterfoil_streams").fetchone()
    shop.execute("update counterfoil_streams set body = ?", (body.replace(b"\x02\xa3id2", b"\x01\xa3id2"),))
    shop.execute("update counterfoil_rows set state = 'released' where state = 'intended'")
    shop.commit()
    shop.close()
    code, out, _ = run_ledger(capsys, "check", path, "--json")
    assert code == 1
    problems = json.loads(out)["problems"]
    assert len(problems) == 2
    assert "the mark stands at 1" in problems[0]
    assert run_ledger(capsys, "check", path)[0] == 1


def test_recover_drops_cursors_and_doubts_every_intent(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """L31: after a restore the ledger knows less than the world; keys and local epochs stay."""
    code, out, _ = run_ledger(capsys, "recover", path)
    assert (code, out) == (0, "1 cursors dropped, 1 intents are indeterminate now\n")
    with SqliteLedger(path).blocking() as ledger:
        mark = ledger.mark(SCOPE, server="https://shop", stream="st")
        assert mark is not None
        assert (mark.epoch, mark.processed, mark.event_id, mark.digest) == ("e", 3, "", "")
        entries = {entry.idempotency_key: entry.why for entry in ledger.indeterminate()}
        assert entries == {"order-17": "cut", "3": "restored"}
    assert run_ledger(capsys, "check", path)[0] == 0
    assert json.loads(run_ledger(capsys, "recover", path, "--json")[1]) == {"doubts": 0, "streams": 1}


@pytest.mark.parametrize("action", ["show", "indeterminate", "check", "recover"])
def test_a_file_that_is_no_ledger_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    code, _, err = run_ledger(capsys, action, tmp_path / "missing.db")
    assert code == 2
    assert "there is no file" in err
    (tmp_path / "text.db").write_text("not a database, only words in a file " * 200)
    code, _, err = run_ledger(capsys, action, tmp_path / "text.db")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "missing.db").exists()
    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.execute("create table stock (sku text)")
    shop.close()
    code, _, err = run_ledger(capsys, action, tmp_path / "shop.db")
    assert code == 2
    assert "holds no ledger" in err


def test_after_an_unclean_end_the_reader_says_that_rows_are_not_confirmed(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """L30."""
    shop = sqlite3.connect(path)
    shop.execute("update counterfoil_meta set clean = 0")
    shop.commit()
    shop.close()
    assert "ended uncleanly" in run_ledger(capsys, "show", path)[1]


def test_unkeyed_calls_are_listed_until_their_answer_was_handed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.db"

    def unkeyed(number: str) -> Intent:
        key = UnkeyedCall(route="/mcp", identity=b"i" * 32, number=number)
        return Intent(scope=SCOPE, key=key, kind=RowKind.CALL, label="order")

    ledger = SqliteLedger(path)
    with ledger.blocking() as writer:
        answered = Settlement(outcome=OutcomeToken.COMPLETED, result=b"secret answer")
        for number in ("kept", "delivered", "adopted"):
            run = writer.claim(unkeyed(number))
            assert isinstance(run, Claimed)
            writer.settle(run, answered)
            if number == "adopted":
                ledger.note_adopted(run).wait_blocking()
            if number != "kept":
                ledger.close_call(run).wait_blocking()
        run = writer.claim(unkeyed("doubtful"))
        assert isinstance(run, Claimed)
        writer.settle(run, Settlement(outcome=OutcomeToken.INDETERMINATE, why="closed"))
    _, out, _ = run_ledger(capsys, "indeterminate", path, "--json")
    assert [one["idempotency_key"] for one in records(out)] == ["doubtful"]
    _, out, _ = run_ledger(capsys, "undelivered", path, "--json")
    assert [one["idempotency_key"] for one in records(out)] == ["kept"]
    _, out, _ = run_ledger(capsys, "adopted", path)
    assert "unkeyed adopted  at /mcp  for t/alice/-" in out
    assert "order, call, attempt 1, adopted 1×, handed over" in out
    assert "secret answer" not in out
    _, out, _ = run_ledger(capsys, "show", path, "--json")
    assert {one["idempotency_key"] for one in records(out)} == {"kept", "adopted", "doubtful"}


def test_lists_say_so_when_there_is_nothing(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ledger(capsys, "undelivered", path)[1] == "every answer was handed over\n"
    assert run_ledger(capsys, "adopted", path)[1] == "no call was taken over\n"
