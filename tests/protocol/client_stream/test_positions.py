"""The tail that is held: bounded by the processed mark, and always with something to ask with."""

from __future__ import annotations

from counterfoil.model.stream import HeldEvent
from counterfoil.protocol.client_stream.positions import Positions
from hypothesis import given
from hypothesis import strategies as st


def event(position: int, *, has_data: bool = True) -> HeldEvent:
    kind = "event" if has_data else "echo"
    return HeldEvent(
        position=position, event_id=f"{kind}-{position}", digest=f"d{position}", has_data=has_data
    )


def filled(count: int) -> Positions:
    positions = Positions([event(0, has_data=False)])
    for position in range(1, count + 1):
        positions.add(event(position))
    return positions


def asked(held: HeldEvent | None) -> str | None:
    return None if held is None else held.event_id


def test_only_the_processed_event_is_asked_with() -> None:
    positions = filled(5)
    assert asked(positions.cursor()) == "echo-0"
    positions.settle(3)
    assert asked(positions.cursor()) == "event-3"
    assert asked(positions.newest()) == "event-5"


def test_overlap_is_asked_from_the_older_of_processed_and_predecessor_of_received() -> None:
    positions = filled(5)
    positions.settle(2)
    assert asked(positions.predecessor()) == "event-2"
    positions.settle(5)
    assert asked(positions.predecessor()) == "event-4"


def test_with_one_event_the_echo_is_the_base_of_the_overlap() -> None:
    positions = filled(1)
    positions.settle(1)
    assert asked(positions.predecessor()) == "echo-0"


def test_mark_never_goes_back_nor_beyond_what_was_received() -> None:
    positions = filled(3)
    positions.settle(9)
    assert positions.processed == 3
    positions.settle(1)
    assert positions.processed == 3


def test_event_without_id_counts_and_is_not_held() -> None:
    positions = filled(1)
    positions.add(HeldEvent(position=2, event_id="", digest="d"))
    assert positions.received == 2
    assert positions.by_position(2) is None


def test_forget_leaves_nothing_to_ask_with() -> None:
    positions = filled(2)
    positions.forget()
    assert positions.cursor() is None
    assert positions.by_id("event-1") is None


@given(st.lists(st.one_of(st.just("receive"), st.integers(0, 50)), max_size=200))
def test_held_tail_is_exactly_what_may_be_needed(steps: list[str | int]) -> None:
    positions = Positions([event(0, has_data=False)])
    for step in steps:
        if step == "receive":
            positions.add(event(positions.received + 1))
        else:
            positions.settle(int(step))
        low = min(positions.processed, positions.received - 1) if positions.received else 0
        needed = set(range(max(low, 0), positions.received + 1))
        assert needed <= {held.position for held in positions.held}
        assert len(positions.held) <= positions.unprocessed + 2
        assert positions.cursor() is not None
        assert all(positions.by_position(p) is not None for p in needed if p)


def test_what_is_held_is_found_by_its_place_in_the_stream() -> None:
    positions = filled(3)
    assert positions.newest_held == 3
    assert positions.place_of("event-2") == 2
    assert positions.place_of("echo-0") == positions.place_of("nobody") == 0
    assert asked(positions.next_held("echo-0")) == "event-1"
    assert asked(positions.next_held("event-1")) == "event-2"
    assert positions.next_held("event-3") is None
    assert positions.next_held("nobody") is None


def test_newest_held_looks_past_an_echo() -> None:
    positions = filled(2)
    positions.add(HeldEvent(position=2, event_id="later", digest="", has_data=False))
    assert positions.newest_held == 2
    assert positions.next_held("event-2") is None
    assert Positions().newest_held == 0


def test_unprocessed_is_what_lies_between_the_two_positions() -> None:
    positions = filled(5)
    positions.settle(2)
    assert positions.unprocessed == 3


def test_pinned_events_stay_until_what_was_asked_for_has_come() -> None:
    positions = filled(5)
    positions.settle(2)
    positions.pin("event-2")
    positions.settle(5)
    assert [held.position for held in positions.held] == [1, 2, 3, 4, 5]
    positions.unpin()
    assert [held.position for held in positions.held] == [4, 5]


def test_no_more_is_kept_than_the_event_before_the_processed_one() -> None:
    positions = filled(9)
    positions.settle(9)
    assert [held.position for held in positions.held] == [8, 9]
