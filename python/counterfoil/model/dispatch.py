"""Facts and verdicts about starting an effect: the row found in the ledger, and what it allows.

They are values only; `counterfoil.decisions` chooses between them, the ledger and the dispatcher act on them.
"""

from __future__ import annotations

from enum import StrEnum

from counterfoil.model.evidence import Evidence
from counterfoil.model.tokens import HandlerKind
from counterfoil.model.verdicts import Verdict


class Row(StrEnum):
    """The state of the row under the key; *settled* is told apart by its outcome."""

    NONE = "none"
    INTENDED = "intended"
    RELEASED = "released"  # the intent was withdrawn before the handler began
    AWAITING_INPUT = "awaiting-input"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    NOT_APPLIED = "not-applied"
    INDETERMINATE = "indeterminate"
    TOMBSTONE = "tombstone"


class Incarnation(StrEnum):
    """Whose intent it is: of the process that lives now, or of an earlier one."""

    LIVING = "living"
    EARLIER = "earlier"


class Attempts(StrEnum):
    """Whether one more attempt is within the limit."""

    LEFT = "left"
    EXHAUSTED = "exhausted"


class Match(StrEnum):
    """Whether two digests, the stored one and that of the new request, are equal."""

    EQUAL = "equal"
    DIFFERENT = "different"


class Honours(StrEnum):
    """Whether the peer has acknowledged our idempotency keys."""

    KEYS = "keys"
    NOTHING = "nothing"


class Order(StrEnum):
    """How our number stands to the stored one."""

    LOWER = "lower"
    EQUAL = "equal"
    HIGHER = "higher"


class DispatchEvidence(Evidence, frozen=True, kw_only=True):
    """What is known before a handler runs.

    `attempt` is the number of the attempt that found the row, from 1.
    """

    row: Row
    kind: HandlerKind
    incarnation: Incarnation = Incarnation.LIVING
    attempts: Attempts = Attempts.LEFT
    attempt: int = 0


class RequestEvidence(Evidence, frozen=True, kw_only=True):
    """What is known of a call under its key.

    `input_round` compares what an `input_required` was answered with.
    """

    row: Row
    fingerprint: Match = Match.EQUAL
    input_round: Match = Match.EQUAL
    incarnation: Incarnation = Incarnation.LIVING
    honours: Honours = Honours.NOTHING
    attempt: int = 0


class FenceEvidence(Evidence, frozen=True, kw_only=True):
    """How the fence and the attempt of a write stand to the stored ones, read in the same transaction."""

    fence: Order
    attempt: Order = Order.EQUAL


class Dispatch(Verdict, frozen=True, kw_only=True, tag="dispatch"):
    """Record the intent of this attempt (from 1), then run."""

    attempt: int


class ReturnRecorded(Verdict, frozen=True, kw_only=True, tag="return_recorded"):
    """Settled before: do not run; repeat the acknowledgement or the stored answer."""


class ReturnQuestion(Verdict, frozen=True, kw_only=True, tag="return_question"):
    """The same round again: ask the stored question again."""


class InFlight(Verdict, frozen=True, kw_only=True, tag="in_flight"):
    """A run of this process has it: suppress the copy and wait for that run."""


class Park(Verdict, frozen=True, kw_only=True, tag="park"):
    """The effect may have happened: settle as indeterminate, report, and never run it again."""


class GiveUp(Verdict, frozen=True, kw_only=True, tag="give_up"):
    """The attempts are used up: settle as failed, and report."""


class KeyConflict(Verdict, frozen=True, kw_only=True, tag="key_conflict"):
    """The key was used for other arguments."""


class KeyExpired(Verdict, frozen=True, kw_only=True, tag="key_expired"):
    """Seen, and its outcome has aged out: indeterminate, never new."""


class Entitled(Verdict, frozen=True, kw_only=True, tag="entitled"):
    """This writer may write."""


class Fenced(Verdict, frozen=True, kw_only=True, tag="fenced"):
    """Another writer, or a later attempt of this one, is entitled: write nothing."""


DispatchVerdict = Dispatch | ReturnRecorded | InFlight | Park | GiveUp | KeyExpired
RequestVerdict = Dispatch | ReturnRecorded | ReturnQuestion | InFlight | Park | KeyConflict | KeyExpired
FenceVerdict = Entitled | Fenced
