"""Counts and logs what adoption does, one line each on `counterfoil.gateway`.

No line has arguments, ids or sessions in it.
"""

from __future__ import annotations

import json
import logging

import msgspec

from counterfoil.adapters.gateway.adoption.entries import AdoptableCall, CallWork

_LOGGER = logging.getLogger("counterfoil.gateway")
_MAX_NAME_CHARS = 128


class AdoptionCounts(msgspec.Struct):
    """What happened so far; read it, do not write it."""

    adopted: int = 0
    passed_over: int = 0
    """Identical calls that ran because the answer of the one before had been handed over."""
    told: int = 0
    """Identical calls that were told that the outcome is indeterminate."""
    held: int = 0
    """Cancellations and ends of session of clients that were gone."""


class AdoptionLog:
    """One gateway's adoptions."""

    def __init__(self) -> None:
        self.counts = AdoptionCounts()

    def adopted(self, entry: AdoptableCall, work: CallWork) -> None:
        self.counts.adopted += 1
        self._write("adopted", entry, state=work.state, same_session=entry.scope == work.origin.scope)

    def passed_over(self, entry: AdoptableCall) -> None:
        self.counts.passed_over += 1
        self._write("not-adopted", entry, why="handed-over")

    def told(self, entry: AdoptableCall) -> None:
        self.counts.told += 1
        self._write("told-indeterminate", entry)

    def held(self, what: str) -> None:
        self.counts.held += 1
        if _LOGGER.isEnabledFor(logging.INFO):
            _LOGGER.info("%s", json.dumps({"event": "held", "what": what}))

    def _write(self, event: str, entry: AdoptableCall, **facts: object) -> None:
        if _LOGGER.isEnabledFor(logging.INFO):
            tool = entry.tool[:_MAX_NAME_CHARS]
            _LOGGER.info("%s", json.dumps({"event": event, "tool": tool, **facts}))
