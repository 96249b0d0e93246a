"""Where a stream stands, for our ids and for foreign ones, on one connection after another."""

from __future__ import annotations

from typing import Any

import pytest
from counterfoil.model.events import Scheme
from counterfoil.model.evidence import Asked, First
from counterfoil.protocol.client_stream.foreign_ids import Declared, Order
from counterfoil.protocol.client_stream.track import Arrived, AskedWith, Track

UUIDS = [f"9f3c51d0-77a4-4b1e-8c2d-6e0f1a2b3c4{n}" for n in range(6)]


def take(track: Track, event_id: str | None, data: bytes = b"x") -> tuple[int, bool]:
    arrived = Arrived("message", data, event_id)
    place, is_new = track.take(arrived, track.identify(arrived))
    return place.position, is_new


def test_scheme_is_that_of_the_first_id(server: Any) -> None:
    server.append(b"x")
    ours, foreign = (Track("h", "e", Declared()) for _ in range(2))
    take(ours, str(server.id(1)))
    take(foreign, "42")
    assert (ours.scheme, foreign.scheme) == (Scheme.CF1, Scheme.FOREIGN)


def test_our_position_is_the_sequence_and_a_foreign_one_a_local_ordinal(server: Any) -> None:
    for _ in range(3):
        server.append(b"x")
    ours, foreign = Track("h", "e", Declared()), Track("h", "e", Declared())
    assert [take(ours, str(server.id(n))) for n in (2, 3)] == [(2, True), (3, True)]
    assert [take(foreign, each) for each in ("40", "57")] == [(1, True), (2, True)]


def test_foreign_overlap_is_asked_from_one_before_and_given_up_for_the_newest() -> None:
    track = Track("h", "e", Declared())
    for event_id in UUIDS[:3]:
        take(track, event_id)
    track.positions.settle(3)
    probe = track.ask(newest=False)
    assert (probe.how, probe.event_id) == (Asked.OPAQUE, UUIDS[1])
    assert track.is_probe(probe)
    newest = track.ask(newest=True)
    assert newest.event_id == UUIDS[2]
    assert not track.is_probe(newest)


def test_overlap_base_is_never_beyond_the_processed_event() -> None:
    track = Track("h", "e", Declared())
    for event_id in UUIDS[:5]:
        take(track, event_id)
    track.positions.settle(2)
    assert track.ask(newest=False).event_id == UUIDS[1]


def test_event_that_comes_again_keeps_its_position() -> None:
    track = Track("h", "e", Declared())
    for event_id in UUIDS[:3]:
        take(track, event_id)
    track.connect(track.ask(newest=False))
    assert take(track, UUIDS[2]) == (3, False)
    assert take(track, UUIDS[3]) == (4, True)


def test_foreign_echo_moves_the_cursor_and_ours_does_not(server: Any) -> None:
    for _ in range(5):
        server.append(b"x")
    foreign, ours = Track("h", "e", Declared()), Track("h", "e", Declared())
    take(foreign, UUIDS[0])
    foreign.echo(UUIDS[1])
    foreign.positions.settle(1)
    assert foreign.ask(newest=True).event_id == UUIDS[1]
    # B145: a server that names its newest event has not delivered it.
    take(ours, str(server.id(1)))
    ours.echo(str(server.id(5)))
    ours.positions.settle(1)
    assert ours.ask(newest=False).event_id == str(server.id(1))


def test_empty_id_takes_the_cursor_back() -> None:
    track = Track("h", "e", Declared())
    take(track, UUIDS[0])
    take(track, "")
    track.positions.settle(2)
    assert not track.has_cursor
    assert track.ask(newest=False) == AskedWith(Asked.NO_CURSOR)


def test_events_without_ids_have_places_of_their_own() -> None:
    track = Track("h", "e", Declared())
    assert [take(track, None), take(track, None)] == [(1, True), (2, True)]


@pytest.mark.parametrize("order", [Order.DENSE, Order.SPARSE])
def test_declared_ids_are_asked_with_their_number(order: Order) -> None:
    track = Track("h", "e", Declared(order=order))
    take(track, "40")
    take(track, "41")
    track.positions.settle(2)
    asked = track.ask(newest=False)
    assert (asked.how, asked.number) == (Asked(order.value), 40)


def test_without_a_question_the_first_event_is_any() -> None:
    track = Track("h", "e", Declared())
    asked = AskedWith(Asked.FIRST)
    assert track.compare_first(Arrived("message", b"x", "1"), asked).fact is First.UNKNOWN
    assert track.compare_first(Arrived("message", b"x", None), asked).fact is First.NO_ID


def test_new_history_keeps_nothing_of_the_old_one() -> None:
    track = Track("h", "e", Declared())
    take(track, UUIDS[0])
    track.start("e2")
    assert (track.epoch, track.scheme, track.has_cursor) == ("e2", Scheme.NONE, False)
    assert take(track, UUIDS[0]) == (1, True)
