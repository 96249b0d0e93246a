"""Foreign ids are opaque; what proves an overlap is bytes that nobody could make again by starting over."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from counterfoil.model.events import Identity, Seen
from counterfoil.model.evidence import First, Token, Window
from counterfoil.model.stream import HeldEvent
from counterfoil.protocol.client_stream.foreign_ids import (
    Order,
    compare_first,
    compare_token,
    compare_window,
    digest_event,
    identify,
    is_unguessable,
    read_number,
)
from counterfoil.protocol.client_stream.positions import Positions
from hypothesis import given
from hypothesis import strategies as st

UUIDS = [str(uuid.UUID(int=0x9F3C_51D0_77A4_4B1E_8C2D_6E0F_1A2B_3C4D + n * 2**96)) for n in range(4)]


def holding(*event_ids: str) -> Positions:
    return Positions(
        HeldEvent(position=n, event_id=event_id, digest=f"d{n}") for n, event_id in enumerate(event_ids, 1)
    )


@pytest.mark.parametrize("text", ["0", "7", "4118", "9" * 19])
def test_numbers(text: str) -> None:
    assert read_number(text) == int(text)


@pytest.mark.parametrize(
    "text", ["", "-1", "+5", "007", " 1", "1_0", "1.0", "²", "٣", "9" * 20, "0x1", "1\n"]
)
def test_only_plain_digits_are_numbers(text: str) -> None:
    """B185: crafted cursors such as `-5` are of no scheme."""
    assert read_number(text) is None


@pytest.mark.parametrize(
    "event_id",
    [
        *UUIDS,
        "_GET_stream_1732901234567_k3j5x9ab",
        "01HF3Z8Q7X9K2M4N6P8R0S2T4V",
        "b3c9f0a17d2e48559f",
    ],
)
def test_random_ids_prove_a_history(event_id: str) -> None:
    assert is_unguessable(event_id)


@pytest.mark.parametrize(
    "event_id",
    [
        "",
        "7",
        "4118",
        "stream_12",
        "_GET_stream_13",
        "inventory-updates-for-alice-0001",
        "session-event-42",
        "a" * 64,
    ],
)
def test_counters_and_words_do_not(event_id: str) -> None:
    assert not is_unguessable(event_id)


@given(st.integers(0, 10**12), st.sampled_from(["", "event-", "stream_default_", "task:"]))
def test_no_counter_is_ever_a_proof(n: int, prefix: str) -> None:
    assert not is_unguessable(f"{prefix}{n}")


def test_overlap_byte_equal_or_not() -> None:
    positions = holding(UUIDS[0], UUIDS[1])
    known = compare_first(UUIDS[1], "d2", UUIDS[0], positions, order=Order.OPAQUE)
    assert known.fact is First.KNOWN
    other = compare_first(UUIDS[1], "other", UUIDS[0], positions, order=Order.OPAQUE)
    assert other.fact is First.KNOWN_DIFFERENT
    # A server that replays inclusively returns the event asked with.
    assert compare_first(UUIDS[0], "d1", UUIDS[0], positions, order=Order.OPAQUE).fact is First.KNOWN
    assert compare_first(UUIDS[2], "d", UUIDS[0], positions, order=Order.OPAQUE).fact is First.UNKNOWN


def test_overlap_of_a_counter_is_plain() -> None:
    positions = holding("1", "2")
    for order in Order:
        assert compare_first("2", "d2", "1", positions, order=order).fact is First.KNOWN_PLAIN


@pytest.mark.parametrize(
    ("event_id", "dense", "sparse"),
    [
        ("3", First.BELOW, First.BELOW),
        ("5", First.KNOWN_PLAIN, First.KNOWN_PLAIN),
        ("6", First.NEXT, First.NEXT),
        ("7", First.BEYOND, First.NEXT),
        ("x", First.OTHER_SCHEME, First.OTHER_SCHEME),
    ],
)
def test_declared_order(event_id: str, dense: First, sparse: First) -> None:
    """Asked with 4, received 5: an event that we hold is never a gap."""
    positions = Positions(
        [
            HeldEvent(position=1, event_id="4", digest="d1"),
            HeldEvent(position=2, event_id="5", digest="d2"),
        ]
    )
    assert compare_first(event_id, "d2", "4", positions, order=Order.DENSE).fact is dense
    assert compare_first(event_id, "d2", "4", positions, order=Order.SPARSE).fact is sparse


def test_our_ids_after_foreign_ones_are_another_scheme(server: Any) -> None:
    ours = str(server.id(0))
    assert compare_first(ours, "d", "x", Positions(), order=Order.OPAQUE).fact is First.OTHER_SCHEME
    assert identify(ours, "d", None, Positions(), order=Order.OPAQUE).identity is Identity.OTHER_SCHEME


def test_vanished_ids() -> None:
    assert compare_first(None, "d", "x", Positions(), order=Order.OPAQUE).fact is First.NO_ID
    assert identify(None, "d", None, Positions(), order=Order.OPAQUE).identity is Identity.ABSENT
    assert identify("", "d", None, Positions(), order=Order.OPAQUE).identity is Identity.EMPTY


def test_known_id_with_other_bytes_is_different() -> None:
    positions = holding("a", "b")
    assert identify("b", "d2", None, positions, order=Order.OPAQUE).seen is Seen.ANSWERED
    assert identify("b", "x", None, positions, order=Order.OPAQUE).identity is Identity.DIFFERENT


@pytest.mark.parametrize(
    ("event_id", "dense", "sparse"),
    [
        ("4", Identity.NOT_ABOVE, Identity.NOT_ABOVE),
        ("5", Identity.NEXT, Identity.NEXT),
        ("9", Identity.JUMP, Identity.NEXT),
        ("x", Identity.OTHER_SCHEME, Identity.OTHER_SCHEME),
    ],
)
def test_order_of_later_events(event_id: str, dense: Identity, sparse: Identity) -> None:
    assert identify(event_id, "d", 4, Positions(), order=Order.DENSE).identity is dense
    assert identify(event_id, "d", 4, Positions(), order=Order.SPARSE).identity is sparse


def test_absent_token_never_means_any() -> None:
    assert compare_token("a", "a") is Token.SAME
    assert compare_token("a", "b") is Token.OTHER
    for found, ours in ((None, "a"), ("a", None), (None, None)):
        assert compare_token(found, ours) is Token.ABSENT


@pytest.mark.parametrize(
    ("text", "asked", "window"),
    [
        ("10-20", 9, Window.CONTAINS),
        ("10-20", 20, Window.CONTAINS),
        ("10-20", 8, Window.EXCLUDES),
        ("10-20", 21, Window.EXCLUDES),
        ("20", 15, Window.ABSENT),
        ("-5-20", 15, Window.ABSENT),
        (None, 15, Window.ABSENT),
        ("10-20", None, Window.ABSENT),
    ],
)
def test_declared_window(text: str | None, asked: int | None, window: Window) -> None:
    assert compare_window(text, asked) is window


def test_digest_keeps_type_and_data_apart() -> None:
    assert digest_event("ab", b"c") != digest_event("a", b"bc")
    assert digest_event("message", b"x") == digest_event("message", b"x")
