"""One ledger for the processes of a host: who has the owner's lock serves it, whoever dies.

Owners and guests are real processes, or two ledgers of this one, over real files and sockets.  A guest also
keeps the contract of every ledger, in `tests/stores/test_ledger_interface.py`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import counterfoil.adapters.host_ledger.desk as desk_module
import counterfoil.adapters.host_ledger.ledger as ledger_module
import msgspec
import pytest
from anyio.abc import Process, TaskGroup, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream
from counterfoil import Limits, Scope
from counterfoil.adapters.host_ledger import wire
from counterfoil.adapters.host_ledger.ledger import HostLedger
from counterfoil.adapters.host_ledger.lives import LIFE_BYTES, Lives
from counterfoil.adapters.host_ledger.waiting import WaitingLine
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.errors import (
    CallElsewhere,
    CallLeft,
    LedgerBusy,
    LedgerClosed,
    LedgerError,
    LedgerFailed,
    LedgerFull,
    LedgerInUse,
    PeerBroken,
    StaleAttempt,
    UnsafeHandler,
    UnsafeStore,
)
from counterfoil.model.ledger_keys import CallKey, LedgerKey, UnkeyedCall
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.ledger_verdicts import Claimed, Known, Running
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent, KeptCall, Settlement
from counterfoil.stores.ledger_sqlite import SqliteLedger

SCOPE = Scope(principal="alice")
DONE = Settlement(outcome=OutcomeToken.COMPLETED, result=b"answer")

#: A process that opens the ledger of a directory, does what it is told, and waits to be killed.
PROGRAM = """
import sys, anyio
from counterfoil import Scope
from counterfoil.adapters.host_ledger.ledger import HostLedger
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.model.ledger_keys import CallKey, UnkeyedCall
from counterfoil.model.ledger_rows import RowKind
from counterfoil.model.tokens import OutcomeToken
from counterfoil.protocol.ledger_steps import Intent, Settlement

async def main(file, directory, *todo):
    async with HostLedger(file, SocketDirectory(directory)) as ledger:
        for what in todo:
            word, _, name = what.partition(":")
            key = CallKey(route="r", key=name)
            if word != "key":
                key = UnkeyedCall(route="r", identity=name.encode(), number="process")
            intent = Intent(scope=Scope(principal="alice"), key=key, kind=RowKind.CALL)
            claimed = await ledger.claim(intent)
            if word == "answered":
                await ledger.settle(claimed, Settlement(outcome=OutcomeToken.COMPLETED, result=b"{}"))
        print("ready", "owner" if ledger.is_owner else "guest", flush=True)
        await anyio.sleep_forever()

anyio.run(main, *sys.argv[1:])
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a short path: sockets are in it."""
    return tmp_path_factory.mktemp("h")


class Host:
    """The processes of one host: their ledger's file, and their directory."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "calls.db"
        self.folder = folder / "s"

    def ledger(self, **options: Any) -> HostLedger:
        return HostLedger(self.file, SocketDirectory(self.folder), **options)

    @asynccontextmanager
    async def process(self, *todo: str, role: str) -> AsyncIterator[Process]:
        """Run another process that has done `todo`; it is killed in the end."""
        command = [sys.executable, "-c", PROGRAM, str(self.file), str(self.folder), *todo]
        async with await anyio.open_process(command, stdin=None, stderr=None) as process:
            try:
                assert process.stdout is not None
                said = BufferedByteReceiveStream(process.stdout)
                assert await said.receive_until(b"\n", 100) == f"ready {role}".encode()
                yield process
            finally:
                with suppress(ProcessLookupError):  # the test did it
                    process.kill()

    @asynccontextmanager
    async def owner_and_guest(self, **options: Any) -> AsyncIterator[tuple[HostLedger, HostLedger]]:
        async with self.ledger(**options) as owner, self.ledger(**options) as guest:
            assert (owner.is_owner, guest.is_owner) == (True, False)
            yield owner, guest


@pytest.fixture
def host(folder: Path) -> Host:
    return Host(folder)


