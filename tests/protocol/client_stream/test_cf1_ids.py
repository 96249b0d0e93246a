"""Our ids are compared whole: stream and epoch before any number, the digest at every position we hold."""

from __future__ import annotations

from typing import Any

import pytest
from counterfoil.model.events import Identity, Seen
from counterfoil.model.evidence import Echo, First
from counterfoil.model.stream import HeldEvent
from counterfoil.native import Cursor
from counterfoil.protocol.client_stream.cf1_ids import compare_echo, compare_first, identify, read_cursor
from counterfoil.protocol.client_stream.positions import Positions


@pytest.fixture
def ours(make_server: Any) -> Any:
    server = make_server()
    for n in range(1, 10):
        server.append(b"%d" % n)
    return server


@pytest.fixture
def other_epoch(make_server: Any) -> Any:
    server = make_server(epoch="BBBBBBBBBBA")
    server.append(b"x")
    return server


@pytest.fixture
def other_stream(make_server: Any) -> Any:
    server = make_server(random=b"o" * 12)
    server.append(b"x")
    return server


def holding(server: Any, first: int, last: int) -> Positions:
    held = (
        HeldEvent(position=n, event_id=str(server.id(n)), digest=server.digests[n])
        for n in range(first, last + 1)
    )
    return Positions(held, processed=first)


@pytest.mark.parametrize("text", ["", "42", "cf2.x", "cf1.broken", "uuid-1-2"])
def test_other_spellings_have_no_place(text: str) -> None:
    assert read_cursor(text) is None


def test_echo_is_compared_decoded(ours: Any, other_epoch: Any, other_stream: Any) -> None:
    asked = ours.id(4).cursor
    assert compare_echo(str(ours.id(4)), asked) is Echo.OURS
    assert compare_echo(str(ours.id(5)), asked) is Echo.OTHER_POSITION
    assert compare_echo(str(other_epoch.id(1)), asked) is Echo.OTHER_EPOCH
    assert compare_echo(str(other_stream.id(1)), asked) is Echo.OTHER_EPOCH
    assert compare_echo("42", asked) is Echo.FOREIGN


@pytest.mark.parametrize(
    ("sequence", "fact"),
    [(3, First.BELOW), (4, First.SAME), (5, First.NEXT), (6, First.NEXT), (7, First.NEXT), (8, First.BEYOND)],
)
def test_order_is_judged_against_the_position_asked_for(ours: Any, sequence: int, fact: First) -> None:
    """Asked with 4, received up to 6: what we hold already is never a gap."""
    positions = holding(ours, 4, 6)
    found = compare_first(str(ours.id(sequence)), ours.id(4).cursor, positions)
    assert found == (fact, sequence, ours.epoch)


def test_first_event_of_another_history(ours: Any, other_epoch: Any, other_stream: Any) -> None:
    asked, positions = ours.id(4).cursor, holding(ours, 4, 4)
    assert compare_first(str(other_epoch.id(1)), asked, positions).fact is First.OTHER_EPOCH
    assert compare_first(str(other_stream.id(1)), asked, positions).fact is First.OTHER_STREAM
    assert compare_first("42", asked, positions).fact is First.OTHER_SCHEME
    assert compare_first(None, asked, positions).fact is First.NO_ID
    assert compare_first("", asked, positions).fact is First.NO_ID


def test_same_position_with_another_digest_diverged(ours: Any) -> None:
    found = ours.id(4).cursor
    asked = Cursor(found.stream, found.epoch, 4, ours.digests[5])
    assert compare_first(str(ours.id(4)), asked, Positions()).fact is First.DIVERGED
    # So does a held event behind the cursor that comes back otherwise.
    wrong = [HeldEvent(position=5, event_id="x", digest=ours.digests[6])]
    assert compare_first(str(ours.id(5)), found, Positions(wrong)).fact is First.DIVERGED


def test_every_later_event_is_previous_plus_one(ours: Any, other_epoch: Any, other_stream: Any) -> None:
    previous, positions = ours.id(4).cursor, holding(ours, 4, 4)
    cases = {
        None: Identity.ABSENT,
        "": Identity.EMPTY,
        "42": Identity.OTHER_SCHEME,
        str(other_stream.id(1)): Identity.OTHER_STREAM,
        str(other_epoch.id(1)): Identity.OTHER_EPOCH,
        str(ours.id(3)): Identity.NOT_ABOVE,
        str(ours.id(4)): Identity.NOT_ABOVE,
        str(ours.id(5)): Identity.NEXT,
        str(ours.id(6)): Identity.JUMP,
    }
    for event_id, identity in cases.items():
        assert identify(event_id, previous, positions).identity is identity


def test_event_that_we_hold_is_known_or_different(ours: Any) -> None:
    previous, positions = ours.id(4).cursor, holding(ours, 4, 6)
    assert identify(str(ours.id(5)), previous, positions).seen is Seen.ANSWERED
    # Held or not, what is left out may have been rewritten.
    assert identify(str(ours.id(6)), previous, positions).identity is Identity.JUMP
    wrong = Positions([HeldEvent(position=5, event_id="x", digest=ours.digests[6])])
    assert identify(str(ours.id(5)), previous, wrong).identity is Identity.DIFFERENT


@pytest.mark.parametrize(
    ("base", "sequence", "identity"),
    [
        (None, 7, Identity.NEXT),
        (6, 7, Identity.NEXT),
        (7, 7, Identity.NOT_ABOVE),
        (5, 7, Identity.JUMP),
    ],
)
def test_beginning_is_held_to_the_base_that_the_server_named(
    ours: Any, base: int | None, sequence: int, identity: Identity
) -> None:
    assert identify(str(ours.id(sequence)), None, Positions(), base=base).identity is identity
