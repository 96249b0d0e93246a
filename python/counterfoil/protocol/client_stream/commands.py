"""What a client's stream wants done, in the imperative.

The driver carries them out in their order; it must not deliver what it was not told to.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from counterfoil.model.evidence import ResumeEvidence
from counterfoil.model.outcomes import Outcome
from counterfoil.model.stream import Place, StreamRecord
from counterfoil.model.tokens import Why
from counterfoil.model.verdicts import EventJudgement, ResumeVerdict


class Extent(StrEnum):
    """What an end ends."""

    STREAM = "stream"
    SESSION = "session"


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Open a connection.

    With `resumes` send a GET, without it the call's own POST (a standalone stream always sends GET).
    `headers` go with it, `Last-Event-ID` among them where there is a cursor.
    """

    resumes: bool
    headers: Mapping[str, str]


class Close(msgspec.Struct, frozen=True):
    """Close the connection; nothing more of it is wanted."""


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """Dispatch this event.  `at_most_once` says that its stream was not proven continuous.

    `method` and `request_id` are those of its JSON-RPC message; a response and a batch have no method.
    `in_sequence` is False for an event that was taken out of a stream that is not continuous, because of its
    payload key: its place says nothing of what is processed.
    """

    place: Place
    data: bytes
    judgement: EventJudgement
    method: str | None = None
    request_id: int | str | None = None
    at_most_once: bool = False
    in_sequence: bool = True


class PassOver(msgspec.Struct, frozen=True, kw_only=True):
    """Count this event as completed: it is a duplicate, or nothing dispatches it."""

    place: Place
    judgement: EventJudgement


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Give the caller its JSON-RPC response, result or the server's own error, as it came."""

    request_id: int | str
    data: bytes
    place: Place | None


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """Give the caller an outcome without a response: not applied, or indeterminate."""

    request_id: int | str
    outcome: Outcome


class Report(msgspec.Struct, frozen=True):
    """Tell the application the verdict on a connection."""

    verdict: ResumeVerdict


class TellPending(msgspec.Struct, frozen=True):
    """Tell the application that nothing proves continuity yet; the verdict stays open."""

    evidence: ResumeEvidence


class TellFault(msgspec.Struct, frozen=True):
    """Tell the application that the stream broke its own rules here; it is resumed from our position."""

    why: Why


class WakeAt(msgspec.Struct, frozen=True):
    """Tell `TimePassed` at this time (seconds on the caller's clock); it replaces every earlier one."""

    at: float


class Keep(msgspec.Struct, frozen=True):
    """Keep this record durably, in place of the one before."""

    record: StreamRecord


class PauseReading(msgspec.Struct, frozen=True):
    """Read no more bytes until `ResumeReading`: too many events are not processed yet."""


class ResumeReading(msgspec.Struct, frozen=True):
    """Read on."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The stream is over, or with `extent=session` every stream of its session."""

    extent: Extent
    why: Why


Command = (
    Open
    | Close
    | Deliver
    | PassOver
    | Answer
    | Settle
    | Report
    | TellPending
    | TellFault
    | WakeAt
    | Keep
    | PauseReading
    | ResumeReading
    | End
)
