"""An operator settles an entry of a ledger whose owner lives: the owner does it, and nobody else can ask."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from counterfoil import Scope, SqliteLedger
from counterfoil.errors import LedgerError, LedgerFailed, LedgerInUse
from counterfoil.model.ledger_keys import CallKey
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import Claimed
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent, Settlement
from counterfoil.stores.ledger_sqlite import owner_door
from counterfoil.stores.ledger_sqlite.owner_door import ResolveRequest, ask_owner, door_path

SCOPE = Scope(principal="alice")
DOUBT = Settlement(outcome=OutcomeToken.INDETERMINATE, why="cut", parked=True)
OWNER = """
import sys, time
from counterfoil import SqliteLedger
with SqliteLedger(sys.argv[1]).blocking():
    print("open", flush=True)
    time.sleep(600)
"""


def call(key: str) -> Intent:
    return Intent(scope=SCOPE, key=CallKey(route="shop", key=key), kind=RowKind.CALL)


def asks(name: str, outcome: str = "completed") -> ResolveRequest:
    return ResolveRequest(name=name, outcome=outcome, note="seen in the store")  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "calls.db"
    with SqliteLedger(path).blocking() as ledger:
        for key in ("order-17", "order-18"):
            run = ledger.claim(call(key))
            assert isinstance(run, Claimed)
            ledger.settle(run, DOUBT)
    return path


def test_the_living_owner_settles_what_a_person_found_out(path: Path) -> None:
    with SqliteLedger(path).blocking() as ledger:
        entry = ask_owner(path, asks("order-17", "not_applied"))
        assert (entry.idempotency_key, entry.outcome, entry.note) == (
            "order-17",
            "not_applied",
            "seen in the store",
        )
        assert [one.idempotency_key for one in ledger.indeterminate()] == ["order-18"]
        assert isinstance(ledger.claim(call("order-17")), Claimed)  # not_applied frees the key at once


def test_what_the_owner_refuses_is_told_and_changes_nothing(path: Path) -> None:
    with SqliteLedger(path).blocking() as ledger:
        with pytest.raises(LedgerError, match="no entry"):
            ask_owner(path, asks("order-19"))
        with pytest.raises(LedgerError, match="give more letters"):
            ask_owner(path, asks(""))
        assert len(list(ledger.indeterminate())) == 2


def test_the_owner_may_be_another_process_and_a_killed_one_leaves_no_obstacle(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        assert ask_owner(path, asks("order-17")).outcome is OutcomeToken.COMPLETED
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert door_path(path).exists()
    with pytest.raises(LedgerInUse):
        ask_owner(path, asks("order-18"))
    with SqliteLedger(path).blocking():
        assert ask_owner(path, asks("order-18")).outcome is OutcomeToken.COMPLETED
    assert not door_path(path).exists()


def test_only_the_owners_user_and_root_may_ask(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteLedger(path).blocking() as ledger:
        mode = stat.S_IMODE(door_path(path).stat().st_mode)
        assert mode == 0o600
        monkeypatch.setattr(owner_door, "_is_trusted", lambda _: False)
        with pytest.raises(LedgerFailed) as raised:
            ask_owner(path, asks("order-17"))
        assert raised.value.ambiguous  # whoever asked cannot know
        assert len(list(ledger.indeterminate())) == 2


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system tells no peer's user")
def test_the_other_side_is_known_by_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert owner_door._is_trusted(ours)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert owner_door._is_trusted(ours) is (os.getuid() == 0)


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b'{"do":"drop","v":1}\n', b"\xff" * 100_000, b""])
def test_a_line_that_is_no_request_does_no_harm(path: Path, line: bytes) -> None:
    with SqliteLedger(path).blocking() as ledger:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(door_path(path)))
            try:
                asking.sendall(line)
                asking.shutdown(socket.SHUT_WR)
                while asking.recv(4096):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                pass
        assert len(list(ledger.indeterminate())) == 2
        assert ask_owner(path, asks("order-17")).outcome is OutcomeToken.COMPLETED


def test_a_name_that_no_socket_has_room_for_works_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 60) / ("b" * 60)
    folder.mkdir(parents=True)
    path = folder / "calls.db"
    with SqliteLedger(path).blocking() as ledger:
        run = ledger.claim(call("order-17"))
        assert isinstance(run, Claimed)
        ledger.settle(run, DOUBT)
        assert ask_owner(path, asks("order-17")).outcome is OutcomeToken.COMPLETED


def test_it_answers_in_a_process_that_has_a_thousand_descriptors_open(path: Path) -> None:
    """`select` knows none from 1 024 on; a gateway that is in use has more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    taken: list[int] = []
    try:
        while not taken or taken[-1] < 1_100:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        with SqliteLedger(path).blocking():
            assert ask_owner(path, asks("order-17")).outcome == "completed"
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_where_no_socket_can_be_had_the_ledger_works_and_the_asker_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no sockets here")

    with monkeypatch.context() as patched:
        patched.setattr(owner_door, "_at_short_name", refuse)
        ledger = SqliteLedger(path)
        opened = ledger.blocking()
        opened.__enter__()
    try:
        assert "ledger resolve" in caplog.text
        assert len(list(opened.indeterminate())) == 2
        with pytest.raises(LedgerInUse, match="stop it first"):
            ask_owner(path, asks("order-17"))
    finally:
        opened.__exit__(None, None, None)


def test_a_ledger_that_is_held_up_says_that_it_may_write_yet(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr("counterfoil.stores.ledger_sqlite.ledger._OPERATOR_S", 0.05)
    ledger = SqliteLedger(path)
    with ledger.blocking():
        held = ledger._put_step(lambda *_: goes_on.wait(20))  # a commit that takes its time
        with pytest.raises(LedgerFailed, match="may write it yet") as raised:
            ask_owner(path, asks("order-17"))
        assert raised.value.ambiguous
        goes_on.set()
        assert held.wait_blocking()
