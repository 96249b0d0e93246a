"""The mark passes an event when all before it are done, and never within a history that was given up."""

from __future__ import annotations

import random

from counterfoil.adapters.client.marks import Marks


def test_whatever_the_order_of_the_ends_the_mark_is_the_longest_done_prefix() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        told: list[int] = []
        marks = Marks(told.append)
        held = {position: marks.add(position) for position in range(1, 9)}
        done: set[int] = set()
        for position in rng.sample(sorted(held), 8):
            held[position].done()
            done.add(position)
            prefix = next((n for n in range(1, 10) if n not in done), 9) - 1
            assert (told[-1] if told else 0) == prefix
        assert told == sorted(told)


def test_what_is_done_of_a_history_that_was_given_up_moves_nothing() -> None:
    told: list[int] = []
    marks = Marks(told.append)
    old = marks.add(1)
    marks.clear()
    new = marks.add(1)
    old.done()
    assert told == []
    new.done()
    assert told == [1]
