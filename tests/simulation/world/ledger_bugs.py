"""Planted bugs of the dispatcher and the ledger, each of which only a failing disk or a death can show."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
from counterfoil.adapters.dispatcher import run as dispatcher_run
from counterfoil.model.tokens import HandlerKind
from counterfoil.protocol.ledger_steps import claiming, settling
from world.disk import SimulatedLedger

Patches = list[tuple[Any, str, Any]]
_decide = claiming.decide_dispatch
_keys = itertools.count()


def _runs_in_doubt(evidence: Any) -> Any:
    return _decide(msgspec.structs.replace(evidence, kind=HandlerKind.IDEMPOTENT))


LEDGER_BUGS: dict[str, Callable[[], Patches]] = {
    "a run that could not be settled is waited for": lambda: [
        (claiming, "is_living", lambda row, moment: row.fence == moment.fence),
        (settling, "is_living", lambda row, moment: row.fence == moment.fence),
    ],
    "an intent that nobody was told of is waited for": lambda: [(claiming, "_is_untold", lambda *_: False)],
    "an intent of an earlier process is waited for": lambda: [(claiming, "is_living", lambda *_: True)],
    "a doubt is run again": lambda: [(claiming, "decide_dispatch", _runs_in_doubt)],
    "a step does not know its own row again": lambda: [(claiming, "is_own", lambda *_: False)],
    "what is acknowledged may not be synced": lambda: [(SimulatedLedger, "syncs_first", False)],
    "what follows a failure is run all the same": lambda: [
        (SimulatedLedger, "_is_completed", staticmethod(lambda work: True))
    ],
    "a sink's key is that of the run": lambda: [
        (dispatcher_run, "_sink_key", lambda intent: f"run-{next(_keys)}")
    ],
}
