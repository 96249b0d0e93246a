"""Seeded schedules of a client whose ledger's disk fails and whose process dies, and bugs that only these
faults show.
"""

from __future__ import annotations

import collections
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from counterfoil.model.tokens import HandlerKind
from world.bugs import planted
from world.ledger_bugs import LEDGER_BUGS
from world.ledger_schedule import LedgerFault, LedgerSchedule
from world.schedule import Broken, first_broken

PINNED: dict[str, int] = tomllib.loads((Path(__file__).parent / "pinned_ledger.toml").read_text())


@pytest.mark.slow
def test_whatever_the_disk_does_no_effect_is_lost_or_doubled(scaled: Callable[[int, int], int]) -> None:
    """Real dispatcher, tickets, ledger steps and client stream; acknowledgements lost, disk busy or full,
    syncs failed, power lost, processes killed.
    """
    faults: collections.Counter[str] = collections.Counter()
    kinds: collections.Counter[HandlerKind] = collections.Counter()
    dispatched = given_up = 0
    seeds = scaled(200, 100_000)
    for seed in range(seeds):
        schedule = LedgerSchedule(seed)
        faults.update(schedule.faults)
        try:
            schedule.run()
        except Exception as error:
            tail = "\n".join(schedule.log[-40:])
            raise AssertionError(f"seed {seed} ({schedule.handler_kind}): {error}\n{tail}") from error
        kinds[schedule.handler_kind] += 1
        dispatched += len(schedule.by_place)
        given_up += schedule.is_lost
    # A schedule that meets nothing proves nothing.
    assert set(faults) == set(LedgerFault.NAMES)
    assert set(kinds) == set(HandlerKind)
    assert dispatched > 3 * seeds
    assert given_up < seeds / 5


@pytest.mark.slow
def test_same_seed_same_trace_with_a_failing_disk(scaled: Callable[[int, int], int]) -> None:
    for seed in range(0, scaled(200, 100_000), 20):
        assert LedgerSchedule(seed).run() == LedgerSchedule(seed).run()


def test_bugs_of_the_ledger_are_pinned() -> None:
    assert set(PINNED) == set(LEDGER_BUGS)


@pytest.mark.parametrize("name", LEDGER_BUGS)
def test_planted_bug_of_the_ledger_is_seen_at_its_pinned_seed(name: str) -> None:
    LedgerSchedule(PINNED[name]).run()
    with planted(name), pytest.raises(Broken):
        LedgerSchedule(PINNED[name]).run()


@pytest.mark.slow
@pytest.mark.parametrize("name", LEDGER_BUGS)
def test_planted_bug_of_the_ledger_is_found_within_ten_thousand_seeds(
    name: str, scaled: Callable[[int, int], int]
) -> None:
    """From seed 0 in full; in `make test` over the few seeds up to the pinned one."""
    limit = scaled(min(PINNED[name] + 1, 40), 10_000)
    with planted(name):
        found = first_broken(range(limit), make=LedgerSchedule)
    assert (None if found is None else found[0]) == (PINNED[name] if PINNED[name] < limit else None)
