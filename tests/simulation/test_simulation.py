"""Seeded schedules of a client's stream against servers and networks that misbehave, and bugs to be seen."""

from __future__ import annotations

import collections
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from world.bugs import BUGS, planted
from world.real_store import StoreSchedule
from world.schedule import Broken, Fault, Schedule, first_broken, run_seed

PINNED: dict[str, int] = tomllib.loads((Path(__file__).parent / "pinned.toml").read_text())
VERDICTS = {"New", "Resumed", "Gap", "Reoriginated", "Unverifiable"}


@pytest.mark.slow
def test_every_schedule_keeps_every_invariant(scaled: Callable[[int, int], int]) -> None:
    """Nothing lost, doubled or overtaken; resumed only where the history is the same.

    Every request ends once.
    """
    told: collections.Counter[str] = collections.Counter()
    faults: collections.Counter[str] = collections.Counter()
    for seed in range(scaled(1_500, 100_000)):
        schedule = Schedule(seed)
        faults.update(schedule.faults)
        try:
            schedule.run()
        except Exception as error:
            tail = "\n".join(schedule.log[-40:])
            raise AssertionError(f"seed {seed} ({schedule.scheme}): {error}\n{tail}") from error
        told.update(schedule.verdicts)
    # A schedule that meets nothing proves nothing.
    assert set(told) >= VERDICTS
    assert set(faults) == set(Fault.NAMES)


@pytest.mark.slow
def test_real_store_and_client_keep_every_invariant(scaled: Callable[[int, int], int]) -> None:
    """The server's rows, windows and readers against the client's verdicts: the two sides mean the same."""
    told: collections.Counter[str] = collections.Counter()
    for seed in range(scaled(600, 20_000)):
        schedule = StoreSchedule(seed)
        try:
            schedule.run()
        except Exception as error:
            tail = "\n".join(schedule.log[-40:])
            raise AssertionError(f"seed {seed} (real store): {error}\n{tail}") from error
        told.update(schedule.verdicts)
    assert set(told) >= VERDICTS


@pytest.mark.parametrize("name", ["a jump is accepted", "a known event runs again", "beats are not read"])
def test_real_store_schedules_see_bugs_of_the_client_too(name: str) -> None:
    with planted(name):
        assert first_broken(range(2_000), make=StoreSchedule) is not None


@pytest.mark.slow
def test_same_seed_same_trace(scaled: Callable[[int, int], int]) -> None:
    for seed in range(0, scaled(1_500, 100_000), 100):
        assert run_seed(seed) == run_seed(seed)


def test_at_least_twelve_bugs_are_planted_and_pinned() -> None:
    assert set(PINNED) == set(BUGS)
    assert len(BUGS) >= 12


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_seen_at_its_pinned_seed(name: str) -> None:
    run_seed(PINNED[name])
    with planted(name), pytest.raises(Broken):
        run_seed(PINNED[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_found_within_ten_thousand_seeds(name: str, scaled: Callable[[int, int], int]) -> None:
    """In full from seed 0; in `make test` over the seeds up to the pinned one, where those are few."""
    limit = scaled(min(PINNED[name] + 1, 300), 10_000)
    with planted(name):
        found = first_broken(range(limit))
    if PINNED[name] < limit:
        assert found is not None
        assert found[0] == PINNED[name]
    else:
        assert found is None
