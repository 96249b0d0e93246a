"""The board of calls: what one process of a host has the others see at once; a dead one is passed over."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from counterfoil.adapters.peers.call_board import SLOTS, CallBoard
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.owners import MAX_WORKERS, Owner, Place

ONE, TWO, LAST = Owner(Place(3, 1), 7), Owner(Place(3, 2), 255), Owner(Place(3, MAX_WORKERS), 0)


def identity(number: int) -> bytes:
    return hashlib.blake2b(b"%d" % number, digest_size=32).digest()


@pytest.fixture
def directory(folder: Path) -> SocketDirectory:
    return SocketDirectory(folder)


@pytest.fixture
def boards(directory: SocketDirectory) -> Iterator[list[CallBoard]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(CallBoard(directory, owner))) for owner in (ONE, TWO, LAST)]


def test_a_call_is_seen_by_the_others_as_long_as_it_is_there(boards: list[CallBoard]) -> None:
    one, two, last = boards
    call = identity(1)
    one.note(call, is_here=True)
    one.note(call, is_here=True)
    assert one.find(call) is None  # its own are no business of the board
    assert two.find(call) == last.find(call) == ONE
    one.note(call, is_here=False)
    assert two.find(call) == ONE
    one.note(call, is_here=False)
    one.note(call, is_here=False)
    assert two.find(call) is None
    last.note(call, is_here=True)
    assert one.find(call) == two.find(call) == LAST


def test_other_calls_are_told_from_it_but_for_few(boards: list[CallBoard]) -> None:
    one, two, _ = boards
    for number in range(300):
        one.note(identity(number), is_here=True)
    taken = [number for number in range(300, 20_300) if two.find(identity(number)) is not None]
    assert len(taken) < 20_000 * 2 * 300 / SLOTS


def test_a_life_that_is_over_is_passed_over_and_its_heir_begins_anew(
    directory: SocketDirectory, boards: list[CallBoard]
) -> None:
    one, two, _ = boards
    call = identity(1)
    one.note(call, is_here=True)  # and it dies, as the file does not know
    two.pass_over(ONE)
    assert two.find(call) is None
    heir = Owner(ONE.place, 8)
    with closing(CallBoard(directory, heir)) as board:
        assert two.find(call) is None
        board.note(call, is_here=True)
        assert two.find(call) == heir
    assert two.find(call) is None


def test_a_counter_that_was_full_stays_full(boards: list[CallBoard]) -> None:
    one, two, _ = boards
    call = identity(1)
    for _ in range(1 << 16):
        one.note(call, is_here=True)
    for _ in range(1 << 16):
        one.note(call, is_here=False)
    assert two.find(call) == ONE  # asked in vain at the worst; one too few would be a call that runs twice


def test_the_file_takes_memory_only_for_what_is_written(
    directory: SocketDirectory, boards: list[CallBoard]
) -> None:
    found = os.stat(directory.path / "calls")
    assert found.st_size > 16 << 20
    assert found.st_blocks * 512 < 1 << 20
    assert found.st_mode & 0o777 == 0o600


def test_another_process_sees_it_too(directory: SocketDirectory, boards: list[CallBoard]) -> None:
    call = identity(1)
    boards[0].note(call, is_here=True)
    script = (
        "import sys; from counterfoil.adapters.peers.call_board import CallBoard;"
        "from counterfoil.adapters.peers.directory import SocketDirectory;"
        "from counterfoil.adapters.peers.owners import Owner, Place;"
        "board = CallBoard(SocketDirectory(sys.argv[1]), Owner(Place(3, 9), 1));"
        "print(board.find(bytes.fromhex(sys.argv[2])).number)"
    )
    command = [sys.executable, "-c", script, str(directory.path), call.hex()]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(said) == ONE.number
