"""What a ledger answers: may this run begin, and what became of it.

Every class is a member of a closed union; none has a truth value.
"""

from __future__ import annotations

from typing import NoReturn

import msgspec

from counterfoil.model.ledger_keys import EventPlace
from counterfoil.model.ledger_rows import LedgerRow
from counterfoil.model.tokens import OutcomeToken


class LedgerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Common to all; `key` is the stored key."""

    key: bytes

    def __bool__(self) -> NoReturn:
        """Raise TypeError: an answer has more than two values."""
        raise TypeError(f"{type(self).__name__} has no truth value: match on its class")


class Claimed(LedgerAnswer, frozen=True, kw_only=True, gc=False, tag="claimed"):
    """The intent is durable and the run is yours; hand this back with the outcome.

    `run` is the name that the intent gave it, if any: with it the right outlives the ledger's owner.
    """

    attempt: int
    tries: int
    fence: int
    serial: int
    stream: bytes | None = None
    place: EventPlace | None = None
    run: bytes = b""


class Known(LedgerAnswer, frozen=True, kw_only=True, gc=False, tag="known"):
    """Already settled: do not run, repeat the acknowledgement.

    `row` is None where only the mark remembers it.  `fresh` says that this very step settled it, so that it
    is to be reported: as indeterminate, because an earlier incarnation ended in the middle, or as failed,
    at the attempt limit.
    """

    row: LedgerRow | None
    fresh: bool = False


class Running(LedgerAnswer, frozen=True, kw_only=True, tag="running"):
    """A living run has it: suppress this copy and wait for that one."""

    attempt: int


class Asked(LedgerAnswer, frozen=True, kw_only=True, tag="asked"):
    """An equal round was answered with a question before: repeat the question."""

    question: bytes


class Conflict(LedgerAnswer, frozen=True, kw_only=True, tag="conflict"):
    """The key is known with another fingerprint."""

    label: str


class Expired(LedgerAnswer, frozen=True, kw_only=True, tag="expired"):
    """Seen before, and what became of it is forgotten: indeterminate, never new."""

    until: float


ClaimAnswer = Claimed | Known | Running | Asked | Conflict | Expired


class Settled(LedgerAnswer, frozen=True, kw_only=True, gc=False, tag="settled"):
    """The outcome is durable; `processed` is the mark after it, None where there is no stream or it did not
    move.
    """

    row: LedgerRow
    processed: int | None = None


def is_completed(answer: ClaimAnswer | Settled) -> bool:
    """Say whether the effect is there, by this run or by an earlier one; what comes next may follow."""
    match answer:
        case Settled():
            return answer.row.outcome is OutcomeToken.COMPLETED
        case Known():
            return answer.row is None or answer.row.outcome is OutcomeToken.COMPLETED
        case _:
            return False


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One row as an operator sees it; hand it back to `resolve`."""

    key: bytes
    what: str
    tenant: str | None
    principal: str | None
    session: str | None
    server: str
    stream: str | None
    epoch: str | None
    idempotency_key: str
    state: str
    kind: str
    outcome: OutcomeToken | None
    attempt: int
    label: str
    why: str
    evidence: str
    note: str
    parked: bool
    changed_at: float
    delivered: bool = False
    adopted: int = 0