def keyed(name: str) -> Intent:
    return Intent(scope=SCOPE, key=CallKey(route="r", key=name), kind=RowKind.CALL)


def unkeyed(name: str, number: str = "0") -> Intent:
    key: LedgerKey = UnkeyedCall(route="r", identity=name.encode(), number=number)
    return Intent(scope=SCOPE, key=key, kind=RowKind.CALL)


async def claim(ledger: HostLedger, intent: Intent) -> Claimed:
    answer = await ledger.claim(intent)
    assert isinstance(answer, Claimed), answer
    return answer


async def kept(ledger: HostLedger) -> list[KeptCall]:
    return [call for call in await ledger.kept_calls(b"") if not call.row.delivered]


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 another process rings no bell
            await anyio.sleep(0.005)


# --- one ledger


@pytest.mark.anyio
async def test_a_run_at_one_process_is_a_run_at_every_other_and_its_answer_is_too(host: Host) -> None:
    async with host.owner_and_guest() as (owner, guest):
        for first, other in ((owner, guest), (guest, owner)):
            name = f"of {first!r}"
            claimed = await claim(first, keyed(name))
            assert isinstance(await other.claim(keyed(name)), Running)
            await first.settle(claimed, DONE)
            known = await other.claim(keyed(name))
            assert isinstance(known, Known)
            assert known.row is not None
            assert known.row.result == b"answer"


@pytest.mark.anyio
async def test_what_all_processes_write_at_once_shares_the_commits_of_one(host: Host) -> None:
    async with host.owner_and_guest() as (owner, guest), host.ledger() as third:
        assert owner._owned is not None
        ledger = owner._owned.ledger
        before = ledger.commits
        everybody = (owner, guest, third)
        tickets = [each.claim(keyed(f"{id(each)} {n}")) for n in range(200) for each in everybody]
        for ticket in tickets:
            assert isinstance(await ticket, Claimed)
        assert ledger.commits - before < 60


@pytest.mark.anyio
async def test_an_error_of_the_ledger_is_the_same_error_at_a_guest(host: Host) -> None:
    async with host.owner_and_guest(limits=Limits(ledger_open_rows=1)) as (_, guest):
        claimed = await claim(guest, keyed("a"))
        with pytest.raises(LedgerFull, match="ledger_open_rows"):
            await guest.claim(keyed("b"))
        await guest.settle(claimed, DONE)
        with pytest.raises(StaleAttempt):
            await guest.begin_cancelling(claimed)


@pytest.mark.anyio
async def test_transactional_handlers_are_refused_by_name(host: Host) -> None:
    async with host.owner_and_guest() as pair:
        for ledger in pair:
            with pytest.raises(UnsafeHandler, match="SqliteLedger"):
                ledger.apply(keyed("a"), lambda _transaction: None)


# --- who may open it


