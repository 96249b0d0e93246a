"""Facts and verdicts about an identical call: may it take over an earlier one that nobody got the answer of?

They are values only; `counterfoil.decisions.adoption` chooses, the gateway acts.
"""

from __future__ import annotations

from enum import StrEnum

from counterfoil.model.evidence import Evidence
from counterfoil.model.verdicts import Verdict


class Eligible(StrEnum):
    """Whether a call takes part in adoption at all."""

    YES = "yes"
    OFF = "off"  # switched off, for all or for its tool
    KEYED = "keyed"  # its key does what adoption does
    READ_ONLY = "read-only"  # running it again is harmless


class Patience(StrEnum):
    """Whether the newcomer has waited for disconnects that may be under way."""

    FRESH = "fresh"
    SETTLED = "settled"


class Work(StrEnum):
    """What became of the earlier call upstream."""

    UNSENT = "unsent"  # it waits itself
    RUNNING = "running"
    ANSWERED = "answered"
    INDETERMINATE = "indeterminate"
    NOT_APPLIED = "not-applied"
    CANCELLED = "cancelled"  # by a client that was there


class Delivery(StrEnum):
    """Whether the earlier call's answer was handed over."""

    NONE = "none"
    DONE = "done"


class Caller(StrEnum):
    """Where the earlier call's client is, from here to gone for good."""

    ATTACHED = "attached"
    RETURNING = "returning"  # it was given an id, its session lives, and it may resume any moment
    GONE = "gone"  # it had no id, or no session to use it in, or has not come back in time
    FORGOTTEN = "forgotten"  # its window has ended


class AdoptionEvidence(Evidence, frozen=True, kw_only=True):
    """What is known of a newcomer and of one earlier call that is identical to it."""

    eligible: Eligible
    patience: Patience
    work: Work
    delivery: Delivery
    caller: Caller


class NewcomerEvidence(Evidence, frozen=True, kw_only=True):
    """What is known of a newcomer that nothing identical stands beside."""

    eligible: Eligible


class Adopt(Verdict, frozen=True, kw_only=True, tag="adopt"):
    """Take the earlier call over: its progress, its questions and its answer."""


class Wait(Verdict, frozen=True, kw_only=True, tag="wait"):
    """Neither run nor adopt yet.

    `why=waiting`: a disconnect may be on its way.  `why=retry`: the first client may resume.
    """


class Tell(Verdict, frozen=True, kw_only=True, tag="tell"):
    """Say that an identical call's outcome is indeterminate; nothing runs."""


class RunAnew(Verdict, frozen=True, kw_only=True, tag="run"):
    """The earlier call is no reason not to run."""


AdoptionVerdict = Adopt | Wait | Tell | RunAnew
