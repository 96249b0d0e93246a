"""The parts by which processes of one gateway know and reach each other, one by one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from counterfoil.adapters.peers.channel import Address
from counterfoil.adapters.peers.checking import StreamCheck, check_head
from counterfoil.adapters.peers.directory import SocketDirectory
from counterfoil.adapters.peers.frames import Piece
from counterfoil.adapters.peers.members import Members, Replica
from counterfoil.adapters.peers.owners import MAX_WORKERS, Owner, Place, choose_home, replica_number
from counterfoil.adapters.peers.seals import WINDOW_S, SealRefused, Seals
from counterfoil.adapters.peers.wire import (
    Envelope,
    Gone,
    Head,
    Hold,
    Said,
    SessionNews,
    read_envelope,
    read_line,
    write_envelope,
    write_line,
)
from counterfoil.errors import ConfigError, PeerBroken
from counterfoil.native import KeyRing, Scope, StreamToken

KEYS = KeyRing.from_secret(bytes(32), made_s=1)
OWN = Scope(session="s")


@pytest.fixture
def directory(tmp_path: Path) -> SocketDirectory:
    tmp_path.chmod(0o700)
    return SocketDirectory(tmp_path)


# --- owners


def test_an_owner_number_names_one_life_of_one_place() -> None:
    numbers = set()
    for replica in (0, 1, 0xFFFF):
        for worker in (1, 2, MAX_WORKERS):
            for incarnation in (0, 1, 0xFF):
                owner = Owner(Place(replica, worker), incarnation)
                assert Owner.of(owner.number) == owner
                assert 0 < owner.number < 1 << 32
                numbers.add(owner.number)
    assert len(numbers) == 27
    assert Owner.of(0) is None  # a gateway of one process
    assert Owner.of(1 << 32) is None


def test_every_process_finds_the_same_home_and_one_that_leaves_moves_its_own_sessions_only() -> None:
    places = [Place(replica, worker) for replica in (0, 9) for worker in (1, 2)]
    homes = {n: choose_home((None, "p", f"s{n}"), places) for n in range(400)}
    assert homes == {n: choose_home((None, "p", f"s{n}"), places[::-1]) for n in range(400)}
    counts = [sum(home == place for home in homes.values()) for place in places]
    assert min(counts) > 60
    left = places[2]
    for n, home in homes.items():
        if home != left:
            assert choose_home((None, "p", f"s{n}"), [place for place in places if place != left]) == home


# --- the directory


def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with pytest.raises(ConfigError, match="chmod 700"):
        SocketDirectory(tmp_path)
    with pytest.raises(ConfigError, match="longer than"):
        SocketDirectory(tmp_path / ("x" * 120))
    made = SocketDirectory(tmp_path / "made")
    assert made.path.stat().st_mode & 0o777 == 0o700


def test_seats_are_taken_one_by_one_and_freed_by_the_end_of_a_process(directory: SocketDirectory) -> None:
    with directory.seat() as first, directory.seat() as second:
        assert (first[0], second[0]) == (1, 2)
    with directory.seat() as again:
        assert again == (1, (first[1] + 1) % 256)
    taking = (
        "import sys, time\n"
        "from counterfoil.adapters.peers.directory import SocketDirectory\n"
        "with SocketDirectory(sys.argv[1]).seat() as life:\n"
        "    print(life[0], flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", taking, str(directory.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        with directory.seat() as beside:
            assert beside[0] == 2
        process.kill()
        process.wait()
    with directory.seat() as after:
        assert after[0] == 1


def test_the_sockets_of_earlier_lives_are_removed_by_the_next(directory: SocketDirectory) -> None:
    for name in ("1-3.sock", "1-4.sock", "2-3.sock", "1.seat", "other"):
        (directory.path / name).touch()
    directory.remove_others(1, 4)
    assert sorted(directory.lives()) == [(1, 4), (2, 3)]
    assert (directory.path / "other").exists()


# --- members


def test_an_address_is_a_life_on_this_host_and_a_port_on_another(directory: SocketDirectory) -> None:
    members = Members(directory, worker=1, incarnation=4, workers=2, name="a")
    members.set_replicas({"b": Replica("b", "10.0.0.2", 7_000)})
    here, there = replica_number("a"), replica_number("b")
    (directory.path / "2-9.sock").touch()
    assert members.places() == sorted(Place(r, w) for r in (here, there) for w in (1, 2))
    assert members.address_of(Place(here, 2), None) == Address(path=directory.socket_of(2, 9))
    assert members.address_of(Place(here, 2), 8) is None
    assert members.address_of(Place(there, 2), 8) == Address(host="10.0.0.2", port=7_001)
    assert members.address_of(Place(there ^ 1, 1), 1) is None
    members.set_replicas({})
    assert members.address_of(Place(there, 1), 1) is None


def test_two_replicas_of_one_number_are_refused(directory: SocketDirectory) -> None:
    members = Members(directory, worker=1, incarnation=4, name="a")
    with pytest.raises(ConfigError, match="rename"):
        members.set_replicas({"a": Replica("a", "h", 1)})
    nameless = Members(directory, worker=1, incarnation=4)
    with pytest.raises(ConfigError, match="--self"):
        nameless.set_replicas({"b": Replica("b", "h", 1)})


# --- seals


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_seal_passes_once_in_its_time_for_its_body() -> None:
    clock = Clock()
    sender, taker = Seals(KEYS, clock), Seals(KEYS, clock)
    value = sender.make(b"body")
    with pytest.raises(SealRefused, match="forged"):
        taker.check(value, b"another")
    taker.check(value, b"body")
    with pytest.raises(SealRefused, match="replayed"):
        taker.check(value, b"body")
    clock.now += WINDOW_S + 1
    with pytest.raises(SealRefused, match="stale"):
        taker.check(value, b"body")
    assert taker.refused == {"forged": 1, "replayed": 1, "stale": 1}


@pytest.mark.parametrize("value", [None, b"", b"1.2.3", b"x" * 4_000, b"1000000000.%s.abc" % (b"n" * 24)])
def test_what_is_no_seal_is_refused(value: bytes | None) -> None:
    seals = Seals(KEYS, Clock())
    with pytest.raises(SealRefused):
        seals.check(value, b"body")


def test_another_ring_seals_nothing_and_a_rotated_one_does() -> None:
    clock = Clock()
    taker = Seals(KEYS, clock)
    with pytest.raises(SealRefused, match="key"):
        taker.check(Seals(KeyRing.from_secret(b"2" * 32, made_s=1), clock).make(b"b"), b"b")
    rotated = Seals(KEYS.rotated(b"3" * 32, now_s=2), clock)
    rotated.check(Seals(KEYS, clock).make(b"b"), b"b")


# --- what is said


def test_envelopes_and_lines_are_read_as_they_were_written() -> None:
    news = SessionNews(scope=(None, "p", "s"), trusted=(b"\0\xff",), cors={"o": ((b"a", b"b"),)})
    envelope = Envelope(replica=1, worker=2, incarnation=None, request=news)
    assert read_envelope(write_envelope(envelope)) == envelope
    for line in (Hold(), Gone(), Said("yes"), Head(200, ((b"name", b"\xe9"),))):
        assert read_line(write_line(line)) == line


@pytest.mark.parametrize("data", [b"", b"\xc1", b"{}", b"\x81\xa1v\x02", b"\x91" * 5_000])
def test_what_cannot_be_read_is_a_broken_peer(data: bytes) -> None:
    with pytest.raises(PeerBroken):
        read_envelope(data)
    with pytest.raises(PeerBroken):
        read_line(data)


def test_a_peer_of_another_version_is_told_by_name() -> None:
    envelope = Envelope(v=1, replica=0, worker=1, incarnation=1, request=SessionNews(scope=(None, None, "s")))
    with pytest.raises(PeerBroken, match="version 1"):
        read_envelope(write_envelope(envelope))


# --- what is checked of an answer

STREAM = StreamToken.mint(kind="call", random=bytes(12), request_id=1, owner=259)
OTHER = StreamToken.mint(kind="call", random=bytes(11) + b"1", request_id=1, owner=259)


def event(stream: StreamToken, sequence: int = 1, scope: Scope = OWN) -> bytes:
    own = KEYS.event_id(scope, stream=stream, epoch="AAAAAAAAAAA", sequence=sequence, digest="AAAAAAAAAAA")
    return b"id: %s\ndata: {}\n\n" % str(own).encode()


def check_of(stream: StreamToken | None) -> StreamCheck:
    return StreamCheck(KEYS, OWN, str(stream) if stream is not None else None)


def take_cut(check: StreamCheck, text: bytes, size: int) -> None:
    for number, start in enumerate(range(0, len(text), size)):
        end = min(start + size, len(text))
        if number % 2:  # as a piece of something longer, or alone
            check.take(Piece(text, start, end))
        else:
            check.take(Piece(text[start:end], 0, end - start))


@pytest.mark.parametrize("known", [STREAM, None])
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_events_of_one_stream_pass_however_they_are_cut(known: StreamToken | None, size: int) -> None:
    text = b": comment\n\n" + b"".join(event(STREAM, n) for n in range(1, 20)) + b"retry: 5\n\n"
    take_cut(check_of(known), text, size)


@pytest.mark.parametrize("known", [STREAM, None])
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
@pytest.mark.parametrize(
    "foreign",
    [event(OTHER), b"id: 13\n\n", b"id:13\n\n", b"id\n\n", b"data: a\rid: 13\n\n", b"id: cf1.x\n\n"],
    ids=["stream", "integer", "no-space", "empty", "carriage-return", "malformed"],
)
def test_an_event_of_another_stream_is_cut_off_however_it_is_cut(
    known: StreamToken | None, size: int, foreign: bytes
) -> None:
    text = event(STREAM) + b'data: {"id: no field": 1}\n\n' + foreign + b": more\n\n"
    check = check_of(known)
    with pytest.raises(PeerBroken):
        take_cut(check, text, size)


def test_a_stream_whose_first_id_is_of_another_scope_is_cut_off() -> None:
    with pytest.raises(PeerBroken, match="another scope"):
        take_cut(check_of(None), event(STREAM, scope=Scope(session="other")) + b"\n", 10_000)


def test_a_line_without_end_is_not_kept() -> None:
    check = check_of(STREAM)
    for _ in range(1_000):
        take_cut(check, b"data: " + b"x" * 10_000, 20_000)
    assert len(check._start) < 1_000


@pytest.mark.parametrize(
    "head",
    [
        Head(99, ()),
        Head(600, ()),
        Head(200, ((b"a b", b"c"),)),
        Head(200, ((b"a", b"b\r\nset-cookie: c"),)),
        Head(200, ((b"a", b"b" * 70_000),)),
        Head(200, ((b"content-type", b"text/event-stream"),)),
        Head(200, ((b"stream-continuity", b"verdict=???"),)),
    ],
)
def test_a_head_that_no_gateway_sends_is_refused(head: Head) -> None:
    with pytest.raises(PeerBroken):
        check_head(head, resumes=True)
