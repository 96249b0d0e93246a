"""The calls that all ledgers share; what they mean is tested by the contract."""

from __future__ import annotations

import inspect

import pytest
from counterfoil.stores.ledger_interface import Ledger
from counterfoil.stores.ledger_memory import MemoryLedger
from counterfoil.stores.ledger_sqlite.ledger import SqliteLedger
from counterfoil.stores.ledger_stepped import SteppedLedger

#: What differs for a reason: a transaction to lend, no commit of its own, and facts about the incarnation.
OWN = {"abandon", "apply", "skip", "durability", "kinds", "fence", "secret"}


def public(what: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(what) if not name.startswith("_")}


@pytest.mark.parametrize("ledger", [MemoryLedger, SqliteLedger])
def test_every_ledger_takes_the_calls_that_are_one_step_from_one_place(
    ledger: type[SteppedLedger],
) -> None:
    shared = public(Ledger) - OWN
    assert shared <= public(SteppedLedger)
    assert not {name for name in shared if name in vars(ledger)}


def test_a_ledger_that_cannot_carry_out_a_step_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="_put_step"):
        SteppedLedger()  # type: ignore[abstract]