@pytest.mark.anyio
async def test_another_owner_than_a_process_of_the_directory_keeps_it_out(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_START_S", 0.1)
    async with SqliteLedger(host.file):
        with pytest.raises(LedgerInUse, match="same directory"):
            async with host.ledger():
                pass
    async with host.ledger() as ledger:
        assert ledger.is_owner


@pytest.mark.anyio
async def test_a_process_that_means_another_file_is_refused(host: Host) -> None:
    async with host.ledger():
        other = HostLedger(host.file.with_name("other.db"), SocketDirectory(host.folder))
        # It owns a file of its own, so that only the socket tells the two apart.
        async with SqliteLedger(other.path):
            with pytest.raises(UnsafeStore, match="another file"):
                async with other:
                    pass


@pytest.mark.anyio
async def test_an_error_in_the_block_is_raised_as_it_is(host: Host) -> None:
    with pytest.raises(KeyError):
        async with host.ledger():
            raise KeyError("the user's own")
    async with host.ledger() as ledger:
        assert ledger.is_owner


# --- the owner goes


@pytest.mark.anyio
async def test_when_the_owner_ends_the_next_takes_over_and_no_request_is_lost(host: Host) -> None:
    async with anyio.create_task_group() as tasks:
        _, leave = await enter(tasks, host.ledger())
        guest, _ = await enter(tasks, host.ledger())
        running = await claim(guest, keyed("runs on"))
        tickets = [guest.claim(keyed(str(number))) for number in range(300)]
        await leave()
        more = [guest.claim(keyed(str(number))) for number in range(300, 400)]
        for ticket in (*tickets, *more):
            assert isinstance(await ticket, Claimed)
        assert guest.is_owner
        assert guest.counts["takeovers"] == 1
        # A run that its process goes on with is no doubt: not to others, and not when it is settled.
        assert isinstance(await guest.claim(keyed("runs on")), Running)
        await guest.settle(running, DONE)
        assert isinstance(await guest.claim(keyed("runs on")), Known)
        tasks.cancel_scope.cancel()


async def enter(tasks: TaskGroup, ledger: HostLedger) -> tuple[HostLedger, Callable[[], Awaitable[None]]]:
    """Keep a ledger open in a task of its own; gives it, and what closes it."""
    leaving, has_left = anyio.Event(), anyio.Event()

    async def keep(*, task_status: TaskStatus[None]) -> None:
        async with ledger:
            task_status.started()
            await leaving.wait()
        has_left.set()

    async def leave() -> None:
        leaving.set()
        await has_left.wait()

    await tasks.start(keep)
    return ledger, leave


@pytest.mark.anyio
async def test_the_owner_is_killed_and_every_request_ends_as_it_says(
    host: Host, scaled: Callable[[int, int], int]
) -> None:
    """What a guest was told is in the ledger, and what it asked is there once."""
    for life in range(scaled(2, 20)):
        async with host.process(role="owner") as process, host.ledger() as guest:
            open_run = await claim(guest, keyed(f"{life} open"))
            claims = [guest.claim(keyed(f"{life} {number}")) for number in range(100)]
            await claims[10]
            process.send_signal(signal.SIGSTOP)
            # Some are written and answered, some may be written, these are not even read.
            claims += [guest.claim(keyed(f"{life} {number}")) for number in range(100, 120)]
            await anyio.wait_all_tasks_blocked()
            process.kill()
            runs = [await ticket for ticket in claims]
            assert all(isinstance(run, Claimed) for run in runs), runs
            await until(lambda guest=guest: guest.is_owner)
            settled = [guest.settle(run, DONE) for run in runs if isinstance(run, Claimed)]
            for ticket in settled:
                assert (await ticket).row.outcome is OutcomeToken.COMPLETED
            assert isinstance(await guest.claim(keyed(f"{life} open")), Running)
            await guest.settle(open_run, DONE)
            for number in range(120):
                known = await guest.claim(keyed(f"{life} {number}"))
                assert isinstance(known, Known)
            assert [entry async for entry in guest.indeterminate()] == []


@pytest.mark.anyio
async def test_an_outcome_that_was_written_and_not_told_is_told_by_the_next_owner(host: Host) -> None:
    async with host.owner_and_guest() as (owner, guest):
        claimed = await claim(guest, keyed("a"))
        await owner.settle(claimed, DONE)  # as if the answer to the guest had been lost
        assert (await guest.settle(claimed, DONE)).row.outcome is OutcomeToken.COMPLETED
        other = Settlement(outcome=OutcomeToken.COMPLETED, result=b"another")
    async with host.ledger() as ledger:
        assert (await ledger.settle(claimed, DONE)).row.result == b"answer"
        with pytest.raises(StaleAttempt):
            await ledger.settle(claimed, other)


@pytest.mark.anyio
async def test_a_count_that_may_be_written_is_told_as_doubtful_and_never_sent_again() -> None:
    claimed = Claimed(key=b"k", attempt=1, tries=1, fence=1, serial=1)
    line = WaitingLine(10)
    counted, closed = line.add(wire.NoteAdopted(claimed), 0.0), line.add(wire.CloseCall(claimed), 0.0)
    assert [line.next_unsent().number, line.next_unsent().number] == [1, 2]  # type: ignore[union-attr]
    line.begin_anew(1.0)
    with pytest.raises(LedgerFailed) as failed:
        counted.result()
    assert failed.value.ambiguous
    assert counted.outcome is OutcomeToken.INDETERMINATE
    assert closed.outcome == "pending"
    again = line.next_unsent()
    assert again is not None
    assert isinstance(again.request, wire.CloseCall)
    assert line.next_unsent() is None


@pytest.mark.anyio
async def test_what_an_owner_that_takes_its_leave_has_not_begun_is_in_no_doubt() -> None:
    claimed = Claimed(key=b"k", attempt=1, tries=1, fence=1, serial=1)
    line = WaitingLine(10)
    tickets = [line.add(wire.NoteAdopted(claimed), 0.0) for _ in range(3)]
    while line.next_unsent() is not None:
        pass
    line.finish(1, None, 0.5)
    line.take_leave(2)
    line.begin_anew(1.0)
    assert [ticket.outcome for ticket in tickets] == ["completed", "indeterminate", "pending"]
    again = line.next_unsent()
    assert again is not None
    assert again.number == 3


# --- nobody answers


@pytest.mark.anyio
async def test_without_an_owner_callers_are_told_and_what_is_late_is_made_true_later(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that was told to have failed is taken back; an outcome is written all the same."""
    monkeypatch.setattr(ledger_module, "_SILENCE_S", 0.3)
    async with host.process(role="owner") as process, host.ledger(hold_s=0.2) as guest:
        run = await claim(guest, keyed("settled late"))
        process.send_signal(signal.SIGSTOP)  # it has the lock and the connection, and says nothing
        settling, claiming = guest.settle(run, DONE), guest.claim(keyed("claimed late"))
        with pytest.raises(LedgerFailed) as failed:
            await settling
        assert failed.value.ambiguous
        with pytest.raises(LedgerFailed):
            await claiming
        process.send_signal(signal.SIGCONT)
        await until(lambda: guest.waits == 0)
        assert isinstance(await guest.claim(keyed("settled late")), Known)
        again = await claim(guest, keyed("claimed late"))
        assert again.attempt == 2  # the first one was released
        assert guest.counts["expired"] == 2


@pytest.mark.anyio
async def test_what_was_never_sent_is_said_to_be_not_applied() -> None:
    line = WaitingLine(10)
    claiming = line.add(wire.Claim(keyed("a")), 0.0)
    settling = line.add(wire.Settle(Claimed(key=b"k", attempt=1, tries=1, fence=1, serial=1), DONE), 0.0)
    line.expire(1.0)
    for ticket in (claiming, settling):
        assert ticket.outcome is OutcomeToken.NOT_APPLIED
        with pytest.raises(LedgerBusy, match="nothing was written"):
            ticket.result()
    sent = line.next_unsent()  # late is better than never, for an outcome
    assert sent is not None
    assert isinstance(sent.request, wire.Settle)
    assert line.next_unsent() is None


@pytest.mark.anyio
async def test_a_request_may_be_withdrawn_until_it_is_sent_and_its_ticket_tells_the_truth() -> None:
    line = WaitingLine(10)
    first, second = line.add(wire.Claim(keyed("a")), 0.0), line.add(wire.Claim(keyed("b")), 0.0)
    assert first.withdraw()
    sent = line.next_unsent()
    assert sent is not None
    assert sent.number == 2
    assert not second.withdraw()
    assert (first.outcome, second.outcome) == (OutcomeToken.NOT_APPLIED, "pending")


@pytest.mark.anyio
async def test_a_cancelled_wait_leaves_the_write_and_its_ticket_alone(host: Host) -> None:
    async with host.owner_and_guest() as (_, guest):
        ticket = guest.claim(keyed("a"))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await ticket
        assert scope.cancelled_caught
        await until(lambda: ticket.outcome != "pending")
        assert isinstance(ticket.result(), Claimed)


@pytest.mark.anyio
async def test_a_closed_ledger_has_answered_what_was_asked_of_it(host: Host) -> None:
    async with host.ledger() as owner:
        async with host.ledger() as guest:
            claimed = await claim(guest, unkeyed("1"))
            await guest.settle(claimed, DONE)
            closing = guest.close_call(claimed)  # nobody waits for it
        assert closing.outcome is OutcomeToken.COMPLETED
        with pytest.raises(LedgerClosed):
            guest.claim(keyed("late"))
        assert await kept(owner) == []


# --- a process dies


@pytest.mark.anyio
async def test_what_a_killed_process_ran_is_in_doubt_and_waits_for_nobody(host: Host) -> None:
    async with host.ledger() as owner:
        told: list[None] = []
        owner.on_orphans = lambda: told.append(None)
        async with host.process("key:a", role="guest"):
            assert isinstance(await owner.claim(keyed("a")), Running)
        await until(lambda: told)
        known = await owner.claim(keyed("a"))
        assert isinstance(known, Known)
        assert known.row is not None
        assert known.row.outcome is OutcomeToken.INDETERMINATE
        assert [entry.idempotency_key async for entry in owner.indeterminate()] == ["a"]


@pytest.mark.anyio
async def test_a_claim_whose_process_died_before_it_was_written_is_given_up_too(host: Host) -> None:
    """Nobody was there to be told that it was granted; who asks for the key is told of a doubt."""
    life = bytes(range(LIFE_BYTES))
    async with host.ledger() as owner:
        for key in map(str, range(20)):
            asked = wire.Claim(msgspec.structs.replace(keyed(key), run=life + bytes(8)))
            hello = wire.Hello(wire.VERSION, life, str(host.file))
            async with await anyio.connect_unix(host.folder / "ledger.sock") as stream:
                await stream.send(wire.write_frame(hello))
                await stream.receive()  # welcome
                await stream.send(wire.write_frame(wire.Numbered(1, asked)))
        with anyio.fail_after(20):
            for key in map(str, range(20)):
                while await owner.entry(SCOPE, CallKey(route="r", key=key)) is None:  # noqa: ASYNC110
                    await anyio.sleep(0.005)
                while not isinstance(answer := await owner.claim(keyed(key)), Known):  # noqa: ASYNC110
                    await anyio.sleep(0.005)
                assert answer.row is not None
                assert answer.row.outcome is OutcomeToken.INDETERMINATE


@pytest.mark.anyio
async def test_calls_of_a_killed_process_are_taken_over_once_and_those_of_a_living_one_never(
    host: Host,
) -> None:
    async with host.owner_and_guest() as (owner, guest):
        told: list[None] = []
        owner.on_orphans = lambda: told.append(None)
        own = await claim(owner, unkeyed("mine"))
        await owner.settle(own, DONE)
        async with host.process("answered:1", "open:2", role="guest"):
            calls = {call.key: call for call in await kept(guest)}
            assert len(calls) == 3
            assert [await guest.take_call(call) for call in calls.values()] == [None] * 3
        await until(lambda: told)
        taken = [[await each.take_call(call) for call in calls.values()] for each in (guest, owner)]
        rows = [row for row in taken[0] if row is not None]
        assert [row.outcome for row in rows] == [OutcomeToken.COMPLETED, OutcomeToken.INDETERMINATE]
        assert taken[1] == [None] * 3


@pytest.mark.anyio
async def test_who_dies_between_two_owners_is_not_missed(host: Host) -> None:
    """The next owner looks for every life that the last one served, whether it comes or not."""
    async with anyio.create_task_group() as tasks:
        _, leave = await enter(tasks, host.ledger())
        heir, _ = await enter(tasks, host.ledger())
        told: list[None] = []
        heir.on_orphans = lambda: told.append(None)
        async with host.process("answered:1", role="guest") as process:
            process.send_signal(signal.SIGSTOP)  # it cannot come
            await leave()
            await until(lambda: heir.is_owner)
            await until(lambda: len(told) == 1)  # for those of the last owner
            (call,) = await kept(heir)
            assert await heir.take_call(call) is None
        await until(lambda: len(told) == 2)
        assert await heir.take_call(call) is not None
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_no_identical_call_is_begun_beside_one_that_a_dead_process_has_left(host: Host) -> None:
    """Nor beside one that was just taken over, until every process may know by whom."""
    async with host.owner_and_guest() as (owner, guest):
        async with host.process("answered:order", role="guest"):
            pass
        for ledger in (owner, guest):
            with pytest.raises(CallLeft, match="has left"):
                await ledger.claim(unkeyed("order"))
        (call,) = await kept(guest)
        assert await guest.take_call(call) is not None
        with pytest.raises(CallElsewhere):
            await owner.claim(unkeyed("order"))
        assert await owner.take_call(call) is None
        assert isinstance(await owner.claim(unkeyed("another")), Claimed)
        assert isinstance(await guest.claim(unkeyed("order")), Claimed)  # it has it, and knows


@pytest.mark.anyio
async def test_the_next_owner_knows_what_the_last_ones_guests_have_left(host: Host) -> None:
    async with host.process("answered:order", role="owner"):
        pass
    async with host.ledger() as ledger:
        with pytest.raises(CallLeft):
            await ledger.claim(unkeyed("order"))
        (call,) = await kept(ledger)
        row = await ledger.take_call(call)
        assert row is not None
        await ledger.close_call(
            Claimed(key=call.key, attempt=row.attempt, tries=1, fence=row.fence, serial=row.serial)
        )
        assert await kept(ledger) == []
        assert isinstance(await ledger.claim(unkeyed("order")), Claimed)


@pytest.mark.anyio
async def test_identical_calls_of_two_living_processes_both_run(host: Host) -> None:
    """Whether the client of one has gone is known where it runs, and seen by the others on their board."""
    async with host.owner_and_guest() as (owner, guest):
        await claim(guest, unkeyed("order", "first"))
        await claim(owner, unkeyed("order", "second"))


def test_a_life_lasts_as_long_as_its_process_and_the_kernel_says_so(folder: Path) -> None:
    mine, other = Lives(folder), Lives(folder)
    mine.begin()
    other.begin()
    assert mine.has(other.own)
    assert mine.has(mine.own)
    assert mine.others() == [other.own]
    other.end()
    assert not mine.has(other.own)
    assert not mine.has(b"no life")
    assert not mine.has(bytes(LIFE_BYTES))
    script = (
        "import sys; from pathlib import Path; from counterfoil.adapters.host_ledger.lives import Lives\n"
        "life = Lives(Path(sys.argv[1])); life.begin(); print(life.own.hex(), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        life = bytes.fromhex(process.stdout.readline())
        assert mine.has(life)
        process.kill()
        process.wait()
        assert not mine.has(life)
    assert mine.others() == []
    mine.end()
    assert list(folder.iterdir()) == []


# --- bounds


@pytest.mark.anyio
async def test_requests_and_frames_are_bounded_by_name(host: Host) -> None:
    limits = Limits(ledger_queue=8, event_bytes=1)
    async with host.owner_and_guest(limits=limits, answer_bytes=1) as (_, guest):
        tickets = [guest.claim(keyed(str(number))) for number in range(8)]
        with pytest.raises(LedgerBusy, match="ledger_queue"):
            guest.claim(keyed("one too many"))
        runs = [await ticket for ticket in tickets]
        assert isinstance(runs[0], Claimed)
        long = Settlement(outcome=OutcomeToken.COMPLETED, result=bytes(wire.FRAME_EXTRA_BYTES))
        with pytest.raises(LedgerError, match="at most"):
            await guest.settle(runs[0], long)
        await guest.settle(runs[0], DONE)  # the connection has not suffered


@pytest.mark.anyio
async def test_a_long_list_of_kept_calls_comes_in_pages_that_fit(host: Host) -> None:
    limits = Limits(event_bytes=1)
    async with host.owner_and_guest(limits=limits, answer_bytes=1) as (_, guest):
        answer = Settlement(outcome=OutcomeToken.COMPLETED, result=bytes(300_000))
        for number in range(9):
            await guest.settle(await claim(guest, unkeyed(str(number))), answer)
        seen, after = 0, b""
        while page := await guest.kept_calls(after):
            assert len(page) < 9
            seen, after = seen + len(page), page[-1].key
        assert seen == 9


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x03abc",
        wire.write_frame(wire.Hello(wire.VERSION + 1, b"life", "x")),
        b"",
    ],
    ids=["too-long", "garbage", "another-version", "nothing"],
)
@pytest.mark.anyio
async def test_who_does_not_speak_as_a_process_of_this_release_is_cut(
    host: Host, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(desk_module, "_HELLO_S", 0.1)
    async with host.ledger() as owner:
        async with await anyio.connect_unix(host.folder / "ledger.sock") as stream:
            if sent:
                await stream.send(sent)
            said = b""
            with anyio.fail_after(5):
                try:
                    while True:
                        said += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass
        if said:
            assert b"one release" in wire.read_welcome(said[4:]).refused.encode()
        assert isinstance(await owner.claim(keyed("a")), Claimed)


@pytest.mark.anyio
async def test_an_owner_that_sends_garbage_is_left_and_asked_again(host: Host) -> None:
    """What was asked stands: it is asked again of an owner that can be understood."""
    directory = SocketDirectory(host.folder)
    async with SqliteLedger(host.file):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(host.folder / "ledger.sock"))
            listener.listen()
            server = anyio.create_task_group()
            async with server:
                server.start_soon(_lie_once, listener)
                guest, _ = await enter(server, HostLedger(host.file, directory, hold_s=0.3))
                ticket = guest.claim(keyed("a"))
                with anyio.move_on_after(0.1):
                    await ticket
                assert ticket.outcome == "pending"
                server.cancel_scope.cancel()
    async with host.ledger() as ledger:
        assert isinstance(await ledger.claim(keyed("a")), Claimed)  # the lie was no commit


async def _lie_once(listener: socket.socket) -> None:
    listener.setblocking(False)
    while True:
        await anyio.wait_readable(listener)
        connection, _ = listener.accept()
        with connection:
            connection.setblocking(False)
            connection.send(wire.write_frame(wire.Welcome(1, b"secret")))
            await anyio.wait_readable(connection)
            connection.send(b"\x00\x00\x00\x05lies!")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1_000])
def test_frames_are_the_same_however_they_are_cut(size: int) -> None:
    bodies = [b"", b"a", bytes(300), b"last"]
    text = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    frames = wire.Frames(300)
    found = [
        frame for begin in range(0, len(text), size) for frame in frames.feed(text[begin : begin + size])
    ]
    assert found == bodies
    with pytest.raises(PeerBroken, match="301"):
        frames.feed((301).to_bytes(4, "big"))


def test_every_error_of_a_ledger_travels_as_it_is() -> None:
    for error in (LedgerFailed("disk", ambiguous=True), LedgerFull("full"), ValueError("no outcome")):
        failed = wire.read_answer(wire.write_failed(7, error)[4:])
        assert isinstance(failed, wire.Failed)
        told = wire.error_of(failed)
        assert (type(told), str(told)) == (type(error), str(error))
        assert getattr(told, "ambiguous", None) == getattr(error, "ambiguous", None)
    made_of_more = wire.error_of(wire.Failed(7, "ConfigError", "serve.listen"))
    assert (type(made_of_more), str(made_of_more)) == (LedgerError, "ConfigError: serve.listen")
    strange = wire.error_of(wire.Failed(7, "KeyError", "a bug"))
    assert (type(strange), str(strange)) == (LedgerError, "KeyError: a bug")


@pytest.mark.anyio
async def test_the_socket_and_the_lives_are_this_users_alone(host: Host) -> None:
    async with host.ledger():
        for path in host.folder.iterdir():
            assert os.stat(path).st_mode & 0o077 == 0, path
